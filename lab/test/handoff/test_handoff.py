"""The aligner's shapes, what it learns from, what it keeps in its folder, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from crossspec_lab.handoff.network import THRESHOLDS, Handoff, likeness, load_handoff, save_handoff

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


@pytest.mark.parametrize("images", [1, 4, 5])
def test_any_number_of_event_images_gives_features_of_all_frames(handoff: Handoff, images: int) -> None:
    seen = events(handoff, images)
    assert handoff(seen).shape == (3, FRAMES, TOKENS, handoff.sizes.width)
    assert handoff.predicted(seen).shape == handoff.threshold(seen).shape == (3,)
    # Of one window as of many.
    assert torch.allclose(handoff(seen)[1], handoff(seen[1:2])[0], atol=1e-5)


@pytest.mark.parametrize("tokens", [PATCHES, PATCHES + IMAGES + 1])
def test_other_event_tokens_than_it_was_made_for_are_refused(handoff: Handoff, tokens: int) -> None:
    with pytest.raises(InputError, match=rf"there are {tokens} event tokens: train one for this pair"):
        handoff(torch.zeros(1, tokens, handoff.sizes.draft_width))


def test_it_has_a_third_of_a_million_parameters(handoff: Handoff) -> None:
    assert 250_000 < sum(parameter.numel() for parameter in handoff.parameters()) < 400_000


def test_every_parameter_learns(handoff: Handoff) -> None:
    seen = events(handoff, IMAGES)
    (handoff(seen).square().sum() + handoff.predicted(seen).sum()).backward()
    # A key's bias adds the same to all, which softmax takes away again.
    assert [name for name, p in handoff.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_likeness_is_the_mean_cosine() -> None:
    true = torch.eye(4)[None]
    assert float(likeness(3 * true, true)) == pytest.approx(1)
    assert float(likeness(true.flip(1), true)) == pytest.approx(0)


def test_complex_scenes_demand_more(handoff: Handoff) -> None:
    seen = torch.cat([scale * events(handoff, IMAGES, 1) for scale in (1, 2, 3)])
    spread = handoff.spread(seen)
    handoff.thirds.copy_(torch.stack([spread[:2].mean(), spread[1:].mean()]))
    assert handoff.threshold(seen).tolist() == pytest.approx(THRESHOLDS)


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
        ("sizes", {"draft_width": 64}, "whose draft width is 64, but this pair's is 128"),
        ("sizes", {"vocabulary": "other"}, "whose vocabulary is 'other'"),
        ("options", {"inner": 63}, "describes no feature hand-off"),
        ("options", {"more": 1}, "describes no feature hand-off"),
        ("options", {"inner": 64}, "missing or damaged"),
    ):
        changed = config | {key: config[key] | change}
        (tmp_path / "config.json").write_text(json.dumps(changed))
        refused(reason)
    (tmp_path / "config.json").write_text(json.dumps(config | {"sizes": [1]}))
    refused("whose width is None")
    save_handoff(handoff, tmp_path, {})
    (tmp_path / "config.json").write_text(json.dumps(config | {"options": config["options"] | {"inner": 64}}))
    refused("not those of the feature hand-off")
