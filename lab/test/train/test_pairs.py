"""Paired states are what the models made of a window, and they survive an interruption."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from crossspec_lab.heads.head import IGNORED
from crossspec_lab.train.head_training import recorded
from crossspec_lab.train.pairs import PairExtractor, PairShards, extract
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.cli import make_parser
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import share_dir
from crossspec_ros.windows.window import Window


@pytest.fixture(scope="module")
def extractor(pair: ModelPair) -> Iterator[PairExtractor]:
    with closing(PairExtractor(pair, QUESTION)) as one:
        yield one


@torch.inference_mode()
def test_states_say_the_tokens_that_were_chosen_from_them(
    extractor: PairExtractor, pair: ModelPair, windows: list[Window], tmp_path: Path
) -> None:
    assert pair.draft is not None
    shards = extract(extractor, windows, tmp_path, 3)
    batch = shards.batch([2, 0, 1])
    seen = batch.is_token
    # Stored in bfloat16, a close call may fall otherwise.
    same = pair.target.logits(batch.choosing).argmax(-1)[seen] == batch.tokens[seen]
    assert same.float().mean() > 0.98
    assert batch.question.tolist() == list(pair.target.prompt_ids(QUESTION)[1])
    assert batch.taps.shape == (*batch.states.shape[:2], 3 * batch.states.shape[2])
    frames = torch.cat(
        [pair.target.unit(one, i).embeds for i, one in enumerate(pair.target.encode(windows[2].frames))]
    )
    assert torch.allclose(batch.frames[0], frames, atol=0.05) and sum(batch.units) == len(frames)
    assert batch.draft_states is not None and batch.draft_tokens is not None
    told = batch.draft_tokens != IGNORED
    chosen = pair.draft.logits(batch.draft_states).argmax(-1)
    assert (chosen[told] == batch.draft_tokens[told]).float().mean() > 0.98


@pytest.mark.nightly
def test_an_interrupted_extraction_goes_on(
    extractor: PairExtractor, windows: list[Window], tmp_path: Path
) -> None:
    def broken() -> Iterator[Window]:
        yield from windows[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(extractor, broken(), tmp_path / "a", 4)
    assert len(PairShards(tmp_path / "a")) == 3
    asked: list[int] = []
    assert len(extract(extractor, iter(windows), tmp_path / "a", 4, asked.append)) == 4
    assert asked == [4]


def test_recordings_give_their_windows_with_frames() -> None:
    bag = str(share_dir() / "rosbags" / "synthetic_drive")
    args = make_parser().parse_args(["train", "heads", "massv", "--recordings", bag])
    found = list(recorded(args))
    assert len(found) > 1
    assert all(len(window.frames) and len(window.event_images) for window in found)
