"""Families of checkpoints, and their sizes without weights."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from checkpoint_layouts import TINY, copied, edit
from refusals import refused
from tiny_targets import TINY_FAMILIES

from crossspec_ros.models.registry import (
    draft_architecture,
    event_image_spec,
    target_architecture,
    target_spec,
)


@pytest.mark.parametrize(
    ("name", "read"),
    [("target", target_spec), ("target", target_architecture), ("draft", event_image_spec),
     ("draft", draft_architecture)],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["gpt2", 7])
def test_unsupported_type_is_refused(tmp_path, name, read, kind):
    folder = copied(name, tmp_path / name)
    edit(folder / "config.json", model_type=kind)
    with refused("target-of-unknown-type" if name == "target" else "draft-of-unknown-type", kind=kind):
        read(folder)


def test_refused_type_has_reason(tmp_path):
    folder = copied("target", tmp_path / "target")
    edit(folder / "config.json", model_type="molmo2")
    with refused("target-sees-frames-both-ways"):
        target_spec(folder)


def test_sizes_need_no_torch(tmp_path):
    targets = [str(family.checkpoint(tmp_path / name)) for name, family in TINY_FAMILIES.items()]
    code = f"""
import sys
from pathlib import Path
from crossspec_ros.models.hub import draft_path
from crossspec_ros.models.registry import event_image_spec, target_spec
tiny = Path({str(TINY)!r})
assert all(target_spec(Path(target)).image_size for target in {targets})
assert event_image_spec(draft_path(tiny, "")) == (5, 0, 64)
assert not {{"torch", "transformers", "tokenizers"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("size", [48, 224, 336])
def test_event_image_size_equals_towers(tmp_path, size):
    folder = copied("draft", tmp_path / "draft")
    config = folder / "clip" / "config.json"
    if size == 336:
        config.unlink()
        edit(folder / "config.json", mm_visual_tower="openai/clip-vit-large-patch14-336")
    else:
        config.write_text('{"vision_config": {}}' if size == 224 else json.dumps({"image_size": size}))
    assert event_image_spec(folder).size == draft_architecture(folder).config.vision_config.image_size == size
