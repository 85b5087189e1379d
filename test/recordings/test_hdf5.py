"""HDF5 recordings in the documented layouts, and files that are damaged or something else."""

from __future__ import annotations

from contextlib import closing

import h5py
import numpy as np
import pytest
from crossspec_lab.samples.event_files import (
    SIZES,
    WRITERS,
    bgr,
    gray,
    hdf5_events,
    picture_stamps,
    random_batch,
    write_hdf5,
)
from event_samples import assert_equal
from recording_samples import played
from refusals import refused

from crossspec_ros.events.cdr import IMAGE, typestore
from crossspec_ros.recordings import hdf5
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey


def of_v2e(i):
    return np.full((260, 346), 40 * i, np.uint8)


IMAGES = {"mvsec": gray, "m3ed": bgr, "evqa": gray, "e2vid": bgr, "v2e": of_v2e}


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
    with refused("h5-no-time-unit"):
        open_here(path)
    with closing(open_here(path, ReadOptions(time_unit="us"))) as recording:
        assert "times in us," in recording.format


@pytest.mark.parametrize(
    ("layout", "state", "size"),
    [
        ("dsec", lambda file: file.attrs.update(height=500, width=700), "700x500"),
        ("dsec", lambda file: file["events"].update({"height": 500, "width": np.array([700])}), "700x500"),
        ("e2vid", lambda file: file.attrs.update(sensor_resolution=(500, 700)), "700x500"),
        ("prophesee", lambda file: file.attrs.update(geometry="1300x800"), "1300x800"),
        *((layout, lambda file: None, "{}x{}".format(*SIZES[layout])) for layout in WRITERS),
    ],
)
def test_size_is_stated_or_assumed(tmp_path, layout, state, size):
    path = write_hdf5(tmp_path / "x.h5", layout)
    with h5py.File(path, "a") as file:
        state(file)
    topics = survey(path)["topics"]
    assert next(topic["resolutions"].keys() for topic in topics if topic["kind"] == "events") == {size}


def external(path):
    with h5py.File(path.with_name("other.h5"), "w") as file:
        file["t"] = np.arange(5000)
    with h5py.File(path, "a") as file:
        del file["events/t"]
        file["events/t"] = h5py.ExternalLink("other.h5", "t")


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
    ("bend", "code"),
    [
        (external, "h5-link"),
        (virtual, "h5-virtual"),
        (raw_outside, "h5-raw-outside"),
        (unknown_filter, "h5-unknown-filter"),
        (lambda path: replaced(path, "events/t", np.empty(0, int)), "h5-lengths-differ"),
        (lambda path: replaced(path, "events/t", np.zeros((5000, 2), int)), "h5-t-no-list"),
    ],
)
def test_other_files_are_refused(tmp_path, bend, code):
    path = write_hdf5(tmp_path / "events.h5", "dsec")
    bend(path)
    with refused(code):
        open_here(path)


def test_files_of_something_else_are_refused(tmp_path):
    with h5py.File(tmp_path / "gt.h5", "w") as file:
        file["davis/left/depth_image_raw"] = np.zeros((2, 26, 34))
    (tmp_path / "text.h5").write_text("hello")
    data = write_hdf5(tmp_path / "valid.h5", "dsec").read_bytes()
    (tmp_path / "half.h5").write_bytes(data[: len(data) // 2])
    for name, code in (("gt.h5", "h5-no-layout"), ("text.h5", "h5-text"), ("half.h5", "h5-truncated")):
        with refused(code, library_text=name != "gt.h5"):
            open_here(tmp_path / name)


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
    assert "1 of 5 images" in recording.losses[0]


@pytest.mark.parametrize("stamps", [np.arange(4.0), np.full(5, -1.0), np.full(5, np.nan)])
def test_images_without_times_are_refused(tmp_path, stamps):
    path = write_hdf5(tmp_path / "recording.h5", "mvsec")
    replaced(path, "davis/left/image_raw_ts", stamps)
    with refused("h5-images-without-times"):
        open_here(path)


@pytest.mark.parametrize("packing", [None, "gzip"])
def test_images_play_in_order_of_time(tmp_path, packing):
    path, name = write_hdf5(tmp_path / "recording.h5", "mvsec"), "davis/left/image_raw"
    with h5py.File(path) as file:
        pixels, stamps = file[name][:], file[f"{name}_ts"][:]
    order = [0, 2, 4, 1, 3]
    for part, values in ((name, pixels), (f"{name}_ts", stamps)):
        replaced(path, part, values[order], chunks=(2, *values.shape[1:]), compression=packing)
    _, images = played(path)
    messages = [typestore().deserialize_cdr(message.data, IMAGE) for message in images]
    assert [message.data.tobytes() for message in messages] == [one.tobytes() for one in pixels]
