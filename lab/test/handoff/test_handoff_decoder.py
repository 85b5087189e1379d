"""Aligned features stand in for frames only where that was asked for and accepted, and captions say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from crossspec_lab.handoff.network import FOLDER, Handoff, save_handoff
from crossspec_lab.handoff.stand_in import FeatureHandoff
from plain_target import QUESTION, generated, live

from crossspec_ros.captioning.asked_models import load_handoff
from crossspec_ros.captioning.caption import RESTS_ON, Caption
from crossspec_ros.captioning.caption_command import _row
from crossspec_ros.captioning.code_replay import Captioned
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.settings import HANDOFFS, CaptionerSettings
from crossspec_ros.captioning.wording import caption_line
from crossspec_ros.drafting.heads.head import Sizes
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.errors import InputError
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

Open = Callable[[str, Handoff], PrefillHiddenDecoder]
PATCHES = 17


@pytest.fixture
def opened(pair: ModelPair) -> Iterator[Open]:
    decoders: list[PrefillHiddenDecoder] = []

    def make(mode: str, handoff: Handoff) -> PrefillHiddenDecoder:
        decoders.append(PrefillHiddenDecoder(pair, Policy((), None), handoff=FeatureHandoff(handoff, mode)))
        return decoders[-1]

    yield make
    for decoder in decoders:
        decoder.close()


def untrained(pair: ModelPair) -> Handoff:
    torch.manual_seed(0)
    handoff = Handoff(Sizes.of(pair.target, pair.draft), 8, PATCHES, 5, PATCHES)
    return handoff.eval().requires_grad_(False)


class Clairvoyant(Handoff):
    """Gives the true features of a window, and is as sure as it is told to be."""

    def __init__(self, pair: ModelPair, window: Window, sure: float = 1.0) -> None:
        super().__init__(Sizes.of(pair.target, pair.draft), 8, PATCHES, 5, PATCHES)
        with torch.inference_mode():
            self._true, self._sure = torch.stack(list(pair.target.encode(window.frames))), sure

    def forward(self, events: torch.Tensor) -> torch.Tensor:
        return self._true[None]

    def predicted(self, events: torch.Tensor) -> torch.Tensor:
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
        live(decoder, window)
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
        ("predicted", Clairvoyant(pair, windows[2], sure=0.79)),
        ("probed", untrained(pair)),
        ("missing", untrained(pair)),
    ):
        decoder = opened(mode, handoff)
        encoded.clear()
        if is_live:
            for image in windows[2].event_images:
                decoder.stream_event_image(windows[2].index, image, QUESTION)
            for i, (frame, stamp) in enumerate(
                zip(windows[2].frames, windows[2].frame_stamps_ns, strict=True)
            ):
                decoder.stream_frame(windows[2].index, frame, stamp, i == 7)
            decoder.begin(windows[2].index, QUESTION)
            decoder.advance(windows[2].index)
        said = decoder.caption(windows[2], QUESTION, Trace())
        assert (said.token_ids, said.lossy, said.source) == (wanted, False, "target")
        assert sum(encoded) == 8, "no frame is encoded twice"


def test_an_answer_that_began_from_features_says_so_at_the_close(
    pair: ModelPair, windows: list[Window], opened: Open, encoded: list[int]
) -> None:
    decoder, window = opened("predicted", Clairvoyant(pair, windows[3])), windows[3]
    encoded.clear()
    draft = [decoder.stream_event_image(window.index, image, QUESTION) for image in window.event_images][-1]
    assert draft is not None
    draft.result(20)
    for i, (frame, stamp) in enumerate(zip(window.frames, window.frame_stamps_ns, strict=True)):
        decoder.stream_frame(window.index, frame, stamp, i == 7)
    decoder.begin(window.index, QUESTION)
    while decoder.advance(window.index):
        pass
    said = decoder.caption(window, QUESTION, Trace())
    assert said.lossy and not encoded
    # The next window has no events, and all is as ever.
    eventless = replace(windows[0], index=window.index + 1, event_images=window.event_images[:0])
    said = decoder.caption(eventless, QUESTION, Trace())
    assert (said.token_ids, said.lossy) == (generated(pair, windows[0]), False)
    assert not decoder.ask(QUESTION, Trace()).lossy


def test_where_nothing_was_seen_nothing_is_said(pair: ModelPair, blind: Window, opened: Open) -> None:
    nothing = replace(blind, event_images=np.empty((0, 0, 0, 3), np.uint8))
    said = opened("missing", untrained(pair)).caption(nothing, QUESTION, Trace())
    assert (said.source, said.lossy) == ("none", False)


def test_without_hand_off_the_event_draft_speaks_as_ever(pair: ModelPair, blind: Window) -> None:
    assert load_handoff(CaptionerSettings(), pair) is None
    with closing(PrefillHiddenDecoder(pair, Policy((), None))) as decoder:
        said = decoder.caption(blind, QUESTION, Trace())
    assert (said.source, said.lossy) == ("event_draft", False)


def test_rows_of_a_recording_say_which_captions_are_lossy(blind: Window) -> None:
    for source in RESTS_ON:
        row = _row(Captioned(blind, [], (), Caption("a", (1,), source), Trace()))
        assert row["lossy"] == (row["caption_source"] == "handoff") == (source == "handoff")


def test_what_cannot_be_handed_off_is_refused_in_a_sentence(pair: ModelPair, tmp_path: Path) -> None:
    missing = CaptionerSettings(handoff="missing", models_folder=str(tmp_path))
    with pytest.raises(InputError, match="holds no feature hand-off"):
        load_handoff(missing, pair)
    save_handoff(untrained(pair), tmp_path / FOLDER, {})
    assert load_handoff(missing, pair) is not None
