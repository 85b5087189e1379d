"""Images beside a recording: how their times are found, and what is said where they do not fit."""

from __future__ import annotations

import json
import re
from contextlib import closing, nullcontext

import cv2
import numpy as np
import pytest
from bag_samples import bag_of, packet, picture
from recording_samples import arrays_of, hdf5_events, picture_stamps, saved, write_hdf5

from crossspec_ros.cli import main
from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import COMPRESSED_IMAGE, typestore
from crossspec_ros.recordings.asked import Asked
from crossspec_ros.recordings.image_folder import FolderImages
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey

EVENTS = hdf5_events("lists")
STAMPS_US = picture_stamps(EVENTS)
NAMES = [f"frame_{i}.png" for i in range(8, 13)]  # in which 10 follows 9


def pictures(folder, names=NAMES):
    folder.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(names):
        cv2.imwrite(str(folder / name), np.full((24, 32, 3), 40 * i % 256, np.uint8))
    return folder


@pytest.fixture
def recording(tmp_path):
    return saved(tmp_path, **arrays_of(EVENTS))


def images_of(recording, folder):
    with closing(open_here(recording, Asked(images=folder))) as opened:
        messages = list(opened.messages())
        assert opened.losses == []
    assert [message.stamp_ns for message in messages] == sorted(message.stamp_ns for message in messages)
    return [message for message in messages if message.kind == "image"]


def lines(values):
    return "".join(f"{value}\n" for value in values)


