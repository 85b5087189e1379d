"""Which family a checkpoint is of, and what is known of it before anything is loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_layouts import TINY, copied, edit

from crossspec_ros.errors import InputError
from crossspec_ros.models.registry import (
    draft_architecture,
    draft_folders,
    event_image_size,
    target_architecture,
    target_spec,
)

Known = Callable[[Path], object]


@pytest.mark.parametrize(
    ("name", "known", "sentence"),
    [("target", target_spec, r"not of a known target \(video_llava.*\)"),
     ("target", target_architecture, r"not of a known target \(video_llava.*\)"),
     ("draft", event_image_size, r"not of a known event draft \(EventChat_llama\)"),
     ("draft", draft_folders, r"not of a known event draft \(EventChat_llama\)"),
     ("draft", draft_architecture, r"not of a known event draft \(EventChat_llama\)")],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["gpt2", 7, ["video_llava"]])
def test_another_type_is_refused_with_those_that_are_known(
    tmp_path: Path, name: str, known: Known, sentence: str, kind: object
) -> None:
    folder = copied(name, tmp_path / name)
    edit(folder / "config.json", model_type=kind)
    with pytest.raises(InputError, match=rf"'{folder}/config.json' is of the type .*, {sentence}: name"):
        known(folder)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("molmo2", "see one another in both directions"),
     ("qwen3_next", "cannot verify a draft tree"),
     ("qwen3_5", "cannot verify a draft tree"),
     ("qwen3_5_moe", "cannot verify a draft tree")],
)  # fmt: skip
@pytest.mark.parametrize("known", [target_spec, target_architecture])
def test_what_cannot_be_streamed_exactly_is_refused_with_the_reason(
    tmp_path: Path, kind: str, reason: str, known: Known
) -> None:
    folder = copied("target", tmp_path / "target")
    edit(folder / "config.json", model_type=kind)
    sentence = rf"is of the type {kind}, which cannot be streamed exactly, for .*{reason}.*: name the folder"
    with pytest.raises(InputError, match=sentence):
        known(folder)


def test_sizes_are_known_without_torch() -> None:
    code = f"""
import sys
from pathlib import Path
from crossspec_ros.models.hub import draft_path, target_path
from crossspec_ros.models.registry import draft_folders, event_image_size, target_spec
tiny = Path({str(TINY)!r})
print(target_spec(target_path(tiny, "")).image_size, event_image_size(draft_path(tiny, "")))
assert draft_folders(tiny / "draft") == [tiny / "draft"]
print({{"torch", "transformers", "tokenizers"}} & set(sys.modules))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "64 64\nset()\n"


@pytest.mark.parametrize("size", [48, 336])
def test_the_image_size_of_a_draft_is_that_of_its_tower(tmp_path: Path, size: int) -> None:
    folder = copied("draft", tmp_path / "draft")
    if size == 336:
        (folder / "clip" / "config.json").unlink()
        edit(folder / "config.json", mm_visual_tower="openai/clip-vit-large-patch14-336")
    else:
        edit(folder / "clip" / "config.json", image_size=size)
    assert event_image_size(folder) == draft_architecture(folder).vision.image_size == size


def test_a_tower_that_does_not_say_its_image_size_has_that_of_transformers(tmp_path: Path) -> None:
    folder = copied("draft", tmp_path / "draft")
    (folder / "clip" / "config.json").write_text('{"vision_config": {}}')
    assert event_image_size(folder) == draft_architecture(folder).vision.image_size


def test_a_size_of_a_draft_that_is_none(tmp_path: Path) -> None:
    folder = copied("draft", tmp_path / "draft")
    edit(folder / "clip" / "config.json", image_size="wide")
    with pytest.raises(InputError, match=rf"'{folder}/clip/config.json' is no config of"):
        event_image_size(folder)
