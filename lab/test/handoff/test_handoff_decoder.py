"""Aligned features stand in for frames only where that was asked for and accepted, and captions say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from crossspec_lab.compare.held_out import stream
from crossspec_lab.handoff.network import Handoff, new_handoff
from crossspec_lab.handoff.stand_in import FeatureHandoff
from plain_target import QUESTION, generated

from crossspec_ros.captioning.caption import RESTS_ON
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.settings import HANDOFFS
from crossspec_ros.captioning.wording import caption_line
from crossspec_ros.drafting.heads.head import Sizes
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

pytestmark = pytest.mark.nightly

Open = Callable[[str, Handoff], PrefillHiddenDecoder]


@pytest.fixture
def opened(pair: ModelPair) -> Iterator[Open]:
    decoders: list[PrefillHiddenDecoder] = []

    def make(mode: str, handoff: Handoff) -> PrefillHiddenDecoder:
        stand_in = FeatureHandoff(handoff, pair.target, mode)
        decoders.append(PrefillHiddenDecoder(pair, Policy((), None), handoff=stand_in))
        return decoders[-1]

    yield make
    for decoder in decoders:
        decoder.close()


def untrained(pair: ModelPair) -> Handoff:
    torch.manual_seed(0)
    return new_handoff(pair.target, pair.draft).eval().requires_grad_(False)


class Clairvoyant(Handoff):
    """Gives the true features of a window, and is as sure as it is told to be."""

    def __init__(self, pair: ModelPair, window: Window, sure: float = 1.0) -> None:
        super().__init__(Sizes.of(pair.target, pair.draft), 8, 17, 4, 17)
        with torch.inference_mode():
            self._true, self._sure = torch.stack(list(pair.target.encode(window.frames))), sure

    def forward(self, events: torch.Tensor) -> torch.Tensor:
        return self._true[None]

    def expected(self, events: torch.Tensor) -> torch.Tensor:
        return torch.full((len(events),), self._sure)


@pytest.fixture
def encoded(pair: ModelPair, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many frames the tower was given at a time."""
    counts: list[int] = []
    encode = pair.target.encode
    monkeypatch.setattr(pair.target, "encode", lambda frames: (counts.append(len(frames)), encode(frames))[1])
    return counts


def without_frames(window: Window) -> Window:
    return replace(window, frames=window.frames[:0], frame_stamps_ns=())


@pytest.mark.parametrize("mode", HANDOFFS[1:])
@pytest.mark.parametrize("is_live", [False, True])
def test_true_features_without_frames_give_the_true_caption(
    pair: ModelPair, windows: list[Window], opened: Open, mode: str, is_live: bool
) -> None:
    decoder = opened(mode, Clairvoyant(pair, windows[0]))
    window = without_frames(windows[0])
    if is_live:
        stream(decoder, window, QUESTION)
    said = decoder.caption(window, QUESTION, Trace())
    assert said.token_ids == generated(pair, windows[0])
    assert said.lossy and said.source == "handoff" and RESTS_ON[said.source] == "events"
    assert "[lossy" in caption_line(window, 0, said, ())
    assert decoder.ask("Is it dark?", Trace()).lossy, "its answer rests on the same features"


def test_accepted_features_save_the_tower_its_work(
    pair: ModelPair, windows: list[Window], opened: Open, encoded: list[int]
) -> None:
    wanted = generated(pair, windows[1])
    for mode, looked_at in (("predicted", 0), ("probed", 1)):
        handoff = Clairvoyant(pair, windows[1])
        encoded.clear()
        said = opened(mode, handoff).caption(windows[1], QUESTION, Trace())
        assert (said.token_ids, said.lossy) == (wanted, True)
        assert sum(encoded) == looked_at


@pytest.mark.parametrize("is_live", [False, True])
def test_refused_features_give_the_targets_own_caption(
    pair: ModelPair, windows: list[Window], opened: Open, encoded: list[int], is_live: bool
) -> None:
    wanted = generated(pair, windows[2])
    for mode, handoff in (
        ("predicted", Clairvoyant(pair, windows[2], sure=0.84)),
        ("probed", untrained(pair)),
        ("missing", untrained(pair)),
    ):
        decoder = opened(mode, handoff)
        encoded.clear()
        if is_live:
            stream(decoder, windows[2], QUESTION)
            decoder.begin(windows[2].index, QUESTION)
        said = decoder.caption(windows[2], QUESTION, Trace())
        assert (said.token_ids, said.lossy, said.source) == (wanted, False, "target")
        assert sum(encoded) == 8 + (mode == "probed"), "one that is compared is encoded twice"