US, NS = lines(STAMPS_US), lines(stamp * 1000 for stamp in STAMPS_US)
SECONDS = lines(f"{stamp / 1e6:.6f}" for stamp in STAMPS_US)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("images/timestamps.txt", US),
        ("images/times.csv", "# of the left camera\n\n" + NS),
        ("images/stamps.csv", "time\n" + SECONDS),
        ("images.txt", SECONDS),
        ("timestamps.txt", NS),
        # As in the Event Camera Dataset.
        ("images.txt", lines(f"{s / 1e6:.6f} images/{n}" for s, n in zip(STAMPS_US, NAMES, strict=True))),
        (
            "images/index.csv",
            "name,time\n" + lines(f"{n},{s}" for n, s in zip(NAMES, STAMPS_US, strict=True)),
        ),
    ],
)
@pytest.mark.parametrize("given", ["images", "."])
def test_images_get_their_times(tmp_path, recording, file, text, given):
    folder = pictures(tmp_path / "images")
    (tmp_path / file).write_text(text)
    images = images_of(recording, tmp_path / given)
    assert [image.stamp_ns // 1000 for image in images] == STAMPS_US
    for name, message in zip(NAMES, images, strict=True):
        image = typestore().deserialize_cdr(message.data, COMPRESSED_IMAGE)
        assert image.format == "png" and image.data.tobytes() == (folder / name).read_bytes()


def test_names_can_be_times(tmp_path, recording):
    folder = pictures(tmp_path / "images", [f"{stamp / 1e6:.6f}.jpg" for stamp in STAMPS_US])
    images = images_of(recording, folder)
    assert [image.stamp_ns // 1000 for image in images] == STAMPS_US
    assert b"jpeg" in images[0].data


@pytest.mark.parametrize(
    ("times", "header", "unit"),
    [
        (range(0, 10_000, 500), None, "ms"),
        (range(0, 10_000, 500), "", "ms"),
        ([f"{i * 500 + 0.5:.3f}" for i in range(20)], "", "ms"),
        ([f"{i * 0.5:.2f}" for i in range(20)], None, "s"),
        # Numbers of frames, all of them, each fifth, or with one that is missing.
        (range(20), "", None),
        (range(0, 100, 5), None, None),
        ([i for i in range(20) if i != 7], None, None),
        (range(0, 8000, 8), "", None),
        (range(20), "# exposure-time: 100 us\ntimestamp s", "s"),
        # A small part of the time of the events.
        (range(0, 10**6, 50_000), "", None),
        (range(0, 10**6, 50_000), "# times are in us", "us"),
        (range(20), "timestamp s", "s"),
    ],
)
def test_the_unit_is_the_one_by_which_images_share_most_time_with_events(tmp_path, times, header, unit):
    """Their names are their times where there is no header; the events last ten seconds from zero."""
    are_named = header is None
    folder = pictures(
        tmp_path / "images", [f"{t if are_named else f'i{i}'}.png" for i, t in enumerate(times)]
    )
    if not are_named:
        (folder / "timestamps.txt").write_text(header + "\n" + lines(times))
    refused = pytest.raises(
        InputError,
        match=r"(ms or us or ns have little in common|may be numbers of frames) .* no numbers of frames",
    )
    with nullcontext() if unit else refused:
        assert f"with times in {unit} from" in FolderImages(folder, (0, 10 * 10**9)).description


def test_pictures_of_other_formats_are_told(tmp_path):
    folder = npz_folder(tmp_path / "drive")
    (folder / "images").mkdir()
    (folder / "images" / "0.bmp").write_bytes(b"BM")
    (remark,) = open_here(folder).remarks
    assert "images' are not played: turn those into PNG with `mogrify -format png *.bmp`" in remark
    with pytest.raises(InputError, match=r"has no .* file: turn those into PNG with"):
        open_here(folder, Asked(images=folder / "images"))


def test_other_events_and_videos_in_the_folder_are_told(tmp_path):
    for name in ("events.txt", "events_right.txt"):
        (tmp_path / name).write_text(lines(f"{0.01 * i:.2f} {i} {i // 2} {i % 2}" for i in range(200)))
    (tmp_path / "imu.txt").write_text("0 1 2 3\n")
    (tmp_path / "video.mp4").write_bytes(b"ftypisom")
    (remark,) = open_here(tmp_path).remarks
    assert "has more that is not played (events_right.txt, video.mp4): give each by itself" in remark


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("timestamps.txt", US + US, "has 10 times for 5 images: store one time for each"),
        ("timestamps.txt", "", "has 0 times for 5 images"),
        ("timestamps.txt", lines(range(5)), "from 0 to 4, which as ms or us or ns have nothing in common"),
        (
            "timestamps.txt",
            lines(f"{s} {s + 1}" for s in STAMPS_US),
            "has the line '.* store one time for each",
        ),
        ("timestamps.txt", US + "soon\n", "has the line 'soon'"),
        ("timestamps.txt", US + "nan\n", "has the line 'nan'"),
        ("timestamps.txt", US + "1e999999999\n", "has the line '1e999999999'"),
        ("timestamps.txt", "\udcff", "cannot be read"),
        (
            "images.txt",
            lines(f"{n} 1" for n in NAMES[1:]),
            "names 4 images, and there are 5, of which frame_8.png",
        ),
        ("images.txt", lines(f"{NAMES[0]} {s}" for s in STAMPS_US), "one name for each time"),
        (None, "", "has 5 images without times: put a file timestamps.txt there"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path, recording, file, text, sentence):
    folder = pictures(tmp_path / "images")
    if file:
        (folder / file).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=rf"'{folder}.*{sentence}"):
        open_here(recording, Asked(images=folder))


def test_folders_without_images_or_with_counted_ones_are_refused(tmp_path, recording):
    with pytest.raises(InputError, match="nowhere' does not exist"):
        open_here(recording, Asked(images=tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"has no \.png, \.jpg or \.jpeg file"):
        open_here(recording, Asked(images=tmp_path / "empty"))
    counted = pictures(tmp_path / "counted", [f"{i:06}.png" for i in range(5)])
    with pytest.raises(InputError, match="has 5 images without times"):
        open_here(recording, Asked(images=counted))
    for name in ("left.txt", "right.txt"):
        (counted / name).write_text(US)
    with pytest.raises(InputError, match=r"several files of times \(left\.txt, right\.txt\): name the right"):
        open_here(recording, Asked(images=counted))


def test_they_take_the_place_of_a_recordings_own(tmp_path, capsys):
    folder = pictures(tmp_path / "images")
    (folder / "timestamps.txt").write_text(US)
    path = write_hdf5(tmp_path / "m3ed.h5", "m3ed", hdf5_events("m3ed"))
    assert [image.type for image in images_of(path, folder)] == [COMPRESSED_IMAGE] * 5
    start_ns = STAMPS_US[0] * 1000
    bag = bag_of(
        tmp_path / "bag",
        ("/events", packet(start_ns)),
        ("/camera", picture(start_ns)),
        ("/events", packet(STAMPS_US[-1] * 1000)),
    )
    assert len(images_of(bag, folder)) == 5
    for source, replaced in ((path, "/camera/image_raw"), (bag, "/camera")):
        assert main(["info", str(source), "--images", str(folder), "--json", str(tmp_path / "i.json")]) == 0
        report = json.loads((tmp_path / "i.json").read_text())
        described = f"with 5 images of '{folder}' with times in us from '{folder}/timestamps.txt'"
        assert report["format"].endswith(f", {described} in place of {replaced}")
        assert [t["messages"] for t in report["topics"] if t["kind"] == "images"][-1] == 5
    assert described in "".join(capsys.readouterr().out.splitlines())


def test_an_image_that_cannot_be_read_is_told_and_the_others_play(tmp_path, recording):
    folder = pictures(tmp_path / "images")
    (folder / "timestamps.txt").write_text(US)
    with closing(open_here(recording, Asked(images=folder))) as opened:
        (folder / NAMES[2]).unlink()
        kinds = [message.kind for message in opened.messages()]
        assert kinds.count("image") == 4 and kinds.count("events") == 31
        assert opened.losses[0].startswith("1 of 5 images cannot be read ('") and NAMES[2] in opened.losses[0]


def test_a_link_to_what_is_no_picture_is_told_and_not_played(tmp_path, recording):
    folder = pictures(tmp_path / "images")
    (folder / "timestamps.txt").write_text(US)
    secret = tmp_path / "secret.txt"
    secret.write_text("TOP SECRET")
    (folder / NAMES[2]).unlink()
    (folder / NAMES[2]).symlink_to(secret)
    with closing(open_here(recording, Asked(images=folder))) as opened:
        played = list(opened.messages())
        assert not any(b"SECRET" in message.data for message in played)
        assert sum(message.kind == "image" for message in played) == 4
        assert f"{NAMES[2]}': it is neither PNG nor JPEG" in opened.losses[0]


def test_convert_takes_them_into_the_bag(tmp_path, recording):
    folder = pictures(tmp_path / "images")
    (folder / "timestamps.txt").write_text(SECONDS)
    assert main(["convert", str(recording), str(tmp_path / "bag"), "--images", str(folder)]) == 0
    with closing(open_here(tmp_path / "bag")) as bag:
        assert list(bag.messages()) == list(open_here(recording, Asked(images=folder)).messages())


@pytest.mark.parametrize("events_file", ["events.txt", "events.h5"])
def test_a_folder_of_events_plays_with_the_images_in_it(tmp_path, events_file):
    """As the Event Camera Dataset's sequences, and HDF5 files beside pictures."""
    folder = tmp_path / "shapes"
    pictures(folder / "images")
    rows = zip(EVENTS.t / 1e6, EVENTS.x, EVENTS.y, EVENTS.p, strict=True)
    if events_file == "events.txt":
        (folder / events_file).write_text(lines(f"{t:.6f} {x} {y} {p}" for t, x, y, p in rows))
    else:
        write_hdf5(folder / events_file, "lists", EVENTS)
    named = (f"{s / 1e6:.6f} images/{n}" for s, n in zip(STAMPS_US, NAMES, strict=True))
    (folder / "images.txt").write_text(lines(named))
    images = images_of(folder, None)
    assert [image.stamp_ns // 1000 for image in images] == STAMPS_US
    report = survey(folder)
    assert next(topic["events"] for topic in report["topics"] if topic["kind"] == "events") == len(EVENTS)
    assert "5 images of '" in report["format"]


def npz_folder(folder):
    folder.mkdir()
    for number, part in enumerate((EVENTS[: len(EVENTS) // 2], EVENTS[len(EVENTS) // 2 :])):
        np.savez(folder / f"{number:06}.npz", t=part.t, x=part.x, y=part.y, p=part.p)
    return folder


@pytest.mark.parametrize(
    ("inner", "times", "told"),
    [
        ("images", "images/timestamps.txt", ""),
        (".", "timestamps.txt", ""),
        ("images", None, "are not played: '.*images' has 5 images without times: put a file timestamps.txt"),
        ("left/rectified", "left/timestamps.txt", "in '.*left/rectified', which are not played: --images"),
    ],
)
def test_images_beside_a_folder_of_npz_play_or_are_told(tmp_path, inner, times, told):
    folder = npz_folder(tmp_path / "drive")
    pictures(folder / inner, [f"{i:06}.png" for i in range(5)])
    if times:
        (folder / times).write_text(lines(map(str, STAMPS_US)))
    recording = open_here(folder)
    assert [bool(re.search(told, remark)) for remark in recording.remarks] == [True] * bool(told)
    images = [message for message in recording.messages() if message.kind == "image"]
    assert [image.stamp_ns // 1000 for image in images] == ([] if told else STAMPS_US)


def test_a_second_camera_in_the_folder_is_told_where_the_first_has_images(tmp_path):
    (tmp_path / "events.txt").write_text(lines(f"{t * 1e-6:.6f} 1 1 1" for t in STAMPS_US))
    (tmp_path / "events_right.txt").write_text("0.1 1 1 1\n")
    for name in ("images", "images_right"):
        pictures(tmp_path / name, [f"{i:06}.png" for i in range(5)])
        (tmp_path / name / "timestamps.txt").write_text(lines(map(str, STAMPS_US)))
    recording = open_here(tmp_path)
    assert recording.image_topic is not None
    folders, files = recording.remarks
    assert "images_right', which are not played" in folders and "(events_right.txt)" in files


@pytest.mark.parametrize("names", [("events_aligned",), ("a", "b")])
def test_a_folder_of_recordings_names_them(tmp_path, names):
    for name in names:
        npz_folder(tmp_path / name)
    pictures(tmp_path / "images_corrected")
    there = " or ".join(f"'.*/{name}'" for name in names)
    with pytest.raises(
        InputError, match=f"give what is in it, {there}, with --images '.*/images_corrected'$"
    ):
        open_here(tmp_path)


@pytest.mark.parametrize(("name", "remedy"), [("a.mp4", "ffmpeg -i VIDEO"), ("a.gguf", "it is a model")])
def test_a_folder_of_other_files_says_what_to_do(tmp_path, name, remedy):
    (tmp_path / name).write_bytes(b"x")
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(InputError, match=f"{name}' is of a format that is not read: .*{remedy}"):
            open_here(path)


def test_losses_of_images_are_told_of_a_bag_too(tmp_path):
    bag = bag_of(tmp_path / "bag", *[("/event_camera/events", packet(i * 10**8)) for i in range(1, 10)])
    folder = pictures(tmp_path / "pictures", [f"{0.1 * i:.1f}.png" for i in range(1, 6)])
    with closing(open_here(bag, Asked(images=folder))) as opened:
        (folder / "0.3.png").unlink()
        assert sum(message.kind == "image" for message in opened.messages()) == 4
        assert "1 of 5 images cannot be read" in "".join(opened.losses)


def test_a_video_in_place_of_a_folder_or_a_recording_is_named_with_what_to_do(recording, tmp_path):
    video = tmp_path / "rgb.mp4"
    video.write_bytes(bytes(9))
    for given in ({"path": recording, "asked": Asked(images=video)}, {"path": video}):
        with pytest.raises(InputError, match=r"rgb\.mp4' is .*`ffmpeg -i .*timestamps\.txt"):
            open_here(**given)
