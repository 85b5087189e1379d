"""`crossspec train heads` extracts the models' states on windows, and trains and saves heads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from crossspec_lab.heads.head import IGNORED
from crossspec_lab.heads.head_files import load_head
from crossspec_lab.train.head_training import recorded
from crossspec_lab.train.pairs import PairExtractor, PairShards, extract
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.cli import main, make_parser
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import share_dir
from crossspec_ros.windows.window import Window

BAG = str(share_dir() / "rosbags" / "synthetic_drive")


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
    # The states are stored in bfloat16, which may change a close choice.
    is_same = pair.target.logits(batch.choosing).argmax(-1) == batch.tokens
    assert is_same[batch.is_token].float().mean() > 0.98
    assert batch.question.tolist() == list(pair.target.prompt_ids(QUESTION)[1])
    assert batch.taps.shape == (*batch.states.shape[:2], 3 * batch.states.shape[2])
    encoded = pair.target.encode(windows[2].frames)
    frames = torch.cat([pair.target.unit(one, i).embeds for i, one in enumerate(encoded)])
    assert torch.allclose(batch.frames[0], frames, atol=0.05) and sum(batch.units) == len(frames)
    assert batch.draft_states is not None and batch.draft_tokens is not None
    is_same = pair.draft.logits(batch.draft_states).argmax(-1) == batch.draft_tokens
    assert is_same[batch.draft_tokens != IGNORED].float().mean() > 0.98


@pytest.mark.nightly
def test_command_writes_a_head(pair: ModelPair, tmp_path: Path) -> None:
    folders = ["--out", str(tmp_path), "--work", str(tmp_path / "work")]
    assert main(["train", "heads", "massv", "--windows", "10", "--steps", "2", *folders]) == 0
    assert load_head(tmp_path / "massv", pair.target, pair.draft).name == "massv"


def test_recordings_give_their_windows_with_frames(pair: ModelPair) -> None:
    args = make_parser().parse_args(["train", "heads", "massv", "--recordings", BAG])
    found = list(recorded(pair, args))
    assert len(found) > 1
    assert all(len(window.frames) and len(window.event_images) for window in found)
