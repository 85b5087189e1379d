"""No tiny model captions without a word of what it knows, wherever it lies and whatever the camera."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import Any

import pytest
from crossspec_lab.world.camera import SENSOR_SIZE
from planted import write_drive
from tokenizers import Tokenizer

from crossspec_ros.captioning.wording import MIN_TOKENS, WARNING, warning
from crossspec_ros.cli import main
from crossspec_ros.paths import share_dir

MODELS = share_dir() / "models"


def model(tokens):
    return SimpleNamespace(vocabulary=tokens)


@pytest.mark.parametrize(
    ("target", "draft", "told"),
    [(577, 578, "target has 577"), (32_000, 578, "draft has 578"), (151_643, 32_000, ""), (32_000, None, "")],
)
def test_too_few_tokens_for_real_scenes_are_told(target, draft, told):
    pair: Any = SimpleNamespace(target=model(target), draft=None if draft is None else model(draft))
    assert told in warning(pair) and bool(told) == bool(warning(pair))


def test_every_checkpoint_that_is_shipped_is_known_for_what_it_is():
    files = sorted(str(file) for file in MODELS.rglob("tokenizer.json"))
    sizes = [Tokenizer.from_file(file).get_vocab_size() for file in files]
    assert sizes == [578, 577, 577, 581] and max(sizes) < MIN_TOKENS


def test_caption_says_it_in_one_line_of_a_copy_and_of_a_camera_like_the_synthetic_one(tmp_path, capsys):
    shutil.copytree(MODELS / "tiny", tmp_path / "copied")
    drive = write_drive(tmp_path / "drive", size=SENSOR_SIZE)
    assert main(["caption", str(drive), "--models", str(tmp_path / "copied")]) == 0
    assert capsys.readouterr().err.count(f"crossspec: {WARNING.format('target', 577)}\n") == 1
