"""HDF5 recordings in the documented layouts, and files that are damaged or something else."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing

import h5py
import numpy as np
import pytest
from event_samples import assert_equal, random_batch
from recording_samples import SIZES, WRITERS, bgr, gray, hdf5_events, picture_stamps, played, write_hdf5

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import IMAGE, typestore
from crossspec_ros.recordings import hdf5
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey


def of_v2e(i):
    return np.full((260, 346), 40 * i, np.uint8)


IMAGES = {"mvsec": gray, "m3ed": bgr, "e2vid": bgr, "v2e": of_v2e}


def damage_chunk(path, name, number):
    with h5py.File(path) as file:
        chunk = file[name].id.get_chunk_info(number)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset : chunk.byte_offset + chunk.size] = bytes(chunk.size)
    path.write_bytes(data)


def replaced(path, name, values, **options):
    with h5py.File(path, "a") as file:
        del file[name]
        file.create_dataset(name, data=values, **options)


@pytest.mark.parametrize("block", [hdf5.BLOCK, 700])
@pytest.mark.parametrize("layout", WRITERS)
def test_every_layout_plays_exactly(tmp_path, monkeypatch, layout, block):
    monkeypatch.setattr(hdf5, "BLOCK", block)
    events = hdf5_events(layout)
    heard, images = played(write_hdf5(tmp_path / "recording.h5", layout, events))
    assert_equal(heard, events)
    expected = picture_stamps(events) if layout in IMAGES else []
    assert [image.stamp_ns for image in images] == [stamp * 1000 for stamp in expected]
    for i, message in enumerate(images):
        image = typestore().deserialize_cdr(message.data, IMAGE)
        pixels = IMAGES[layout](i)
        assert image.encoding == ("mono8" if pixels.ndim == 2 else "bgr8")
        np.testing.assert_array_equal(image.data.reshape(pixels.shape), pixels)


@pytest.mark.parametrize("layout", WRITERS)
def test_info_reports_what_the_file_holds(tmp_path, layout):
    events = hdf5_events(layout)
    report = survey(write_hdf5(tmp_path / "recording.hdf5", layout, events))
    topic = next(topic for topic in report["topics"] if topic["kind"] == "events")
    figures = {name: topic[name] for name in ("events", "on", "first_event_us", "last_event_us")}
    on, first, last = int(events.p.sum()), int(events.t[0]), int(events.t[-1])
    assert figures == {"events": 5000, "on": on, "first_event_us": first, "last_event_us": last}
    assert list(topic["resolutions"]) == ["{}x{}".format(*SIZES[layout])]


def test_a_folder_plays_its_events_h5(tmp_path):
    write_hdf5(tmp_path / "events.h5", "prophesee")
    assert_equal(played(tmp_path)[0], hdf5_events("prophesee"))


@pytest.mark.parametrize(
    ("layout", "name", "store"),
    [
        ("e2vid", "events/ts", lambda t: t.astype(np.int64)),
        ("m3ed", "prophesee/left/t", lambda t: t.astype(float)),
    ],
)
def test_times_of_another_type_need_the_unit(tmp_path, layout, name, store):
    """E2VID documents float seconds and DSEC integer us; other numbers there have another unit."""
    events = hdf5_events(layout)
    path = write_hdf5(tmp_path / "x.h5", layout, events)
    replaced(path, name, store(events.t))
    with pytest.raises(InputError, match="--time-unit"):
        open_here(path)
    with closing(open_here(path, ReadOptions(time_unit="us"))) as recording:
        assert "times in us," in recording.format


def test_columns_of_a_table_may_be_given(tmp_path):
    events = hdf5_events("v2e")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["events"] = np.stack([events.x, events.y, events.p, events.t * 1000], axis=1).astype(np.int64)
    options = ReadOptions(columns="x,y,p,t_ns")
    with closing(open_here(tmp_path / "x.h5", options)) as recording:
        assert recording.format == "HDF5, v2e, times in ns, 346x260 assumed"
        assert recording.start_ns == events.t[0] * 1000
    write_hdf5(tmp_path / "y.h5", "prophesee")
    with pytest.raises(InputError, match="--columns"):
        open_here(tmp_path / "y.h5", options)


@pytest.mark.parametrize(
    ("layout", "state", "size"),
    [
        ("dsec", lambda file: file.attrs.update(height=500, width=700), "700x500"),
        ("dsec", lambda file: file["events"].attrs.update(height=500, width=700), "700x500"),
        ("dsec", lambda file: file["events"].update({"height": 500, "width": np.array([700])}), "700x500"),
        ("e2vid", lambda file: file.attrs.update(sensor_resolution=(500, 700)), "700x500"),
        ("prophesee", lambda file: file.attrs.update(geometry="1300x800"), "1300x800"),
        ("dsec", lambda file: None, "640x480"),
        ("e2vid", lambda file: file.attrs.pop("sensor_resolution"), "240x180"),
    ],
)
def test_size_is_stated_or_assumed(tmp_path, layout, state, size):
    path = write_hdf5(tmp_path / "x.h5", layout)
    with h5py.File(path, "a") as file:
        state(file)
    topics = survey(path)["topics"]
    assert next(topic["resolutions"].keys() for topic in topics if topic["kind"] == "events") == {size}


def test_an_impossible_size_is_refused(tmp_path):
    path = write_hdf5(tmp_path / "x.h5", "dsec")
    with h5py.File(path, "a") as file:
        file.attrs.update(height=480, width=9000)
    with pytest.raises(InputError, match="9000"):
        open_here(path)


def test_one_invalid_event_costs_no_other(tmp_path):
    events = hdf5_events("dsec").at(np.arange(5000) * 200)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for part in "txyp":
            file[f"events/{part}"] = getattr(events, part).astype("i8")
        file["events/y"][3000], file["events/t"][3001], file["events/p"][3002] = 33_014, -9, 3
    report = survey(tmp_path / "x.h5")
    assert report["topics"][0]["events"] == 4997
    damage = "events outside sensor 1, invalid polarities 1, times before 1970 or after 2038 1"
    assert any(damage in finding for finding in report["findings"])


def external(path):
    with h5py.File(path.with_name("other.h5"), "w") as file:
        file["t"] = np.arange(5000)
    with h5py.File(path, "a") as file:
        del file["events/t"]
        file["events/t"] = h5py.ExternalLink("other.h5", "t")


def soft(path):
    with h5py.File(path, "a") as file:
        file.move("events/t", "t")
        file["events/t"] = h5py.SoftLink("/t")


def virtual(path):
    layout = h5py.VirtualLayout((5000,), np.int64)
    layout[:] = h5py.VirtualSource("other.h5", "t", (5000,))
    with h5py.File(path, "a") as file:
        del file["events/t"]
        file.create_virtual_dataset("events/t", layout)


def raw_outside(path):
    with h5py.File(path, "a") as file:
        del file["events/t"]
        file.create_dataset("events/t", (5000,), np.int64, external=[("/etc/passwd", 0, 5000 * 8)])


def unknown_filter(path):
    with h5py.File(path, "a") as file:
        del file["events/t"]
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((5000,))
        plan.set_filter(0x7777, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((5000,))
        data = h5py.h5d.create(file["events"].id, b"t", h5py.h5t.NATIVE_INT64, space, plan)
        data.write_direct_chunk((0,), bytes(80))


@pytest.mark.parametrize(
    ("bend", "reason"),
    [
        (external, "link"),
        (soft, "link"),
        (virtual, "no numbers of its own"),
        (raw_outside, "no numbers of its own"),
        (lambda path: replaced(path, "events/t", ["one"] * 5000), "no numbers of its own"),
        (unknown_filter, "filter"),
        (lambda path: replaced(path, "events/t", np.empty(0, int)), "differ in length"),
        (lambda path: replaced(path, "events/t", np.zeros((5000, 2), int)), "known layout"),
        (lambda path: replaced(path, "events/t", np.full(5000, -(1 << 60))), "do not look like events"),
        (
            lambda path: replaced(
                path, "events/t", np.random.default_rng(1).permutation(np.arange(5000) * 2000)
            ),
            "sort",
        ),
    ],
)
def test_other_files_are_refused(tmp_path, bend, reason):
    path = write_hdf5(tmp_path / "events.h5", "dsec")
    bend(path)
    with pytest.raises(InputError, match=reason):
        open_here(path)


def test_files_of_something_else_are_refused(tmp_path):
    with h5py.File(tmp_path / "gt.hdf5", "w") as file:
        file["davis/left/depth_image_raw"] = np.zeros((2, 26, 34))
    with pytest.raises(InputError, match=r"known layout.*MVSEC.*numpy\.savez"):
        open_here(tmp_path / "gt.hdf5")
    (tmp_path / "text.h5").write_text("hello")
    with pytest.raises(InputError, match="damaged"):
        open_here(tmp_path / "text.h5")


def test_a_file_that_is_being_written_is_refused(tmp_path):
    path = write_hdf5(tmp_path / "x.h5", "dsec")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="still being written"):
        open_here(path)


@pytest.mark.parametrize("number", [0, 20])
def test_parts_beside_a_damaged_chunk_play(tmp_path, monkeypatch, number):
    monkeypatch.setattr(hdf5, "BLOCK", 1000)
    events = random_batch(64_000, t_start=3 << 24, duration_us=300_000, width=1280, height=720)
    path = write_hdf5(tmp_path / "recording.h5", "prophesee", events)
    damage_chunk(path, "CD/events", number)
    report = survey(path)
    assert report["topics"][0]["events"] == 63_000
    assert any("1 damaged parts" in finding for finding in report["findings"])


def test_damaged_images_do_not_cost_the_events(tmp_path):
    path = write_hdf5(tmp_path / "recording.h5", "mvsec")
    damage_chunk(path, "davis/left/image_raw", 2)
    with closing(open_here(path)) as recording:
        kinds = [message.kind for message in recording.messages()]
    assert kinds.count("image") == 4 and kinds.count("events") == 31
    assert "1 of its 5 images" in recording.losses[0]


@pytest.mark.parametrize(
    ("stamps", "reason"),
    [(np.arange(4.0), "valid time"), (np.full(5, -1.0), "valid time"), (np.full(5, np.nan), "valid time")],
)
def test_images_without_times_are_refused(tmp_path, stamps, reason):
    path = write_hdf5(tmp_path / "recording.h5", "mvsec")
    replaced(path, "davis/left/image_raw_ts", stamps)
    with pytest.raises(InputError, match=reason):
        open_here(path)


@pytest.mark.parametrize("packing", [None, "gzip"])
def test_images_play_in_the_order_of_their_times(tmp_path, packing):
    path, name = write_hdf5(tmp_path / "recording.h5", "mvsec"), "davis/left/image_raw"
    with h5py.File(path) as file:
        pixels, stamps = file[name][:], file[f"{name}_ts"][:]
    order = [0, 2, 4, 1, 3]
    for part, values in ((name, pixels), (f"{name}_ts", stamps)):
        replaced(path, part, values[order], chunks=(2, *values.shape[1:]), compression=packing)
    _, images = played(path)
    messages = [typestore().deserialize_cdr(message.data, IMAGE) for message in images]
    assert [message.data.tobytes() for message in messages] == [one.tobytes() for one in pixels]


def test_nothing_in_the_working_folder_is_run(tmp_path):
    """It may be that of a recording, with a json.py in it; Python 3.10 looks there in any case."""
    path = write_hdf5(tmp_path / "recording.h5", "prophesee")
    for name in ("json", "multiprocessing", "h5py"):
        (tmp_path / f"{name}.py").write_text("open('run', 'w')")
    (tmp_path / "elsewhere").mkdir()
    script = tmp_path / "elsewhere" / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from crossspec_ros.recordings.recording import open_recording\n"
        "if __name__ == '__main__':\n"
        f"    open_recording(Path('{path.name}')).close()\n"
    )
    python = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, env=os.environ | python, check=True)
    assert sys.version_info < (3, 11) or not (tmp_path / "run").exists()


@pytest.mark.parametrize("layout", WRITERS)
def test_cut_and_bent_files_play_or_are_refused(boxed, tmp_path, layout):
    path = write_hdf5(tmp_path / "whole.h5", layout)
    data, rng = bytearray(path.read_bytes()), np.random.default_rng(len(layout))
    case = [*WRITERS].index(layout) % 4
    if case == 0:
        del data[rng.integers(1, len(data)) :]
    else:
        # Half of the bytes lie in the description of the data sets, which comes first.
        for place in rng.integers(0, len(data) if case % 2 else 4000, 1 + 4 * case):
            data[place] ^= rng.integers(1, 256)
    path.write_bytes(data)
    try:
        report = survey(path)
    except InputError as error:
        refusal = str(error)
    else:
        refusal = f"{path} plays"
        events = sum(topic.get("events", 0) for topic in report["topics"])
        assert events == 5000 or any("damaged" in found or "decoded" in found for found in report["findings"])
    assert str(path) in refusal and "\n" not in refusal
