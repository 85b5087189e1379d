"""Images in a folder: where their times are, their unit, and what does not fit."""

from __future__ import annotations

from contextlib import closing

import cv2
import numpy as np
import pytest
from bag_samples import packet, picture
from crossspec_lab.samples.bags import bag_of
from crossspec_lab.samples.event_files import columns_of, hdf5_events, picture_stamps, write_hdf5
from recording_samples import saved
from refusals import refused

from crossspec_ros.cli import main
from crossspec_ros.events.cdr import COMPRESSED_IMAGE, typestore
from crossspec_ros.recordings.image_folder import FolderImages
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey

EVENTS = hdf5_events("e2vid")
STAMPS_US = picture_stamps(EVENTS)
NAMES = [f"frame_{i}.png" for i in range(8, 13)]  # in which 10 follows 9


def pictures(folder, names=NAMES):
    folder.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names):
        cv2.imwrite(str(folder / name), np.full((24, 32, 3), 40 * i % 256, np.uint8))
    return folder


@pytest.fixture
def recording(tmp_path):
    return saved(tmp_path, **columns_of(EVENTS))


def images_of(recording, folder):
    with closing(open_here(recording, ReadOptions(images=folder))) as opened:
        messages = list(opened.messages())
        assert opened.losses == []
    assert [message.stamp_ns for message in messages] == sorted(message.stamp_ns for message in messages)
    return [message for message in messages if message.kind == "image"]


def lines(values):
    return "".join(f"{value}\n" for value in values)


