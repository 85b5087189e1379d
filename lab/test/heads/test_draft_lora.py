"""Low-rank changes of the draft: they begin at nothing, are learned, kept, and merged without a trace."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import torch
from crossspec_lab.heads.draft_lora import DraftLora, merge
from crossspec_lab.heads.head import Sizes
from crossspec_lab.train.pairs import PairExtractor, extract
from crossspec_lab.world.phrases import QUESTION
from refusals import refused

from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import tiny_models
from crossspec_ros.windows.window import Window

pytestmark = pytest.mark.nightly


@pytest.fixture
def own() -> ModelPair:
    """One that may be changed."""
    return load_pair(tiny_models())


@pytest.fixture(scope="module")
def trained(
    windows: list[Window], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, torch.Tensor, torch.Tensor]:
    """Where an adapter is, and what the draft says before and with it."""
    pair, folder = load_pair(tiny_models()), tmp_path_factory.mktemp("lora")
    assert pair.draft is not None
    with closing(PairExtractor(pair, QUESTION)) as extractor:
        pairs = extract(extractor, windows, folder / "pairs", 2).batch([0, 1])
    before = [parameter.clone() for parameter in pair.target.module.parameters()]
    torch.manual_seed(0)
    head = DraftLora(Sizes.of(pair.target, pair.draft), pair.draft, QUESTION)
    # Of the draft's two layers, 128 wide: rank 16 beside q, k, v and o.
    assert sum(p.numel() for p in head.parameters()) == 2 * 4 * 2 * 16 * 128
    plain = head.logits(pairs).detach()
    assert pairs.draft_states is not None
    wanted = pair.draft.logits(pairs.draft_states)[..., : head.sizes.tokens]
    assert torch.allclose(plain[pairs.is_token], wanted[pairs.is_token], atol=0.2)
    optimizer = torch.optim.AdamW(head.parameters(), 5e-3)
    losses = []
    for _ in range(10):
        loss = head.loss(pairs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
    after = pair.target.module.parameters()
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    head.save(folder / "L6")
    return folder / "L6", plain, head.logits(pairs).detach()


def said(pair: ModelPair, window: Window) -> torch.Tensor:
    assert pair.draft is not None
    draft = pair.draft
    prompt = draft.prompt(QUESTION, draft.encode(window.event_images[:-1]))
    with torch.inference_mode():
        return draft.logits(draft.body(inputs_embeds=prompt.embeds[None]).last_hidden_state[0, -1:])


def test_a_merged_adapter_says_what_it_learned(
    own: ModelPair, windows: list[Window], trained: tuple[Path, torch.Tensor, torch.Tensor]
) -> None:
    folder, before, after = trained
    width = before.shape[-1]
    assert torch.allclose(said(own, windows[0])[0, :width], before[0, 0], atol=0.05)
    assert own.draft is not None
    merge(own.draft, folder)
    assert torch.allclose(said(own, windows[0])[0, :width], after[0, 0], atol=0.05)
    assert not torch.allclose(before[0, 0], after[0, 0], atol=0.5)
    assert not [name for name, _ in own.draft.module.named_parameters() if "lora" in name]


def test_what_is_no_adapter_of_this_draft_is_refused(
    own: ModelPair, trained: tuple[Path, torch.Tensor, torch.Tensor], tmp_path: Path
) -> None:
    assert own.draft is not None
    (tmp_path / "adapter_config.json").write_bytes((trained[0] / "adapter_config.json").read_bytes())
    with refused("adapter-without-weights"):
        merge(own.draft, tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"x")
    with refused("adapter-damaged", library_text=True):
        merge(own.draft, tmp_path)
