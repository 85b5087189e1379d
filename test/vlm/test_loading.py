"""A damaged or missing checkpoint is refused with a sentence that names it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from crossspec_ros.errors import InputError
from crossspec_ros.paths import share_dir
from crossspec_ros.vlm.loading import load_pair


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return Path(shutil.copytree(share_dir() / "models" / "tiny", tmp_path / "models"))


def test_the_shipped_pair_fits_together() -> None:
    pair = load_pair(share_dir() / "models" / "tiny")
    assert (pair.frames, pair.event_images, pair.frame_size, pair.event_image_size) == (8, 5, 64, 64)
    size = sum(f.stat().st_size for f in (share_dir() / "models" / "tiny").rglob("*") if f.is_file())
    assert size < 25_000_000


def test_a_missing_folder() -> None:
    with pytest.raises(InputError, match=r"'/nowhere' lacks 'target/config.json'"):
        load_pair("/nowhere")


@pytest.mark.parametrize(
    "file", ["target/model.safetensors", "draft/model.safetensors", "draft/tokenizer.json"]
)
def test_a_missing_file(models: Path, file: str) -> None:
    (models / file).unlink()
    with pytest.raises(InputError, match=f"lacks '{file}'"):
        load_pair(models)


@pytest.mark.parametrize(
    "file",
    ["target/model.safetensors", "draft/model.safetensors", "target/config.json", "draft/config.json",
     "draft/clip/config.json", "target/tokenizer.json"],
)  # fmt: skip
def test_a_truncated_file(models: Path, file: str) -> None:
    data = (models / file).read_bytes()
    (models / file).write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=f"checkpoint '{models / file.split('/')[0]}' cannot be loaded"):
        load_pair(models)


@pytest.mark.parametrize("name", ["target", "draft"])
def test_tensors_of_another_shape(models: Path, name: str) -> None:
    config = json.loads((models / name / "config.json").read_text())
    (config["text_config"] if name == "target" else config)["intermediate_size"] += 64
    (models / name / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=f"'{models / name}' cannot be loaded"):
        load_pair(models)