US = "# times are in us\n" + lines(STAMPS_US)
SECONDS = [f"{stamp / 1e6:.6f}" for stamp in STAMPS_US]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("images/timestamps.txt", US),
        (
            "images/timestamps.txt",
            "# Times are in ns, of the left camera\n\n" + lines(s * 1000 for s in STAMPS_US),
        ),
        ("timestamps.txt", lines(SECONDS)),
        # As in the Event Camera Dataset.
        ("images.txt", lines(f"{s} images/{n}" for s, n in zip(SECONDS, NAMES, strict=True))),
        ("images.txt", lines(f"{n},{s}" for n, s in reversed([*zip(NAMES, SECONDS, strict=True)]))),
    ],
)
@pytest.mark.parametrize("option", ["images", "."])
def test_images_get_their_times(tmp_path, recording, file, text, option):
    folder = pictures(tmp_path / "images")
    (tmp_path / file).write_text(text)
    images = images_of(recording, tmp_path / option)
    assert [image.stamp_ns // 1000 for image in images] == STAMPS_US
    for name, message in zip(NAMES, images, strict=True):
        image = typestore().deserialize_cdr(message.data, COMPRESSED_IMAGE)
        assert image.format == "png" and image.data.tobytes() == (folder / name).read_bytes()


def test_names_can_be_times(tmp_path, recording):
    folder = pictures(tmp_path / "images", [f"{time}.jpg" for time in SECONDS])
    images = images_of(recording, folder)
    assert [image.stamp_ns // 1000 for image in images] == STAMPS_US
    assert b"jpeg" in images[0].data


def test_times_of_dsec_are_in_us(tmp_path):
    folder = pictures(tmp_path / "images/left/rectified")
    (tmp_path / "images/timestamps.txt").write_text(lines(STAMPS_US))
    assert next(FolderImages(folder).messages()).stamp_ns == STAMPS_US[0] * 1000


@pytest.mark.parametrize("times", [range(5), STAMPS_US, [stamp * 1000 for stamp in STAMPS_US]])
def test_integer_times_need_a_unit(tmp_path, times):
    """Frame numbers, us and ns look alike."""
    folder = pictures(tmp_path / "images")
    (folder / "timestamps.txt").write_text(lines(times))
    with refused("images-no-time-unit", times=f"{times[0]} to {times[-1]}"):
        FolderImages(folder)
    with refused("image-names-no-time-unit", times=f"{times[0]:06} to {times[-1]:06}"):
        FolderImages(pictures(tmp_path / "named", [f"{time:06}.png" for time in times]))


@pytest.mark.parametrize(
    ("file", "text", "code"),
    [
        ("timestamps.txt", US + US, "images-too-many-times"),
        ("timestamps.txt", lines(["0.5", "0.6 a.png"] * 2 + ["1.0"]), "images-some-named"),
        ("timestamps.txt", lines([*SECONDS[:4], "soon"]), "images-time-text"),
        ("timestamps.txt", lines([*SECONDS[:4], "nan"]), "images-time-nan"),
        ("timestamps.txt", lines([*SECONDS[:4], "1e999999999"]), "images-time-huge"),
        ("timestamps.txt", lines([*SECONDS[:4], "3000000000.5"]), "images-after-2038"),
        ("images.txt", lines(f"{NAMES[0]} {s}" for s in SECONDS), "images-others-named"),
        (None, "", "images-no-times"),
    ],
)
def test_times_that_do_not_fit_are_refused(tmp_path, recording, file, text, code):
    folder = pictures(tmp_path / "images")
    if file:
        (folder / file if file == "timestamps.txt" else tmp_path / file).write_text(text)
    with refused(code):
        open_here(recording, ReadOptions(images=folder))


def test_other_folders_are_refused(tmp_path, recording):
    (tmp_path / "empty").mkdir()
    (tmp_path / "rgb.mp4").write_bytes(bytes(9))
    for name, code in (("nowhere", "images-missing"), ("empty", "images-none"), ("rgb.mp4", "images-video")):
        with refused(code):
            open_here(recording, ReadOptions(images=tmp_path / name))


def test_images_replace_those_of_a_recording(tmp_path):
    folder = pictures(tmp_path / "images")
    (folder / "timestamps.txt").write_text(US)
    bag = bag_of(
        tmp_path / "bag",
        ("/events", packet(STAMPS_US[0] * 1000)),
        ("/camera", picture(STAMPS_US[0] * 1000)),
        ("/events", packet(STAMPS_US[-1] * 1000)),
    )
    path = write_hdf5(tmp_path / "m3ed.h5", "m3ed", hdf5_events("m3ed"))
    for source, replaced in ((path, "/camera/image_raw"), (bag, "/camera")):
        assert [image.type for image in images_of(source, folder)] == [COMPRESSED_IMAGE] * 5
        report = survey(source, options=ReadOptions(images=folder))
        assert report["format"].endswith(f" in place of {replaced}")
        assert [t["messages"] for t in report["topics"] if t["kind"] == "images"][-1] == 5


def test_unreadable_images_are_a_loss(tmp_path, recording):
    folder = pictures(tmp_path / "images")
    (folder / "timestamps.txt").write_text(US)
    secret = tmp_path / "secret.txt"
    secret.write_text("TOP SECRET")
    with closing(open_here(recording, ReadOptions(images=folder))) as opened:
        (folder / NAMES[3]).unlink()
        (folder / NAMES[4]).unlink()
        (folder / NAMES[4]).symlink_to(secret)
        played = list(opened.messages())
        assert not any(b"SECRET" in message.data for message in played)
        assert sum(message.kind == "image" for message in played) == 3
        assert "2 of 5 images" in opened.losses[0] and NAMES[3] in opened.losses[0]


def test_pointers_in_place_of_images_are_named(tmp_path, recording):
    folder = pictures(tmp_path / "images")
    (folder / "timestamps.txt").write_text(US)
    for name in NAMES:
        (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with closing(open_here(recording, ReadOptions(images=folder))) as opened:
        assert not any(message.kind == "image" for message in opened.messages())
        assert opened.losses == [
            f"5 of 5 images cannot be read: '{folder / NAMES[0]}' is a Git LFS pointer: run `git lfs pull`"
        ]


def test_convert_takes_images_into_the_bag(tmp_path, recording):
    folder = pictures(tmp_path / "images")
    (folder / "timestamps.txt").write_text(US)
    assert main(["convert", str(recording), str(tmp_path / "bag"), "--images", str(folder)]) == 0
    with closing(open_here(tmp_path / "bag")) as bag:
        assert list(bag.messages()) == list(open_here(recording, ReadOptions(images=folder)).messages())


def write_events(folder, name):
    """Write the events into a folder as this file, or as numbered .npz."""
    if name == "events.h5":
        write_hdf5(folder / name, "prophesee", EVENTS)
    elif name == "events.txt":
        rows = zip(EVENTS.t / 1e6, EVENTS.x, EVENTS.y, EVENTS.p, strict=True)
        (folder / name).write_text(lines(f"{t:.6f} {x} {y} {p}" for t, x, y, p in rows))
    else:
        for number, part in enumerate((EVENTS[:2500], EVENTS[2500:])):
            np.savez(folder / f"{number:06}.npz", **columns_of(part))


@pytest.mark.parametrize("name", ["events.txt", "npz", "events.h5"])
@pytest.mark.parametrize("inner", ["images", "."])
def test_events_play_with_images_of_folder(tmp_path, name, inner):
    """Sequences as in the Event Camera Dataset, and .npz or HDF5 files in a folder with images."""
    folder = tmp_path / "shapes"
    pictures(folder / inner)
    write_events(folder, name)
    times = folder / ("images.txt" if inner == "images" else "timestamps.txt")
    times.write_text(lines(f"{s} images/{n}" for s, n in zip(SECONDS, NAMES, strict=True)))
    with closing(open_here(folder)) as recording:
        images = [message for message in recording.messages() if message.kind == "image"]
    assert [image.stamp_ns // 1000 for image in images] == STAMPS_US
    report = survey(folder)
    assert next(topic["events"] for topic in report["topics"] if topic["kind"] == "events") == len(EVENTS)


def test_images_without_times_are_reported(tmp_path):
    write_events(tmp_path, "npz")
    pictures(tmp_path / "images")
    recording = open_here(tmp_path)
    assert recording.image_topic is None and "do not play" in recording.remarks[0]
