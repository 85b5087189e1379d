"""Paired states are those of the models, and an interrupted extraction continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from crossspec_lab.heads.head import IGNORED
from crossspec_lab.train.pairs import PairExtractor, PairShards, extract
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.windows.window import Window


@torch.inference_mode()
def test_tokens_follow_from_the_states(pair: ModelPair, windows: list[Window], tmp_path: Path) -> None:
    assert pair.draft is not None

    def interrupted() -> Iterator[Window]:
        yield from windows[:2]
        raise KeyboardInterrupt

    steps: list[int] = []
    with closing(PairExtractor(pair, QUESTION)) as extractor:
        with pytest.raises(KeyboardInterrupt):
            extract(extractor, interrupted(), tmp_path, 3)
        assert len(PairShards(tmp_path)) == 2
        shards = extract(extractor, windows, tmp_path, 3, steps.append)
    assert steps == [3] and len(shards) == 3
    batch = shards.batch([2, 0, 1])
    is_token = batch.is_token
    # The states are stored in bfloat16, which may change a close choice.
    is_same = pair.target.logits(batch.choosing).argmax(-1)[is_token] == batch.tokens[is_token]
    assert is_same.float().mean() > 0.98
    assert batch.question.tolist() == list(pair.target.prompt_ids(QUESTION)[1])
    assert batch.taps.shape == (*batch.states.shape[:2], 3 * batch.states.shape[2])
    encoded = pair.target.encode(windows[2].frames)
    frames = torch.cat([pair.target.unit(one, i).embeds for i, one in enumerate(encoded)])
    assert torch.allclose(batch.frames[0], frames, atol=0.05) and sum(batch.units) == len(frames)
    assert batch.draft_states is not None and batch.draft_tokens is not None
    is_drafted = batch.draft_tokens != IGNORED
    is_same = (pair.draft.logits(batch.draft_states).argmax(-1) == batch.draft_tokens)[is_drafted]
    assert is_same.float().mean() > 0.98
