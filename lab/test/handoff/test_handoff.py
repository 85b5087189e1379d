"""The hand-off learns features and their cosine, keeps its files, and `bench handoff` measures it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
import torch
from crossspec_lab.handoff.network import Handoff, likeness, load_handoff, new_handoff
from crossspec_lab.heads.saved import save_head
from crossspec_lab.heads.trainable import token_loss
from crossspec_lab.train.pairs import PairExtractor, extract
from crossspec_lab.world.phrases import QUESTION
from refusals import refused

from crossspec_ros.cli import main
from crossspec_ros.drafting.heads.head_files import WEIGHTS
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.windows.window import Window


@pytest.fixture
def handoff(pair: ModelPair) -> Handoff:
    torch.manual_seed(0)
    return new_handoff(pair.target, pair.draft)


@pytest.mark.nightly
def test_handoff_learns_features_and_cosine(
    pair: ModelPair, windows: list[Window], handoff: Handoff, tmp_path: Path
) -> None:
    with closing(PairExtractor(pair, QUESTION)) as extractor:
        pairs = extract(extractor, windows, tmp_path, len(windows)).batch(range(len(windows)))
    handoff.load(pair.target)
    true = pairs.frames.unflatten(1, (8, 17))
    # The target's own features give its own answers, and those of other windows do not.
    own, other = (token_loss(handoff._answers(one, pairs), pairs.tokens) for one in (true, true.flip(0)))
    assert own < 0.2 and other > 0.5
    optimizer = torch.optim.AdamW(handoff.parameters(), 1e-3)
    for step in range(30):
        handoff.loss(pairs).backward()
        if not step:
            assert [
                name for name, p in handoff.named_parameters() if p.grad is None or not p.grad.any()
            ] == []
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        near = likeness(handoff(pairs.event_tokens), true).mean()
        expected = handoff.expected(pairs.event_tokens).mean()
    assert near > 0.1 and float(expected) == pytest.approx(float(near), abs=0.2)


def test_it_comes_back_from_its_folder_as_it_was(pair: ModelPair, handoff: Handoff, tmp_path: Path) -> None:
    save_head(handoff, tmp_path, {})
    loaded = load_handoff(tmp_path, pair.target, pair.draft)
    for name, tensor in handoff.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor.bfloat16().float()), name
    assert not loaded.training and not any(parameter.requires_grad for parameter in loaded.parameters())


def test_what_is_no_hand_off_of_this_pair_is_refused(
    pair: ModelPair, handoff: Handoff, tmp_path: Path
) -> None:
    with refused("handoff-without-config"):
        load_handoff(tmp_path, pair.target, pair.draft)
    save_head(handoff, tmp_path, {})
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


@pytest.mark.nightly
def test_untrained_handoff_is_refused(handoff: Handoff, tmp_path: Path) -> None:
    save_head(handoff, tmp_path / "handoff", {})
    out = tmp_path / "figures.json"
    command = ["bench", "handoff", "--windows", "1", "--handoff", str(tmp_path / "handoff")]
    assert main([*command, "--json", str(out)]) == 0
    captions = json.loads(out.read_text())["captions"]
    assert captions["true frames"]["right"] > captions["aligned features"]["right"]
    assert captions["predicted"] == captions["probed"] == captions["true frames"]
