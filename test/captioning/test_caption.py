"""`crossspec caption`: its captions, refusals and warnings."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import closing
from types import SimpleNamespace

import pytest
import yaml
from crossspec_lab.world.camera import SENSOR_SIZE
from planted import write_drive
from tokenizers import Tokenizer

from crossspec_ros.captioning.wording import MIN_TOKENS, WARNING, warning
from crossspec_ros.cli import main
from crossspec_ros.drafting.draft_model import EventDraft
from crossspec_ros.paths import share_dir, tiny_models
from crossspec_ros.recordings.bag import write_bag
from crossspec_ros.recordings.recording import open_recording
from crossspec_ros.regress.golden import golden_folder

BAG = share_dir() / "rosbags" / "synthetic_drive"
TINY = tiny_models()
BLIND = 1
"""The window without frames."""
SECOND = 10**9


@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    return write_drive(tmp_path_factory.mktemp("caption") / "drive", blind=(BLIND,))


def captions(path, out, *options):
    assert main(["caption", str(path), "--json", str(out), *options]) == 0
    return json.loads(out.read_text())["windows"]


def contents(windows):
    return [
        (window["end_ns"], window["caption"], window["caption_source"], window["tokens"])
        for window in windows
    ]


def with_settings(path, **settings):
    """Write config/replay.yaml with more parameters of some nodes."""
    config = yaml.safe_load((share_dir() / "config" / "replay.yaml").read_text())
    for node, values in settings.items():
        config.setdefault(node, {}).setdefault("ros__parameters", {}).update(values)
    path.write_text(yaml.safe_dump(config))
    return path


def test_windows_differ_after_the_clock_starts_anew(tmp_path):
    """Events only: each caption is the draft's own."""
    path = tmp_path / "again"
    recording = open_recording(BAG)
    events = [message for message in recording.messages() if message.kind == "events"]
    recording.close()
    first = events[0].stamp_ns
    events = [message for message in events if message.stamp_ns < first + 5 * SECOND]
    half = next(i for i, message in enumerate(events) if message.stamp_ns > first + 2 * SECOND + SECOND // 2)
    with write_bag(path) as write:
        for message in events[half:] + events[:half]:
            write("/events", message)
    windows = captions(path, tmp_path / "out.json")
    assert {window["caption_source"] for window in windows} == {"event_draft"}
    assert len({window["caption"] for window in windows}) > 3


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("seconds", "missing"),
    [
        # The next window's events arrive before the window is closed.
        pytest.param(0.1, {"blind": (0, 1)}, id="while the next window's events arrive"),
        # While events are missing, frames open window after window.
        pytest.param(0.3, {"silent": (90, 280)}, id="while later windows are opened"),
    ],
)
def test_replay_waits_for_a_slow_draft(tmp_path, monkeypatch, seconds, missing):
    config = with_settings(
        tmp_path / "config.yaml", synchronizer={"max_lateness_s": 2.5}, captioner={"max_new_tokens": 12}
    )
    path = write_drive(tmp_path / "drive", **missing)
    run = EventDraft.run

    def slow(self, *args):
        time.sleep(seconds)
        return run(self, *args)

    fast = captions(path, tmp_path / "fast.json", "--config", str(config))
    monkeypatch.setattr(EventDraft, "run", slow)
    assert contents(captions(path, tmp_path / "slow.json", "--config", str(config))) == contents(fast)


def refusal(capsys, *arguments):
    capsys.readouterr()
    assert main(["caption", *map(str, arguments)]) == 2
    error = capsys.readouterr().err
    *_, sentence = error.splitlines()
    assert sentence.startswith("crossspec: error: ")
    return sentence


def test_invalid_questions_and_settings_are_refused(drive, tmp_path, capsys):
    assert "the question is empty" in refusal(capsys, drive, "--question", "")
    assert "the prompt of the question has" in refusal(capsys, drive, "--question", "why " * 2400)
    for name, value in (("deadline_s", 0.5), ("temperature", 1.0)):
        config = with_settings(tmp_path / "config.yaml", captioner={name: value})
        assert f"set {name} to 0" in refusal(capsys, drive, "--config", config)


