"""A head that goes on learning drafts more and more of what the target says."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from crossspec_lab.train.pairs import PairExtractor
from crossspec_lab.train.variants import new_head
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.captioning.assembly import speculative_decoder
from crossspec_ros.drafting.heads import online
from crossspec_ros.drafting.heads.head import Sizes
from crossspec_ros.drafting.proposers.heads import HeadProposer
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def test_it_learns_from_what_was_verified(
    pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(online, "LEARNING_RATE", 5e-3)
    torch.manual_seed(1)
    heads = [new_head("B1", Sizes.of(pair.target, pair.draft)) for _ in range(2)]
    learner = HeadProposer("a", heads[0], learns=True)
    other, before = HeadProposer("b", heads[1]), [p.clone() for p in heads[1].parameters()]
    with closing(speculative_decoder(pair, proposers=[learner, other])) as decoder:
        decoder.policy.cost = None
        passes, texts = [], set()
        for i in range(12):
            caption = decoder.caption(replace(windows[0], index=i), QUESTION, Trace())
            passes.append(caption.target_passes)
            texts.add(caption.token_ids)
    assert len(texts) == 1
    assert np.mean(passes[-3:]) < 0.8 * passes[0]
    assert learner._online is not None and learner._online.learned == 12
    assert all(torch.equal(one, p) for one, p in zip(before, heads[1].parameters(), strict=True))


def test_a_caption_to_learn_from_is_what_extraction_would_give(
    pair: ModelPair, windows: list[Window]
) -> None:
    proposer = HeadProposer("massv", new_head("massv", Sizes.of(pair.target, pair.draft)), learns=True)
    with closing(speculative_decoder(pair, proposers=[proposer])) as decoder:
        decoder.caption(windows[1], QUESTION, Trace())
        decoder.caption(windows[2], QUESTION, Trace())
    with closing(PairExtractor(pair, QUESTION)) as extractor:
        wanted = extractor(windows[1])
    assert proposer._online is not None
    got = proposer._online._captions[0]
    assert got.tokens[0].tolist() == wanted["tokens"].tolist() and got.units == tuple(
        wanted["units"].tolist()
    )
    for name in ("states", "frames"):
        assert torch.allclose(getattr(got, name)[0], wanted[name].float(), atol=0.05), name
