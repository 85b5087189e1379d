"""HDF5 recordings of other data sets: what plays, and what is said about the rest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing, nullcontext

import h5py
import numpy as np
import pytest
from event_samples import assert_equal, random_batch
from recording_samples import (
    SIZES,
    WRITERS,
    bgr,
    gray,
    hdf5_events,
    picture_stamps,
    played,
    write_hdf5,
)

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import IMAGE, typestore
from crossspec_ros.recordings import arrays, info
from crossspec_ros.recordings.hdf5 import Hdf5Events, find_layout
from crossspec_ros.recordings.hdf5_file import Hdf5File
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey

PICTURES = {"mvsec": gray, "m3ed": bgr, "e2vid": bgr}


def pixels_of(images):
    """The bytes of the pixels of messages."""
    return [typestore().deserialize_cdr(message.data, IMAGE).data.tobytes() for message in images]


def stored(path, name):
    with h5py.File(path) as file:
        return file[name][:]


def damage_chunk(path, name, number):
    with h5py.File(path) as file:
        chunk = file[name].id.get_chunk_info(number)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset : chunk.byte_offset + chunk.size] = bytes(chunk.size)
    path.write_bytes(data)


@pytest.mark.parametrize("layout", WRITERS)
def test_every_layout_plays_its_events_and_images(tmp_path, layout):
    events = hdf5_events(layout)
    path = write_hdf5(tmp_path / "recording.h5", layout, events)
    heard, images = played(path)
    assert_equal(heard, events)
    expected = picture_stamps(events) if layout in PICTURES else []
    assert [image.stamp_ns for image in images] == [stamp * 1000 for stamp in expected]
    for i, message in enumerate(images):
        image = typestore().deserialize_cdr(message.data, IMAGE)
        pixels = PICTURES[layout](i)
        assert image.encoding == ("mono8" if pixels.ndim == 2 else "bgr8")
        np.testing.assert_array_equal(image.data.reshape(pixels.shape), pixels)


@pytest.mark.parametrize(
    ("unit", "store"),
    [
        ("s", lambda t: t / 1e6),
        ("us", lambda t: t.astype(float)),
        ("ns", lambda t: t.astype(np.uint64) * 1000),
    ],
)
def test_the_unit_of_the_times_is_told_by_their_values(tmp_path, unit, store):
    events = hdf5_events("lists")
    events = events.at(events.t + 1_700_000_000_000_000)
    path = write_hdf5(tmp_path / "recording.h5", "lists", events)
    replaced(path, "t", store(events.t))
    with closing(open_here(path)) as recording:
        assert f"times in {unit}," in recording.format
        assert (recording.start_ns, recording.end_ns) == (events.t[0] * 1000, events.t[-1] * 1000)


@pytest.mark.parametrize(
    ("scale", "offset", "unit", "refusal"),
    [
        (1e-6, 0, "", ""),
        (1, 5 * 10**10, "", ""),
        (1000, 0, "", "may be ns or us .* --time-unit ns"),
        (1000, 1_600_000_000 * 10**9, "ns", ""),
        (1e-6, 5 * 10**10, "", "has t_offset = 50000000000, which is no time in s"),
    ],
)
def test_an_offset_is_in_the_unit_of_the_times_and_tells_nothing_of_it(
    tmp_path, scale, offset, unit, refusal
):
    events = random_batch(5000, t_start=0, duration_us=3_000_000, width=640, height=480)
    path = write_hdf5(tmp_path / "x.h5", "lists", events)
    replaced(path, "t", events.t * scale)
    with h5py.File(path, "a") as file:
        file["t_offset"] = np.int64(offset)
    with pytest.raises(InputError, match=refusal) if refusal else nullcontext():
        found = open_here(path, ReadOptions(time_unit=unit))
        assert found.end_ns - found.start_ns == pytest.approx(3e9, rel=0.01)
        assert found.start_ns == pytest.approx(offset * 1000 / scale, abs=10**7)


def test_statements_in_other_files_are_not_read(tmp_path):
    (tmp_path / "secret.txt").write_text("s" * 40)
    path = write_hdf5(tmp_path / "x.h5", "lists", random_batch(5000, width=640, height=480))
    with h5py.File(path, "a") as file:
        file.create_dataset("time_unit", (1,), "S40", external=[(str(tmp_path / "secret.txt"), 0, 40)])
    assert "times in us" in open_here(path).format


def test_tables_that_are_not_played_refuse_nothing(tmp_path):
    path = write_hdf5(tmp_path / "x.h5", "lists", random_batch(5000, width=640, height=480))
    fields = [("t_s", "i8"), ("t_ns", "i8"), ("x", "u2"), ("y", "u2"), ("p", "u1")]
    with h5py.File(path, "a") as file:
        file["other/raw"] = np.zeros(50, fields)
    assert any("raw" in remark for remark in open_here(path).remarks)


def test_an_offset_of_many_values_is_refused(tmp_path):
    path = write_hdf5(tmp_path / "x.h5", "lists", random_batch(5000, width=640, height=480))
    with h5py.File(path, "a") as file:
        file["t_offset"] = np.arange(9)
    with pytest.raises(InputError, match=r"has t_offset = data of shape \(9,\), which is no time"):
        open_here(path)


@pytest.mark.parametrize("layout", WRITERS)
def test_info_tells_of_the_file_what_it_holds(tmp_path, layout):
    events = hdf5_events(layout)
    report = survey(write_hdf5(tmp_path / "recording.hdf5", layout, events))
    topic = next(topic for topic in report["topics"] if topic["kind"] == "events")
    figures = {name: topic[name] for name in ("events", "on", "first_event_us", "last_event_us")}
    on = int(events.p.sum())
    first, last = int(events.t[0]), int(events.t[-1])
    assert figures == {"events": 5000, "on": on, "first_event_us": first, "last_event_us": last}
    assert list(topic["resolutions"]) == ["{}x{}".format(*SIZES[layout])]
    assert report["format"].startswith("HDF5, ")
    findings = [finding for finding in report["findings"] if "there are no images" not in finding]
    others = {"mvsec": "davis/left/imu, davis/right/events", "m3ed": "ovc/left/data"}.get(layout)
    told = [f"'{tmp_path / 'recording.hdf5'}' has more that is not played ({others}): "] if others else []
    assert len(findings) == len(told) and all(map(str.startswith, findings, told))


@pytest.mark.parametrize(
    ("others", "named"),
    [
        (["images"], "images"),
        (["cam/frames", "depth"], "cam/frames, depth"),
        (["right/t", "right/x", "right/y", "right/p"], "right"),
        (["rgb/000000", "rgb/000001"], "rgb"),
        (["events/ms_to_idx", "events/x_offset", "calib/left/lens"], None),
        (["events_calib/x", "events_calib/y"], "events_calib"),
    ],
)
def test_what_else_could_be_played_is_told(tmp_path, others, named):
    path = write_hdf5(tmp_path / "x.h5", "dsec")
    with h5py.File(path, "a") as file:
        for name in others:
            is_picture = name in ("images", "cam/frames")
            file[name] = np.zeros((3, 24, 32), np.uint8 if is_picture else np.float32)
    with closing(open_here(path)) as recording:
        assert [remark.partition(" (")[2].partition("):")[0] for remark in recording.remarks] == (
            [named] if named else []
        )


def test_few_events_and_fields_that_are_not_used_are_told(tmp_path):
    events = hdf5_events("lists")
    columns = [getattr(events, name) for name in "txyp"] + [events.t % 2]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["CD/events"] = np.rec.fromarrays(columns, names=["t", "x", "y", "p", "cam"])
        file["EXT_TRIGGER/events"] = np.zeros(12, [("p", "i2"), ("t", "i8"), ("id", "i2")])
        file["ext_triggers/t"], file["ext_triggers/p"] = np.arange(3), np.arange(3)
        file["none/t"], file["info/fps"] = np.empty(0), np.arange(3)
    (remark,) = open_here(tmp_path / "x.h5").remarks
    assert "(EXT_TRIGGER/events, ext_triggers, CD/events.cam): give" in remark


def test_a_folder_plays_the_events_h5_in_it(tmp_path):
    write_hdf5(tmp_path / "events.h5", "lists")
    assert_equal(played(tmp_path)[0], hdf5_events("lists"))


def test_events_are_read_a_block_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "BLOCK", 700)
    events = hdf5_events("mvsec")
    path = write_hdf5(tmp_path / "recording.h5", "mvsec", events)
    file = Hdf5File(path)
    batches = list(Hdf5Events(file, find_layout(file)).batches())
    assert [len(batch) for batch in batches] == [700] * 7 + [100]
    assert_equal(EventBatch.concat(batches), events)


@pytest.mark.parametrize(
    ("stated", "largest", "size"),
    [
        ((180, 240), (239, 179), (240, 180)),
        ((240, 180), (239, 179), (240, 180)),  # the wrong way round
        ((179, 239), (239, 179), (240, 180)),  # of its largest coordinates
        ((300, 400), (10, 10), (400, 300)),
        (None, (239, 179), (240, 180)),
        (None, (700, 20), (768, 640)),
    ],
)
def test_the_sensor_of_e2vids_files_holds_their_events(tmp_path, stated, largest, size):
    events = hdf5_events("e2vid")
    x, y = (np.minimum(values, most) for values, most in zip((events.x, events.y), largest, strict=True))
    # More than strays.
    x[:10], y[:10] = largest
    path = write_hdf5(tmp_path / "recording.h5", "e2vid", EventBatch(events.t, x, y, events.p, *size))
    with h5py.File(path, "a") as file:
        del file.attrs["sensor_resolution"]
        if stated:
            file.attrs["sensor_resolution"] = stated
    heard, _ = played(path)
    assert (heard.width, heard.height) == size


def replaced(path, name, values, **options):
    with h5py.File(path, "a") as file:
        del file[name]
        file.create_dataset(name, data=values, **options)


def float_times(path):
    replaced(path, "t", np.full(5000, np.nan))


def unwritten(path):
    with h5py.File(path, "a") as file:
        for name in "txyp":
            del file[name]
            file.create_dataset(name, (1 << 40,), np.int64, chunks=(1 << 20,))


def linked(path):
    with h5py.File(path.with_name("other.h5"), "w") as file:
        file["t"] = hdf5_events("lists").t
    with h5py.File(path, "a") as file:
        del file["t"]
        file["t"] = h5py.ExternalLink("other.h5", "t")


def virtual(path):
    layout = h5py.VirtualLayout((5000,), np.int64)
    layout[:] = h5py.VirtualSource("other.h5", "t", (5000,))
    with h5py.File(path, "a") as file:
        del file["t"]
        file.create_virtual_dataset("t", layout)


def raw_outside(path):
    replaced_data = [("/etc/passwd", 0, 5000 * 8)]
    with h5py.File(path, "a") as file:
        del file["t"]
        file.create_dataset("t", (5000,), np.int64, external=replaced_data)


def objects(path):
    replaced(path, "t", ["one"] * 5000)


def unknown_filter(path):
    with h5py.File(path, "a") as file:
        del file["t"]
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((5000,))
        plan.set_filter(0x7777, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((5000,))
        h5py.h5d.create(file.id, b"t", h5py.h5t.NATIVE_INT64, space, plan)


def nested(path):
    with h5py.File(path, "a") as file:
        del file["t"]
        file["t/t"] = np.arange(5000)


@pytest.mark.parametrize(
    ("bend", "sentence"),
    [
        (
            lambda path: replaced(path, "t", np.arange(5000, 0, -1) * 1000),
            "go back by more than a second: sort its events by t",
        ),
        (float_times, "t from nan to nan, .* are no events"),
        (lambda path: replaced(path, "t", np.full(5000, -1)), "t from -1 to -1, "),
        (
            lambda path: replaced(path, "t", np.full(5000, 1 << 63, np.uint64)),
            "as times in ns .* before the year 2038",
        ),
        (lambda path: replaced(path, "t", np.empty(0, int)), "differ in length"),
        (unwritten, "lacks a part of 't', never written"),
        (linked, "a link in place of 't', and links are not followed"),
        (virtual, "keeps 't' in other files"),
        (raw_outside, "keeps 't' in other files"),
        (objects, "has 't' of a type that is not read: store numbers"),
        (unknown_filter, "not known, number 30583.*`h5repack -f GZIP=4"),
        (nested, "a group where the data set 't' should be"),
    ],
)
def test_what_is_no_recording_is_refused_in_a_sentence(tmp_path, bend, sentence):
    path = write_hdf5(tmp_path / "events.h5", "lists")
    bend(path)
    with pytest.raises(InputError, match=rf"events\.h5' .*{sentence}"):
        open_here(path)


def test_nothing_in_the_working_folder_is_run(tmp_path):
    """It may be that of a recording, with a json.py in it; Python 3.10 looks there in any case."""
    path = write_hdf5(tmp_path / "recording.h5", "prophesee")
    with h5py.File(path, "a") as file:
        file.attrs["geometry"] = "1280x720"
    for name in ("json", "multiprocessing", "h5py"):
        (tmp_path / f"{name}.py").write_text("open('run', 'w')")
    (tmp_path / "elsewhere").mkdir()
    script = tmp_path / "elsewhere" / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from crossspec_ros.recordings.recording import open_recording\n"
        "if __name__ == '__main__':\n"
        "    open_recording(Path('recording.h5')).close()\n"
    )
    python = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, env=os.environ | python, check=True)
    assert sys.version_info < (3, 11) or not (tmp_path / "run").exists()


def test_a_file_that_was_not_closed_is_told_apart_from_a_damaged_one(tmp_path):
    with h5py.File(tmp_path / "writing.h5", "w", libver="latest") as file:
        file["t"] = np.arange(10)
        file.swmr_mode = True
        shutil.copy(tmp_path / "writing.h5", tmp_path / "left.h5")
    with pytest.raises(
        InputError, match=r"left\.h5' is still being written, .*: .*`h5clear -s '.*left\.h5'`"
    ):
        open_here(tmp_path / "left.h5")


def test_a_file_of_something_else_is_told_apart(tmp_path):
    with h5py.File(tmp_path / "gt.hdf5", "w") as file:
        file["davis/left/depth_image_raw"] = np.zeros((2, 26, 34))
    listed = r"davis/left/depth_image_raw \(2, 26, 34\); known are DSEC .* MVSEC .*numpy\.savez"
    with pytest.raises(InputError, match=listed):
        open_here(tmp_path / "gt.hdf5")
    (tmp_path / "text.h5").write_text("hello")
    with pytest.raises(InputError, match=r"text\.h5' is truncated or damaged .* copy it again"):
        open_here(tmp_path / "text.h5")


def test_what_is_beside_a_damaged_chunk_plays_and_the_rest_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "_SMALLEST_LOSS", 1000)
    events = random_batch(64_000, t_start=3 << 24, duration_us=300_000, width=1280, height=720)
    path = write_hdf5(tmp_path / "recording.h5", "prophesee", events)
    damage_chunk(path, "CD/events", 20)
    report = survey(path)
    (topic,) = report["topics"]
    assert topic["events"] == 63_000
    told = "1000 of its 64000 events in damaged parts, the first of them at event 20000"
    assert any(told in finding for finding in report["findings"])


def test_a_short_recording_may_lie_in_one_large_chunk(tmp_path):
    path = write_hdf5(tmp_path / "recording.h5", "lists")
    times = hdf5_events("lists").t
    replaced(path, "t", times, chunks=(5_000_000,), maxshape=(None,), compression="gzip")
    with closing(open_here(path)) as recording:
        assert sum(message.kind == "events" for message in recording.messages())


def test_damaged_images_do_not_cost_the_events(tmp_path):
    path = write_hdf5(tmp_path / "recording.h5", "mvsec")
    damage_chunk(path, "davis/left/image_raw", 2)
    with closing(open_here(path)) as recording:
        kinds = [message.kind for message in recording.messages()]
    assert kinds.count("image") == 4 and kinds.count("events") == 30
    assert "1 of its 5 images in damaged parts" in recording.losses[0]


@pytest.mark.parametrize("packing", [None, "gzip", "lzf"])
def test_images_by_turns_are_read_in_the_order_of_their_times(tmp_path, packing):
    path, name = write_hdf5(tmp_path / "recording.h5", "mvsec"), "davis/left/image_raw"
    pixels, stamps = stored(path, name), stored(path, f"{name}_ts")
    order = [0, 2, 4, 1, 3]
    for part, values in ((name, pixels), (f"{name}_ts", stamps)):
        replaced(path, part, values[order], chunks=(2, *values.shape[1:]), compression=packing)
    _, images = played(path)
    assert pixels_of(images) == [one.tobytes() for one in pixels]


@pytest.mark.parametrize("layout", WRITERS)
def test_cut_and_bent_files_play_or_are_refused_in_a_sentence(boxed, tmp_path, layout):
    path = write_hdf5(tmp_path / "whole.h5", layout)
    data, rng = path.read_bytes(), np.random.default_rng(len(layout))
    for case in [2 + [*WRITERS].index(layout) % 4]:
        bent = bytearray(data)
        if case < 3:
            del bent[rng.integers(1, len(data)) :]
        else:
            # Half of them in the description of the data sets, which comes first.
            end = len(data) if case % 2 else 4000
            for place in rng.integers(0, end, 1 + 4 * (case % 3)):
                bent[place] ^= rng.integers(1, 256)
        path = tmp_path / f"{case}.h5"
        path.write_bytes(bent)
        try:
            report = info.survey(path)
        except InputError as error:
            refusal = str(error)
        else:
            refusal = None
        if refusal:
            assert f"'{path}' " in refusal and "\n" not in refusal
        else:
            heard = sum(topic.get("events", 0) for topic in report["topics"])
            told = " ".join(report["findings"])
            assert heard == 5000 or "damaged parts" in told or "could not be decoded" in told


def fields(events, *names):
    return np.rec.fromarrays([getattr(events, name[0]) for name in names], names=[*names])


TABLES = {
    "v2e": lambda file, e: file.create_dataset("events", data=np.stack([e.t, e.x, e.y, e.p], 1).astype("u4")),
    "seconds": lambda file, e: file.create_dataset(
        "dvs/events", data=np.stack([e.x, e.y, e.t / 1e6, e.p], 1)
    ),
    "fields": lambda file, e: file.create_dataset("events", data=fields(e, "t", "x", "y", "p")),
    "in a group": lambda file, e: file.create_dataset("events/data", data=fields(e, "x", "y", "ts", "pol")),
    "names": lambda file, e: [
        file.create_dataset(f"data/{name}", data=getattr(e, name[0]) * (1000 if name == "t_ns" else 1))
        for name in ("polarity", "t_ns", "x", "y")
    ],
}


@pytest.mark.parametrize("write_table", TABLES.values(), ids=TABLES)
def test_tables_are_read_whatever_their_order(tmp_path, write_table):
    events = random_batch(5000, t_start=0, duration_us=1_300_000, width=640, height=480)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        write_table(file, events)
        file["frame"], file["frame_ts"] = np.zeros((3, 480, 640), "u1"), np.arange(3, dtype="u1") * 100
    heard, images = played(tmp_path / "x.h5")
    assert_equal(heard, events)
    assert [image.stamp_ns for image in images] == [0, 100_000, 200_000]


@pytest.mark.parametrize(
    ("state", "size"),
    [
        (lambda file: file["events"].attrs.update(height=500, width=700), "700x500"),
        (lambda file: file["events"].update({"height": np.int64(500), "width": np.array([700])}), "700x500"),
        (lambda file: file.attrs.update(sensor_resolution=(500, 700)), "700x500"),
        (lambda file: file["events"].attrs.update(resolution=(700, 500)), "700x500"),
        (lambda file: file.attrs.update(geometry="700x500"), "700x500"),
        (lambda file: file.attrs.update(resolution="(700, 500)"), "700x500"),
        (lambda file: file.attrs.update(sensor_width=700, sensor_height=500), "700x500"),
        (
            lambda file: file.attrs.update(image_width=1440, image_height=1080, sensor_size=(700, 500)),
            "700x500",
        ),
        (lambda file: file["events"].attrs.update(Width=700, Height=500), "700x500"),
        (lambda file: file.update({"sensor_size": np.array([700, 500])}), "700x500"),
        # Not of this sensor, and not stated.
        (lambda file: file.attrs.update(size=(20, 30)), "640x480"),
        (lambda file: None, "640x480"),
    ],
)
def test_the_size_may_be_stated_beside_the_events(tmp_path, state, size):
    path = write_hdf5(tmp_path / "x.h5", "dsec")
    with h5py.File(path, "a") as file:
        state(file)
    assert survey(path)["topics"][0]["resolutions"].keys() == {size}


def test_lists_in_a_group_events_are_not_those_of_dsecs_camera_alone(tmp_path):
    path = write_hdf5(tmp_path / "x.h5", "dsec", hdf5_events("lists"))
    assert survey(path)["topics"][0]["resolutions"].keys() == {"346x260"}


@pytest.mark.parametrize(("layout", "size"), [("e2vid", "240x180"), ("lists", "346x260")])
def test_a_stray_pixel_makes_no_other_sensor(tmp_path, layout, size):
    events = hdf5_events(layout)
    events.x[1000], events.y[2000] = 1500, 1999
    report = survey(write_hdf5(tmp_path / "x.h5", layout, events))
    topic = next(topic for topic in report["topics"] if topic["kind"] == "events")
    assert topic["resolutions"].keys() == {size} and topic["events"] == 4998


@pytest.mark.parametrize("look", [100_000, 100])
def test_one_event_that_is_none_costs_no_other(tmp_path, monkeypatch, look):
    """Whether it is among those that are looked at or not."""
    monkeypatch.setattr(arrays, "_LOOK_EVENTS", look)
    events = hdf5_events("lists").at(np.arange(5000) * 200)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for part in "txyp":
            file[f"events/{part}"] = getattr(events, part).astype("i8")
        file["events/y"][3000], file["events/t"][3001], file["events/p"][3002] = 33_014, -9, 3
    report = survey(tmp_path / "x.h5")
    assert report["topics"][0]["events"] == 4997
    told = "events outside sensor 1, polarities that are none 1, times before 1970 or after 2038 1"
    assert any(f"({told})" in finding for finding in report["findings"])


@pytest.mark.parametrize(
    "names", ["left/t left/x left/y left/p", "ts xs ys ps", "cam/ts cam/x cam/y cam/pol"]
)
def test_two_cameras_in_a_file_are_refused(tmp_path, names):
    events = hdf5_events("lists")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, part in zip(names.split(), "txyp", strict=True):
            file[name] = file[f"right/{part}"] = getattr(events, part)
    with pytest.raises(InputError, match=r"could be the events \(.*, right/\): .* `h5copy"):
        open_here(tmp_path / "x.h5")


@pytest.mark.parametrize(
    ("scale", "state", "unit", "since_us"),
    [
        (1000, lambda file: file["events/t"].attrs.update(unit="ns"), "ns", 0),
        (1e-3, lambda file: file["events/t"].attrs.update(units=np.bytes_("milliseconds")), "ms", 0),
        (1e-3, lambda file: file.attrs.update(time_unit="ms since 1970"), "ms", 0),
        (1e-3, lambda file: file.update({"events/unit": "ms"}), "ms", 0),
        (1, lambda file: file.attrs.update(units="px"), "us", 0),
        (1, lambda file: file.attrs.update(t_offset=1_600_000_000_000_000), "us", 1_600_000_000_000_000),
        (1, lambda file: file.update({"events/t_offset": np.array([9000])}), "us", 9000),
        (1, lambda file: file["events"].attrs.update(t_offset=9000), "us", 9000),
    ],
)
def test_a_unit_and_an_offset_are_taken_wherever_they_are_stated(tmp_path, scale, state, unit, since_us):
    events = hdf5_events("lists").at(np.arange(5000) * 10)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name in "txyp":
            file[f"events/{name}"] = getattr(events, name) * (scale if name == "t" else 1)
        state(file)
    with closing(open_here(tmp_path / "x.h5")) as recording:
        assert f"times in {unit}," in recording.format
        assert (recording.start_ns, recording.end_ns) == (since_us * 1000, (since_us + 49_990) * 1000)


def test_a_table_says_what_its_columns_are(tmp_path):
    t, x, y, p = (getattr(hdf5_events("lists"), name).astype("i8") for name in "txyp")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["events"] = np.stack([t * 1000, y // 2, x // 4, p, t % 2], axis=1)
        file["events"].attrs["columns"] = ["t_ns", "y", "x", "p", "camera"]
    report = survey(tmp_path / "x.h5")
    assert "times in ns" in report["format"]
    heard, _ = played(tmp_path / "x.h5")
    assert (heard.x.max(), heard.y.max()) == (x.max() // 4, y.max() // 2)
    assert any("has more that is not played (events, camera)" in told for told in report["findings"])


def test_polarities_of_two_kinds_are_none(tmp_path):
    path = write_hdf5(tmp_path / "x.h5", "lists")
    replaced(path, "p", -hdf5_events("lists").p.astype("i1"))
    with pytest.raises(InputError, match=r"p from -1 to 0, .* polarities of 0 and 1 or -1 and 1"):
        open_here(path)
    p = hdf5_events("lists").p.astype("i1")
    p[7] = -1
    replaced(path, "p", p)
    assert any("(polarities that are none 1)" in told for told in survey(path)["findings"])


def test_what_values_leave_open_is_refused_or_said(tmp_path):
    t, x, y, p = (getattr(hdf5_events("lists"), name).astype("i8") for name in "txyp")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["events"] = np.stack([(t - t[0]) * 4000, y, x, p], axis=1)
    with pytest.raises(InputError, match=r"either may be x: .* --columns"):
        open_here(tmp_path / "x.h5")
    with pytest.raises(InputError, match=r"may be ns or us .* --time-unit ns"):
        open_here(tmp_path / "x.h5", ReadOptions(columns="t,y,x,p"))
    recording = open_here(tmp_path / "x.h5", ReadOptions(columns="t,y,x,p", time_unit="ns"))
    assert recording.format == "HDF5, table, times in ns, 346x260 assumed"