def test_captions_without_draft_are_equal(drive, tmp_path, brief, capsys):
    models = tmp_path / "models"
    shutil.copytree(TINY / "target", models / "target")
    alone = ["--models", models, "--draft", "none", *brief]
    assert f"'{models / 'draft'}': set draft to" in refusal(capsys, drive, "--models", models)
    windows = captions(drive, tmp_path / "alone.json", *map(str, alone))
    named = json.loads((tmp_path / "alone.json").read_text())["models"]
    assert named == {"target": str(models / "target")}
    both = captions(drive, tmp_path / "both.json", *brief)
    # Without frames, only the draft has a caption.
    assert windows[BLIND]["caption_source"] == "none"
    left, right = contents(windows), contents(both)
    assert left[:BLIND] + left[BLIND + 1 :] == right[:BLIND] + right[BLIND + 1 :]
    assert [window["degraded"] for window in windows] == [window["degraded"] for window in both]


def test_captions_without_events_are_equal(tmp_path):
    with closing(open_recording(BAG)) as recording, write_bag(tmp_path / "images") as write:
        for message in recording.messages():
            if message.kind == "image":
                write("/camera/image_raw/compressed", message)
    windows = captions(tmp_path / "images", tmp_path / "images.json")
    golden = json.loads((golden_folder(BAG) / "windows.json").read_text())["windows"]
    assert [window["caption"] for window in windows] == [window["caption"] for window in golden]
    assert all(window["degraded"] == ["events_missing"] for window in windows)


def test_standing_questions_change_no_golden_caption(tmp_path, capsys):
    golden = json.loads((golden_folder(BAG) / "windows.json").read_text())["windows"]
    questions = ["--questions", "Is it dark? [red, green]", "--questions", "Is it near? [red, green] first"]
    windows = captions(BAG, tmp_path / "out.json", *questions)
    assert [window["caption"] for window in windows] == [window["caption"] for window in golden]
    *lines, totals = capsys.readouterr().out.splitlines()
    assert lines[0] == f"0-1 s: {golden[0]['caption']}" and len(lines) == 3 * len(golden)
    assert totals.startswith(f"windows {len(golden)}, tokens ")
    for question in ("Is it dark?", "Is it near?"):
        assert sum(line.startswith(f"    {question} ") for line in lines) == len(golden)
    assert {tuple(window["answers"]) for window in windows} == {("Is it near?", "Is it dark?")}
    for answer in (window["answers"]["Is it dark?"] for window in windows):
        assert answer["answer"] in ("red", "green") and list(answer["probabilities"]) == ["red", "green"]


def test_tiny_qwen3_vl_captions_the_sample_bag(tmp_path):
    truth = json.loads((BAG / "ground_truth.json").read_text())["windows"]
    target = str(share_dir() / "models" / "tiny_qwen3_vl")
    windows = captions(BAG, tmp_path / "out.json", "--target", target)
    right = [a["caption"] == b["caption"] for a, b in zip(windows, truth, strict=True)]
    assert sum(right) >= 8
    assert {window["caption_source"] for window in windows} == {"target"}


@pytest.mark.parametrize(
    ("target", "draft", "expected"),
    [
        (577, 578, "target has a vocabulary of 577"),
        (32_000, 578, "draft has a vocabulary of 578"),
        (151_643, 32_000, ""),
        (32_000, None, ""),
    ],
)
def test_small_vocabulary_is_reported(target, draft, expected):
    models = (None if tokens is None else SimpleNamespace(vocabulary=tokens) for tokens in (target, draft))
    text = warning(SimpleNamespace(**dict(zip(("target", "draft"), models, strict=True))))
    assert expected in text and bool(expected) == bool(text)


def test_shipped_checkpoints_count_as_tiny():
    # `make real` adds the tokenizer of smol's language model.
    files = sorted(str(file) for file in TINY.parent.glob("tiny*/**/tokenizer.json"))
    sizes = [Tokenizer.from_file(file).get_vocab_size() for file in files]
    assert sizes == [578, 577, 577, 581] and max(sizes) < MIN_TOKENS


def test_caption_warns_of_tiny_models_once(tmp_path, capsys):
    """The models are a copy, and the camera has the size of the synthetic one."""
    shutil.copytree(TINY, tmp_path / "copied")
    path = write_drive(tmp_path / "drive", size=SENSOR_SIZE)
    captions(path, tmp_path / "out.json", "--models", str(tmp_path / "copied"))
    assert capsys.readouterr().err.count(f"crossspec: {WARNING.format('target', 577)}\n") == 1
