"""`crossspec caption`: with one model in memory at a time the captions are those of both together."""

from __future__ import annotations

import json
import weakref
from functools import partial
from pathlib import Path

import pytest
from planted import WINDOWS, write_drive

from crossspec_ros.cli import main
from crossspec_ros.paths import share_dir
from crossspec_ros.regress.golden import golden_folder
from crossspec_ros.vlm import loading

BAG = share_dir() / "rosbags" / "synthetic_drive"
BLIND = 1
"""The window without frames."""


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_drive(tmp_path_factory.mktemp("caption") / "drive", blind=(BLIND,))


def captions(path: Path, out: Path, *options: str) -> list[dict]:
    assert main(["caption", str(path), "--json", str(out), *options]) == 0
    return json.loads(out.read_text())["windows"]


def said(windows: list[dict]) -> list[tuple]:
    return [
        (window["end_ns"], window["caption"], window["caption_source"], window["tokens"])
        for window in windows
    ]


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which models are loaded, in order; no other may be in memory at that time."""
    names: list[str] = []
    models: list[weakref.ref] = []

    def load(name, really, *args):
        assert all(model() is None for model in models)
        names.append(name)
        model = really(*args)
        models.append(weakref.ref(model))
        return model

    for name in ("load_target", "load_eventgpt"):
        monkeypatch.setattr(loading, name, partial(load, name, getattr(loading, name)))
    return names


def test_one_model_at_a_time_gives_the_captions_of_both_together(
    drive: Path, tmp_path: Path, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts = tmp_path / "drafts"
    apart = captions(drive, tmp_path / "apart.json", "--drafts", str(drafts))
    assert loaded == ["load_eventgpt", "load_target"]
    again = captions(drive, tmp_path / "again.json", "--drafts", str(drafts))
    assert loaded[2:] == ["load_target"]
    monkeypatch.undo()
    together = captions(drive, tmp_path / "together.json")
    assert said(apart) == said(again) == said(together)
    assert [window["caption_source"] for window in together] == [
        "event_draft" if i == BLIND else "target" for i in range(WINDOWS)
    ]
    # The drafts are there, and are put to the target as those of a draft beside it.
    for windows in (apart, together):
        assert windows[0]["drafted/event_draft"] > 0


def test_drafts_of_another_recording_are_refused_before_a_model_is_loaded(
    drive: Path, tmp_path: Path, loaded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    drafts = tmp_path / "drafts"
    captions(drive, tmp_path / "out.json", "--drafts", str(drafts))
    del loaded[:]
    assert main(["caption", str(write_drive(tmp_path / "other", seed=8)), "--drafts", str(drafts)]) == 2
    error = capsys.readouterr().err
    assert f"the drafts in '{drafts}' were made with recording" in error and "name another file" in error
    assert loaded == []


def test_the_sample_bag_is_captioned_as_its_goldens_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = json.loads((golden_folder(BAG) / "windows.json").read_text())["windows"]
    windows = captions(BAG, tmp_path / "out.json")
    assert [window["caption"] for window in windows] == [window["caption"] for window in golden]
    *lines, totals = capsys.readouterr().out.splitlines()
    assert lines[0] == f"0-1 s: {golden[0]['caption']}" and len(lines) == len(golden)
    assert totals.startswith(f"windows {len(golden)}, tokens ")


def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    drive: Path, tmp_path: Path, loaded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["caption", str(drive), "--drafts", str(tmp_path / "nowhere" / "drafts")]) == 2
    assert "cannot be written" in capsys.readouterr().err and loaded == []
