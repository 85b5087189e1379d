"""The aligner's shapes, what it learns from, what it keeps in its folder, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from crossspec_lab.handoff.network import Handoff, load_handoff, save_handoff
from refusals import refused

from crossspec_ros.drafting.heads.head import Sizes
from crossspec_ros.drafting.heads.head_files import WEIGHTS
from crossspec_ros.models.pair import ModelPair

FRAMES, TOKENS, IMAGES, PATCHES = 8, 17, 5, 17


@pytest.fixture
def handoff(pair: ModelPair) -> Handoff:
    torch.manual_seed(0)
    return Handoff(Sizes.of(pair.target, pair.draft), FRAMES, TOKENS, IMAGES, PATCHES)


def test_every_parameter_learns(handoff: Handoff) -> None:
    seen = torch.randn(3, IMAGES + PATCHES, handoff.sizes.draft_width)
    (handoff(seen).square().sum() + handoff.predicted(seen).sum()).backward()
    # A key's bias adds the same to all, which softmax takes away again.
    assert [name for name, p in handoff.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_it_comes_back_from_its_folder_as_it_was(pair: ModelPair, handoff: Handoff, tmp_path: Path) -> None:
    save_handoff(handoff, tmp_path, {"windows": 3})
    loaded = load_handoff(tmp_path, pair.target, pair.draft)
    for name, tensor in handoff.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor.bfloat16().float()), name
    assert not loaded.training and not any(parameter.requires_grad for parameter in loaded.parameters())


def test_what_is_no_hand_off_of_this_pair_is_refused(
    pair: ModelPair, handoff: Handoff, tmp_path: Path
) -> None:
    with refused("handoff-without-config"):
        load_handoff(tmp_path, pair.target, pair.draft)
    save_handoff(handoff, tmp_path, {})
    with refused("handoff-without-draft"):
        load_handoff(tmp_path, pair.target, None)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / WEIGHTS).write_bytes(b"no weights")
    for code, key, change in (
        ("handoff-damaged", "options", {}),
        ("handoff-of-another-width", "sizes", {"draft_width": 64}),
        ("handoff-options", "options", {"inner": 63}),
        ("handoff-options", "options", {"more": 1}),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | {key: config[key] | change}))
        with refused(code, library_text=key == "options"):
            load_handoff(tmp_path, pair.target, pair.draft)
