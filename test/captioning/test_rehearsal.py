"""A rehearsal changes no caption, leaves nothing behind, and stops for whatever comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest
import torch
from draft_trees import Told
from plain_target import QUESTION, chain, generated, logits

from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Limits, Policy
from crossspec_ros.drafting.proposer import REHEARSAL, Context, make_proposers
from crossspec_ros.drafting.proposers.memory import CaptionMemory
from crossspec_ros.drafting.proposers.rehearsal import RehearsalProposer
from crossspec_ros.engine.batching import together
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import RehearsalOverError
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


@pytest.fixture
def decoder(pair: ModelPair) -> Iterator[PrefillHiddenDecoder]:
    decoder = PrefillHiddenDecoder(pair, Policy(make_proposers((REHEARSAL, "memory")), None))
    yield decoder
    decoder.close()


def film(decoder: PrefillHiddenDecoder, window: Window, frames: range) -> None:
    for i in frames:
        is_last = i + 1 == len(window.frames)
        read = decoder.stream_frame(window.index, window.frames[i], window.frame_stamps_ns[i], is_last)
        if read is not None:
            read.result(20)


@pytest.mark.parametrize("after", [(), (4,), (7,), (3, 5, 6, 7)])
def test_a_rehearsed_caption_is_that_of_generate(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder, after: tuple[int, ...]
) -> None:
    for window in windows[:2]:
        texts: list[str] = []
        begin = 0
        for end in after:
            film(decoder, window, range(begin, end))
            decoder.work_ahead(window.index, QUESTION, on_rehearsal=texts.append)
            begin = end
        film(decoder, window, range(begin, 8))
        decoder.begin(window.index, QUESTION)
        caption = decoder.caption(window, QUESTION, Trace())
        assert caption.token_ids == generated(pair, window)
        # Of fewer than half of the frames nothing is rehearsed.
        assert len(texts) == sum(end >= 4 for end in after)
        rehearsal = caption.rehearsal
        assert (rehearsal.passes > 0) == bool(after) == rehearsal.is_complete
        if after:
            assert caption.accepted[REHEARSAL] > 0
            is_equal = rehearsal.token_ids == caption.token_ids
            assert caption.target_passes == 1 if is_equal else caption.target_passes < len(caption.token_ids)


def test_a_rehearsal_that_is_stopped_is_a_draft_all_the_same(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    window = windows[1]
    film(decoder, window, range(7))
    passes = iter(range(100))
    texts: list[str] = []
    assert not decoder.work_ahead(window.index, QUESTION, lambda: next(passes) < 5, texts.append)
    part = decoder._open.get(window.index).rehearsal
    assert (len(part.token_ids), part.is_complete, texts) == (6, False, [])
    film(decoder, window, range(7, 8))
    caption = decoder.caption(window, QUESTION, Trace())
    assert caption.token_ids == generated(pair, window) and caption.accepted[REHEARSAL] > 0


def test_proposers_do_not_learn_from_rehearsals(windows: list[Window], decoder: PrefillHiddenDecoder) -> None:
    memory = next(s.proposer for s in decoder.policy._sources if isinstance(s.proposer, CaptionMemory))
    film(decoder, windows[0], range(7))
    assert decoder.work_ahead(0, QUESTION)
    # Of the same frames there is no second one.
    assert not decoder.work_ahead(0, QUESTION)
    decoder.caption(windows[0], QUESTION, Trace())
    decoder.policy.finish()
    decoder._learn()
    assert memory.learned == 1


def test_a_policy_without_rehearsals_makes_none(windows: list[Window], decoder: PrefillHiddenDecoder) -> None:
    decoder.policy.limits = Limits(proposers=("memory",))
    film(decoder, windows[0], range(7))
    assert not decoder.work_ahead(0, QUESTION)
    assert decoder.caption(windows[0], QUESTION, Trace()).rehearsal.passes == 0


@pytest.mark.parametrize("is_static", [False, True])
@torch.inference_mode()
def test_nothing_of_a_rehearsal_stays_in_the_cache(
    pair: ModelPair, windows: list[Window], is_static: bool
) -> None:
    engine, window, verifier = LocalEngine(pair.target, is_static), windows[2], Told()
    engine.verifiers[""] = verifier  # type: ignore[assignment]

    def run() -> None:
        sequence = engine.sequence(Trace())

        def do(work: object) -> object:
            return together([work], engine.batcher)[0]  # type: ignore[list-item]

        for i in range(7):
            do(sequence.read_ahead(window.frames[i], i))
        length, place = sequence._row.length, sequence._place
        do(sequence.rehearse("What is this?", Trace()))
        verifier.accepts = (0, 1), 9
        do(sequence.step(chain([5, 6, 7]), None, rehearses=True))
        assert sequence._row.length > length
        do(sequence.read_ahead(window.frames[7], 7))
        unit = pair.target.spec.frame_tokens // 8
        assert sequence._row.length == length + unit and sequence._place == place + unit
        with pytest.raises(RehearsalOverError):
            do(sequence.step(DraftTree(), None, rehearses=True))
        do(sequence.ask(QUESTION, Trace()))
        verifier.accepts = (), 9
        do(sequence.step(chain([5, 6]), None))
        assert (verifier.logits - logits(pair, window, [5, 6])).abs().max() < 5e-5

    try:
        engine.scheduler.submit(run).result(60)
    finally:
        engine.close()


def test_a_frame_is_read_before_the_next_pass_of_a_rehearsal(pair: ModelPair, windows: list[Window]) -> None:
    engine, window = LocalEngine(pair.target), windows[0]
    session = engine.open(0, Trace())
    for i in range(7):
        session.append(window.frames[i], i)
    session.rehearse(QUESTION, Trace())
    assert len(session.step(DraftTree()).result(20).tokens) == 1
    held, go = threading.Event(), threading.Event()
    engine.scheduler.submit(lambda: (held.set(), go.wait(20)))
    held.wait(20)
    step, read = session.step(DraftTree()), session.append(window.frames[7], 7)
    go.set()
    read.result(20)
    with pytest.raises(CancelledError):
        step.result(20)
    # The session goes on.
    session.ask(QUESTION, Trace(), 8)
    assert len(session.step(DraftTree()).result(20).tokens) == 1
    session.close()
    engine.close()


def test_the_rest_of_a_rehearsal_is_proposed_where_the_two_go_on_alike() -> None:
    words = tuple(range(10, 30))

    def proposed(*tokens: int) -> tuple[int, ...]:
        return RehearsalProposer().propose(Context("", tokens=tokens, rehearsal=words), 5, 0.1).token_ids

    assert proposed() == (10, 11, 12, 13, 14)
    assert proposed(10, 11) == (12, 13, 14, 15, 16)
    # A word was replaced, or came in between; nothing is alike.
    assert proposed(10, 99) == (12, 13, 14, 15, 16)
    assert proposed(10, 98, 99, 13, 14) == (15, 16, 17, 18, 19)
    assert proposed(1, 2, 3) == ()
