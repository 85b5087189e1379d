"""A rehearsal changes no caption, gives no feedback to proposers, and yields to other work."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from plain_target import QUESTION, Guess, chain, first_frames, generated, settled, stream

from crossspec_ros.captioning.caption import Options
from crossspec_ros.drafting.policy import Limits, Policy
from crossspec_ros.drafting.proposer import Proposer, make_proposers
from crossspec_ros.drafting.proposers.chain import ChainProposer
from crossspec_ros.drafting.proposers.memory import CaptionMemory
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.settings import REHEARSAL
from crossspec_ros.telemetry.trace import Trace

WAIT_S = 20
OPTIONS = Options(QUESTION)


class Hold(Guess):
    """Proposes nothing, and blocks a rehearsal after its third token until it is released."""

    def __init__(self):
        super().__init__(self._hold)
        self.begun, self.release = threading.Event(), threading.Event()

    def _hold(self, context):
        if len(context.tokens) >= 3 and not self.begun.is_set():
            self.begun.set()
            assert self.release.wait(WAIT_S)
        return chain([])


@pytest.fixture
def hold():
    return Hold()


@pytest.fixture
def rehearsals():
    """Return the published rehearsals."""
    return []


@pytest.fixture
def decoder(decoder, rehearsals):
    decoder.policy = Policy(make_proposers((REHEARSAL, "memory")), None)
    decoder.on_rehearsal = lambda index, text: rehearsals.append((index, text))
    return decoder


def add_frame(decoder, window, i):
    """Add a frame, and wait until the engine is idle."""
    read = decoder.stream_frame(window.index, window.frames[i], window.frame_stamps_ns[i], rehearsed=OPTIONS)
    assert read is not None
    read.result(WAIT_S)
    settled(decoder)


def test_rehearsals_begin_in_the_middle(pair, windows, decoder, rehearsals):
    # The second window has one frame more than the first.
    for window in (first_frames(windows[0], 7), windows[1]):
        rehearsals.clear()
        for i in range(7):
            add_frame(decoder, window, i)
        assert [index for index, _ in rehearsals] == [window.index] * 4
        decoder.begin(window.index, OPTIONS)
        caption = decoder.caption(window, OPTIONS, trace := Trace())
        assert caption.token_ids == generated(pair, window)
        rehearsal = caption.rehearsal
        assert rehearsal.is_complete and caption.accepted[REHEARSAL] > 0
        assert rehearsals[-1][1] == pair.target.tokenizer.decode(rehearsal.token_ids).strip()
        assert caption.target_passes < len(caption.token_ids) / 2
        names = [span.name for span in trace.spans if span.stage == "rehearsal"]
        assert len(names) == rehearsal.passes and names.count("rehearsal[0]") == 4


def test_interrupted_rehearsal_is_a_draft(pair, windows, decoder, rehearsals, hold):
    decoder.policy = Policy((ChainProposer(REHEARSAL), hold), None)
    window = windows[1]
    stream(decoder, window, 4, OPTIONS)
    assert hold.begun.wait(WAIT_S)
    later = list(zip(window.frames, window.frame_stamps_ns, strict=True))[4:]
    read = [decoder.stream_frame(window.index, frame, stamp_ns) for frame, stamp_ns in later]
    hold.release.set()
    for one in read:
        assert one is not None
        one.result(WAIT_S)
    settled(decoder)
    part = decoder._live.get(window.index).rehearsal
    assert 4 <= len(part.token_ids) < 20 and not part.is_complete and rehearsals == []
    caption = decoder.caption(window, OPTIONS, Trace())
    assert caption.token_ids == generated(pair, window) and caption.accepted[REHEARSAL] > 0


def test_window_may_be_dropped_during_its_rehearsal(pair, windows, decoder, rehearsals, hold):
    decoder.policy = Policy((ChainProposer(REHEARSAL), hold), None)
    stream(decoder, windows[0], 4, OPTIONS)
    assert hold.begun.wait(WAIT_S)
    threading.Timer(0.1, hold.release.set).start()
    later = replace(windows[1], index=5)
    assert decoder.caption(later, OPTIONS, Trace()).token_ids == generated(pair, later)
    assert rehearsals == [] and hold.results[-1].ended


def test_proposers_do_not_learn_from_rehearsals(windows, decoder, rehearsals):
    memory, guess = CaptionMemory(), Guess(lambda context: chain([]))
    decoder.policy = Policy((ChainProposer(REHEARSAL), memory, guess), None)
    stream(decoder, windows[0], 7, OPTIONS)
    settled(decoder)
    assert rehearsals and guess.results == []
    caption = decoder.caption(windows[0], OPTIONS, Trace())
    settled(decoder)
    assert sum((one.tokens for one in guess.results), ()) == caption.token_ids and memory.learned == 1


@pytest.mark.parametrize("without", ["proposer", "options"])
def test_proposers_prepare_without_rehearsals(windows, decoder, rehearsals, without):
    class Preparing(Proposer):
        name, more = "preparing", 3

        def prepare(self, context, budget, worth):
            assert context.question == QUESTION and context.frames
            self.more -= 1
            return self.more > 0

        def propose(self, context, budget, worth):
            return DraftTree()

    decoder.policy = Policy((ChainProposer(REHEARSAL), preparing := Preparing()), None)
    if without == "proposer":
        decoder.policy.limits = Limits(proposers=(preparing.name,))
    stream(decoder, windows[0], 5, None if without == "options" else OPTIONS)
    settled(decoder)
    assert (preparing.more <= 0) == (without == "proposer")
    assert decoder.caption(windows[0], OPTIONS, Trace()).rehearsal.passes == 0 and rehearsals == []
