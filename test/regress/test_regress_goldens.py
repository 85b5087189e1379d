"""An unchanged program passes, each planted regression is named, and other goldens are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from full_disk import full_disk
from planted import SECOND, START_NS, WINDOWS, FakeDecoder, captured, write_drive
from refusals import refused
from stand_ins import write_models

from crossspec_ros.events import camera_images
from crossspec_ros.regress.golden import Setup, compare, golden_folder, read_golden, write_golden
from crossspec_ros.windows import pipeline
from crossspec_ros.windows.synchronizer import EventImageReady, FrameReady, Synchronizer
from crossspec_ros.windows.window import WindowClosed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("regress")


@pytest.fixture(scope="module")
def setup(folder):
    return Setup(write_drive(folder / "drive"), flags={"models": str(write_models(folder / "models"))})


@pytest.fixture(scope="module")
def golden(setup, folder):
    """Return goldens that were written and read again, as in a later run."""
    path = folder / "drive.golden" / "windows.json"
    write_golden(path, setup, captured(setup))
    return read_golden(path, setup)


def differences(golden, actual):
    """Return the lines of all differences."""
    return [str(difference) for check in compare(golden, actual) for difference in check.differences]


def plant(monkeypatch, change):
    """Replace each update of the synchronizer by `change(update)`; None drops it."""

    class Changed(Synchronizer):
        def add_events(self, *args):
            yield from filter(None, map(change, super().add_events(*args)))

        def add_frame(self, *args):
            yield from filter(None, map(change, super().add_frame(*args)))

    monkeypatch.setattr(pipeline, "Synchronizer", Changed)


def test_full_disk_leaves_the_old_golden(setup, golden, tmp_path):
    path = tmp_path / "windows.json"
    write_golden(path, setup, golden)
    before = path.read_bytes()
    with refused("golden-disk-full"), full_disk(room=100):
        write_golden(path, setup, golden)
    assert path.read_bytes() == before


def test_unchanged_program_passes(setup, golden):
    assert len(golden.windows) == WINDOWS
    assert [len(record.frames) for record in golden.windows] == [8] * WINDOWS
    assert [len(record.event_images) for record in golden.windows] == [5] * WINDOWS
    assert differences(golden, captured(setup)) == []


def test_changed_word_is_named(setup, golden):
    assert differences(golden, captured(setup, FakeDecoder("a blue van in window {}")))[1] == (
        "window 1-2 s: caption: a [-red-] {+blue+} van in window 51"
    )


def test_stamp_shifted_by_a_millisecond_is_named(setup, golden, monkeypatch):
    second = START_NS + SECOND + SECOND // 20 * 3

    def shift(update):
        shifted = isinstance(update, FrameReady) and update.stamp_ns == second
        return replace(update, stamp_ns=update.stamp_ns + 1_000_000) if shifted else update

    plant(monkeypatch, shift)
    assert differences(golden, captured(setup)) == [
        "window 1-2 s: stamp of frame 2: expected 51.150000000 s, is 51.151000000 s (+1 ms)"
    ]


def test_dropped_and_additional_windows_are_named(setup, golden, monkeypatch):
    end_ns = START_NS + 2 * SECOND

    def drop(update):
        return None if isinstance(update, WindowClosed) and update.end_ns == end_ns else update

    plant(monkeypatch, drop)
    fewer = captured(setup)
    outline = f"{golden.windows[1].events} events, 'a red van in window 51'"
    assert differences(golden, fewer) == [
        f"window 1-2 s: dropped window: expected {outline}, is no such window"
    ]
    assert differences(fewer, golden) == [
        f"window 1-2 s: additional window: expected no such window, is {outline}"
    ]


def test_changed_pixels_of_an_event_image_are_named(setup, golden, monkeypatch):
    def repaint(update):
        if isinstance(update, EventImageReady) and update.stamp_ns == START_NS + SECOND:
            update.image[:4, :4] = 0
        return update

    plant(monkeypatch, repaint)
    (line,) = differences(golden, captured(setup))
    assert line.startswith("window 0-1 s: pixels of event image 5: expected SHA-256 ")


def test_swapped_colours_are_named_but_noise_is_not(setup, golden, monkeypatch):
    def with_pixels(change):
        monkeypatch.setattr(
            pipeline, "camera_array", lambda message: change(camera_images.camera_array(message))
        )
        return captured(setup)

    swapped = differences(golden, with_pixels(lambda pixels: pixels[..., ::-1].copy()))
    assert len(swapped) == WINDOWS * 8
    assert swapped[0].startswith(
        "window 0-1 s: pixels of frame 1: expected colours within 4 levels of 256, is"
    )
    assert differences(golden, with_pixels(lambda pixels: pixels ^ 1)) == []


def test_lost_images_and_counts_are_named(folder, setup, golden, capsys):
    broken = replace(setup, path=write_drive(folder / "broken", broken_frame=0))
    lines = differences(golden, captured(broken))
    reason = "crossspec: 1 messages could not be used: an image has the encoding 'smell8', which is not read"
    assert reason in capsys.readouterr().err
    # The next frame fills the slot.
    assert "window 0-1 s: stamp of frame 1: expected 50.000000000 s, is 50.050000000 s (+50 ms)" in lines
    assert "recording: count of unusable messages: expected 0, is 1" in lines


def test_changed_numbers_are_named(golden):
    record = golden.windows[0]
    changed = replace(record, events=record.events - 1, lost_packets=2, degraded=["rgb_dark"])
    changed = replace(changed, frames=record.frames[:-1], frame_stamps_ns=record.frame_stamps_ns[:-1])
    actual = replace(golden, windows=[changed, *golden.windows[1:]])
    assert differences(golden, actual) == [
        "window 0-1 s: degraded: expected nothing, is rgb_dark",
        f"window 0-1 s: events: expected {record.events}, is {record.events - 1}",
        "window 0-1 s: lost packets: expected 0, is 2",
        "window 0-1 s: number of frames: expected 8, is 7",
    ]


def test_dark_frames_are_named(setup, golden, monkeypatch):
    monkeypatch.setattr(pipeline, "camera_array", lambda message: 0 * camera_images.camera_array(message))
    lines = differences(golden, captured(setup))
    assert lines[0] == "window 0-1 s: source: expected target, is event_draft"
    assert lines[1].startswith("window 0-1 s: degraded: expected nothing, is ") and "rgb_dark" in lines[1]


def test_goldens_of_another_replay_are_refused(folder, setup, golden):
    path = folder / "drive.golden" / "windows.json"
    with refused("golden-of-another-recording", library_text=True):
        read_golden(path, replace(setup, path=write_drive(folder / "other", seed=8)))
    larger = write_models(folder / "larger", frame_size=48)
    with refused("golden-of-other-models", library_text=True):
        read_golden(path, replace(setup, flags={"models": str(larger)}))
    with refused("golden-of-another-question"):
        read_golden(path, replace(setup, flags=setup.flags | {"question": "Who is there?"}))


def test_copied_bag_keeps_its_goldens(folder, setup, golden):
    copy = write_drive(folder / "elsewhere" / "copy")
    assert read_golden(folder / "drive.golden" / "windows.json", replace(setup, path=copy)) == golden


def test_missing_or_damaged_goldens_are_refused(tmp_path, setup, golden, folder):
    with refused("golden-missing"):
        read_golden(tmp_path / "windows.json", setup)
    content = json.loads((folder / "drive.golden" / "windows.json").read_text())
    changes = {"windows": 7}, {"windows": [{}]}, {"windows": [{**content["windows"][0], "more": 1}]}
    path = tmp_path / "damaged.json"
    for text in ("", "[]", *(json.dumps(content | change) for change in changes)):
        path.write_text(text)
        with refused("golden-damaged"):
            read_golden(path, setup)


def test_unwritable_goldens_are_refused(tmp_path, setup, golden):
    (tmp_path / "file").touch()
    with refused("golden-not-writable"):
        write_golden(tmp_path / "file" / "windows.json", setup, golden)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("temperature", 0.5, "golden-with-temperature"),
        ("generation", "published", "golden-with-sampling"),
        ("deadline_s", 0.5, "golden-with-deadline"),
    ],
)
def test_unrepeatable_captions_have_no_goldens(tmp_path, setup, name, value, code):
    config = tmp_path / "config.yaml"
    config.write_text(f"captioner: {{ros__parameters: {{{name}: {value}}}}}")
    with refused(code):
        replace(setup, config=config).check_repeatable()


def test_goldens_are_next_to_their_bag(tmp_path):
    assert golden_folder(tmp_path / "bag") == tmp_path / "bag.golden"
    assert golden_folder(tmp_path / "bag.mcap") == tmp_path / "bag.mcap.golden"


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("questions", ["Is it dark? [yes, no]"], "golden-with-questions"),
        ("schema", '{"type":"boolean"}', "golden-with-schema"),
    ],
)
def test_goldens_store_questions_and_schema(setup, tmp_path, name, value, code):
    changed = Setup(setup.path, flags={**setup.flags, name: value})
    path, found = tmp_path / "windows.json", captured(changed)
    write_golden(path, changed, found)
    assert changed.shaping[name] == value and name not in setup.shaping
    if name == "schema":
        assert all("no_json" in window.degraded for window in found.windows)
    else:
        other = replace(found.windows[0], answers={"Is it dark?": "no"})
        assert differences(
            read_golden(path, changed), replace(found, windows=[other, *found.windows[1:]])
        ) == ["window 0-1 s: answer to 'Is it dark?': expected yes, is no"]
    with refused(code):
        read_golden(path, setup)


def test_goldens_store_unchanged_windows(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("captioner:\n  ros__parameters:\n    when: changed\n")
    bag = write_drive(tmp_path / "drive", silent=(0, WINDOWS * 100), still=True)
    flags = {"models": str(write_models(tmp_path / "models"))}
    setup = Setup(bag, config, flags)
    assert setup.shaping["when"] == "changed" and "when" not in Setup(bag, flags=flags).shaping
    golden = captured(setup, FakeDecoder(images=8))
    assert [window.source for window in golden.windows] == ["target", "unchanged", "unchanged"]
    assert {window.caption for window in golden.windows} == {"a red van in window 50"}
    last = replace(golden.windows[-1], source="target")
    assert differences(golden, replace(golden, windows=[*golden.windows[:-1], last])) == [
        "window 2-3 s: source: expected unchanged, is target"
    ]
