"""Heads draft in our decoder from frames, from the event draft's states, and from the target's."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from crossspec_lab.bench.held_out import OPTIONS, stream
from crossspec_lab.heads.decoder import head_decoder
from crossspec_lab.heads.head import Head, Sizes
from crossspec_lab.heads.head_files import fitting_heads
from crossspec_lab.train.variants import new_head
from plain_target import generated

from crossspec_ros.drafting.policy import Policy
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import tiny_models
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


@pytest.fixture(scope="module")
def heads(pair: ModelPair) -> list[Head]:
    """The shipped head, and untrained ones that read other inputs."""
    torch.manual_seed(0)
    sizes = Sizes.of(pair.target, pair.draft)
    others = [new_head(name, sizes).eval() for name in ("L1", "eagle3")]
    return [*fitting_heads(tiny_models(), None, pair.target, pair.draft), *others]


def test_every_input_reaches_its_heads(pair: ModelPair, windows: list[Window], heads: list[Head]) -> None:
    with closing(head_decoder(pair, heads, names=())) as decoder:
        # Without a cost model all nodes are verified.
        decoder.policy = Policy(heads, None)
        drafted = set[str]()
        for window in windows[:2]:
            stream(decoder, window, frames=7)
            caption = decoder.caption(window, OPTIONS, Trace())
            assert caption.token_ids == generated(pair, window)
            drafted |= set(caption.drafted)
    assert drafted == {"massv", "L1", "eagle3"}


def test_head_drafts_beside_the_other_proposers(
    pair: ModelPair, windows: list[Window], heads: list[Head]
) -> None:
    with closing(head_decoder(pair, heads[:1])) as decoder:
        assert [one.proposer.name for one in decoder.policy.sources] == [
            "rehearsal", "memory", "event_draft", "grammar", "massv",
        ]  # fmt: skip
        stream(decoder, windows[0], frames=7)
        caption = decoder.caption(windows[0], OPTIONS, Trace())
    assert caption.token_ids == generated(pair, windows[0]) and caption.accepted["rehearsal"] > 20
