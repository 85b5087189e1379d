"""The aligner's shapes, what it learns from, what it keeps in its folder, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from crossspec_lab.handoff.network import Handoff, load_handoff, save_handoff

from crossspec_ros.drafting.heads.head import Sizes
from crossspec_ros.drafting.heads.head_files import WEIGHTS
from crossspec_ros.errors import InputError
from crossspec_ros.models.pair import ModelPair

FRAMES, TOKENS, IMAGES, PATCHES = 8, 17, 5, 17


@pytest.fixture
def handoff(pair: ModelPair) -> Handoff:
    torch.manual_seed(0)
    return Handoff(Sizes.of(pair.target, pair.draft), FRAMES, TOKENS, IMAGES, PATCHES)


def events(handoff: Handoff, images: int, windows: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(images)
    return torch.randn(windows, images + PATCHES, handoff.sizes.draft_width, generator=generator)


def test_every_parameter_learns(handoff: Handoff) -> None:
    seen = events(handoff, IMAGES)
    (handoff(seen).square().sum() + handoff.predicted(seen).sum()).backward()
    # A key's bias adds the same to all, which softmax takes away again.
    assert [name for name, p in handoff.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_it_comes_back_from_its_folder_as_it_was(pair: ModelPair, handoff: Handoff, tmp_path: Path) -> None:
    save_handoff(handoff, tmp_path, {"windows": 3})
    loaded = load_handoff(tmp_path, pair.target, pair.draft)
    for name, tensor in handoff.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor.bfloat16().float()), name
    assert not loaded.training and not any(parameter.requires_grad for parameter in loaded.parameters())
    assert (tmp_path / WEIGHTS).stat().st_size < 1_000_000


def test_what_is_no_hand_off_of_this_pair_is_refused_in_a_sentence(
    pair: ModelPair, handoff: Handoff, tmp_path: Path
) -> None:
    def refused(reason: str, folder: Path = tmp_path, draft: bool = True) -> None:
        with pytest.raises(InputError, match=reason) as error:
            load_handoff(folder, pair.target, pair.draft if draft else None)
        assert "\n" not in str(error.value)

    refused("needs an event draft", draft=False)
    refused("has no config.json: train one", tmp_path / "nowhere")
    save_handoff(handoff, tmp_path, {})
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / WEIGHTS).write_bytes(b"no weights")
    refused("of a feature hand-off are missing or damaged")
    for key, change, reason in (
        ("sizes", {"draft_width": 64}, "'draft_width': 64"),
        ("options", {"inner": 63}, "describes no feature hand-off"),
        ("options", {"more": 1}, "describes no feature hand-off"),
    ):
        changed = config | {key: config[key] | change}
        (tmp_path / "config.json").write_text(json.dumps(changed))
        refused(reason)
