"""Streaming prefill, early answers and released buffers of a window.

The tests in test/lossless compare captions with `generate`.
"""

from __future__ import annotations

import gc
import threading
import time
import weakref
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from itertools import pairwise

import pytest
from plain_target import QUESTION, Guess, chain, first_frames, generated, script, settled, stream
from refusals import refused

from crossspec_ros.captioning.answer import Answer
from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.live_windows import LiveWindow
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.model_runner import ModelRunner
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.telemetry.trace import Trace

WAIT_S = 20
OPTIONS = Options(QUESTION)


def begin(decoder, window, options=OPTIONS):
    """Add the window's frames, and begin its answer before it closes."""
    last = len(window.frames) - 1
    stream(decoder, window, last)
    assert decoder.stream_frame(window.index, window.frames[last], window.frame_stamps_ns[last], True) is None
    decoder.begin(window.index, options)


def encoded(trace):
    return [span.name for span in trace.spans if span.stage == "frame_encode"]


def test_window_that_loses_frames_is_prefilled_anew(pair, windows, decoder):
    stream(decoder, windows[0], 5)
    kept = [0, 2, 3, 6, 7]
    stamps = tuple(windows[0].frame_stamps_ns[i] for i in kept)
    window = replace(windows[0], frames=windows[0].frames[kept], frame_stamps_ns=stamps)
    caption = decoder.caption(window, OPTIONS, trace := Trace())
    assert caption.token_ids == generated(pair, window)
    # The frames that were not prefilled are encoded together.
    assert encoded(trace) == [f"frame_encode[{i}]" for i in (0, 1, 2, 3, 4, 4)]
    # A further question encodes nothing.
    decoder.ask(Options("Is it dark?"), trace := Trace())
    assert encoded(trace) == []


def test_two_frames_with_one_stamp_are_two_frames(pair, windows, decoder):
    doubled = replace(windows[0], frame_stamps_ns=(0, 0, *windows[0].frame_stamps_ns[2:]))
    assert decoder.caption(doubled, OPTIONS, Trace()).token_ids == generated(pair, windows[0])


def test_window_begins_anew_with_time(pair, windows, decoder):
    stream(decoder, windows[1], 5)
    again = replace(windows[0], index=1)
    stream(decoder, again, 7)
    assert decoder.caption(again, OPTIONS, Trace()).token_ids == generated(pair, again)


def test_unreadable_frame_costs_no_caption(pair, windows, decoder, monkeypatch):
    stream(decoder, windows[0], 1)
    with monkeypatch.context() as broken:
        broken.setattr(ModelRunner, "read", lambda self, inputs: 1 / 0)
        reads = [decoder.stream_frame(0, windows[0].frames[i], windows[0].frame_stamps_ns[i]) for i in (1, 2)]
        # The second frame must not be prefilled without the first.
        assert all(read and isinstance(read.exception(WAIT_S), ZeroDivisionError) for read in reads)
    assert decoder.caption(windows[0], OPTIONS, Trace()).token_ids == generated(pair, windows[0])


def test_frames_during_an_answer_are_read_together(pair, windows, decoder):
    reads: list[Future[None] | None] = []

    def next_window_comes(text):
        while len(reads) < 8:
            i = len(reads)
            reads.append(decoder.stream_frame(1, windows[1].frames[i], windows[1].frame_stamps_ns[i]))

    first = decoder.caption(windows[0], OPTIONS, Trace(), next_window_comes)
    for read in reads:
        assert read is not None
        read.result(WAIT_S)
    second = decoder.caption(windows[1], OPTIONS, trace := Trace())
    assert first.token_ids == generated(pair, windows[0])
    assert second.token_ids == generated(pair, windows[1])
    assert [span.stage for span in trace.spans].count("target_prefill") == 2


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (" ", "question-empty"),
        ("x y " * 2400, "question-of-many-tokens"),
        ("x" * 3_000_000, "question-too-long"),
        ("Who is on the road, and what are they doing there?", "no-window-yet"),
    ],
)
def test_invalid_question_is_refused(decoder, question, code):
    with refused(code):
        decoder.ask(Options(question), Trace())


def test_failures_cost_no_later_answer(decoder, windows, monkeypatch):
    def fail(*_):
        raise RuntimeError("no listener")

    window = windows[0]
    assert decoder.caption(window, OPTIONS, Trace(), fail).token_ids == generated(decoder.pair, window)
    with monkeypatch.context() as broken:
        broken.setattr(ModelRunner, "read", fail)
        with pytest.raises(RuntimeError):
            decoder.ask(OPTIONS, Trace())
    assert decoder.ask(OPTIONS, Trace(), fail).token_ids == generated(decoder.pair, window)


def test_verified_words_come_in_order(pair, windows, decoder):
    begun, words = threading.Event(), list[str]()

    def guess(context):
        if context.tokens:
            begun.set()
        return chain([])

    def record(text):
        if threading.current_thread() is threading.main_thread():
            # The engine makes further passes meanwhile.
            time.sleep(0.3)
        words.append(text)

    decoder.policy = Policy((Guess(guess),), None)
    begin(decoder, windows[0])
    assert begun.wait(WAIT_S)
    caption = decoder.caption(windows[0], OPTIONS, Trace(), record)
    assert len(words) > 1 and words[-1] == caption.text
    assert all(later.startswith(earlier) for earlier, later in pairwise(words))


def test_cancel_and_deadline_end_after_the_pass(windows, decoder):
    cancel = threading.Event()
    cancel.set()
    caption = decoder.caption(windows[0], OPTIONS, Trace(), cancel=cancel)
    assert 0 < len(caption.token_ids) < 9 and not caption.late
    caption = decoder.caption(windows[0], OPTIONS, Trace(), deadline_ns=time.perf_counter_ns())
    assert 0 < len(caption.token_ids) < 9 and caption.late
    later = time.perf_counter_ns() + 60 * 10**9
    assert not decoder.caption(windows[0], OPTIONS, Trace(), deadline_ns=later).late


def test_captions_are_learned_once(windows, decoder):
    for deadline_ns in (None, 0):
        guess = Guess(lambda context: chain([]))
        decoder.policy = Policy((guess,), None)
        caption = decoder.caption(windows[0], OPTIONS, Trace(), deadline_ns=deadline_ns)
        settled(decoder)
        assert [one.ended for one in guess.results] == [False] * (len(caption.token_ids) - 1) + [True]
        assert sum((one.tokens for one in guess.results), ()) == caption.token_ids


@pytest.mark.parametrize("is_done", [False, True])
def test_early_answer_is_published_after_the_close(pair, windows, decoder, is_done):
    wanted = generated(pair, windows[0])
    decoder.policy = Policy((script(wanted[:20]),), None)
    begin(decoder, windows[0])
    if is_done:
        settled(decoder)
    trace, words = Trace(), list[str]()
    trace.mark("closed")
    caption = decoder.caption(windows[0], OPTIONS, trace, words.append)
    assert caption.token_ids == wanted and words[-1] == caption.text
    assert caption.target_passes == 1 + len(wanted) - 21
    # The last frame is encoded and read together with the question.
    assert [span.name for span in trace.spans].count("target_prefill[8]") == 1
    assert trace.marks["first_token"] >= trace.marks["closed"]
    answer = next(span for span in trace.spans if span.name == "answer")
    assert (answer.end_ns < trace.marks["closed"]) == is_done


@pytest.mark.parametrize(
    "other",
    [
        Options("Is it dark?"),
        Options(QUESTION, sampling=Sampling(3.0, 1.0, 1)),
        Options(QUESTION, 5),
        "frames",
        "no frames",
    ],
    ids=["question", "sampling", "length", "frames", "no frames"],
)
def test_early_answer_with_other_inputs_is_dropped(pair, windows, decoder, other):
    window, held, release = windows[0], threading.Event(), threading.Event()

    def hold(context):
        if len(context.tokens) == 2:
            held.set()
            assert release.wait(WAIT_S)
        return chain([])

    guess = Guess(hold)
    decoder.policy = Policy((guess,), None)
    begin(decoder, window, other if isinstance(other, Options) else OPTIONS)
    assert held.wait(WAIT_S)
    if other == "frames":
        # `trustworthy` removed a blind frame.
        window = replace(window, frames=window.frames[1:], frame_stamps_ns=window.frame_stamps_ns[1:])
    elif other == "no frames":
        window = replace(first_frames(window, 0), event_images=window.event_images[:0])
    threading.Timer(0.1, release.set).start()
    caption = decoder.caption(window, OPTIONS, Trace())
    settled(decoder)
    if other == "no frames":
        assert caption.source == "none" and not any(result.ended for result in guess.results)
        return
    assert caption.token_ids == generated(pair, window)
    assert sum(result.ended for result in guess.results) == 1


def test_failed_early_answer_is_repeated(pair, windows, decoder, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(Answer, "take", lambda self, tree, step: 1 / 0)
        begin(decoder, windows[0])
        settled(decoder)
    assert decoder.caption(windows[0], OPTIONS, Trace()).token_ids == generated(pair, windows[0])


def test_buffers_are_always_released(pair, windows, monkeypatch):
    engine = LocalEngine(pair.target)
    engine.warm_up(3)
    decoder = PrefillHiddenDecoder(pair, Policy((), None), engine)
    alone = decoder.alone()

    def free():
        settled(decoder)
        return engine._call(lambda: len(engine.runner._free))  # type: ignore[attr-defined]

    begin(decoder, windows[0])
    # Time begins anew.
    stream(decoder, windows[0], 1)
    decoder.caption(windows[0], OPTIONS, Trace())
    begin(decoder, windows[1])
    decoder.give_up()
    decoder.caption(windows[1], OPTIONS, Trace())
    alone.caption(windows[1], OPTIONS, Trace())
    alone.forget()
    # Only the last captioned window holds a buffer.
    assert free() == 2
    with monkeypatch.context() as broken:
        broken.setattr(ModelRunner, "read", lambda self, inputs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            decoder.caption(windows[2], OPTIONS, Trace())
    assert free() == 3
    stream(decoder, windows[3], 1)
    assert free() == 2
    alone.close()
    decoder.close()
    assert free() == 3
    handle = engine.open(9, Trace())
    engine.drop(handle)
    engine.drop(handle)
    late = Answer(LiveWindow(9), Context(QUESTION), Policy((), None), Trace(), 9)
    assert isinstance(engine.ask(handle, late, ((), ())).exception(WAIT_S), CancelledError)
    engine.close()
    with pytest.raises(CancelledError):
        engine.warm_up(1)


def test_dropped_window_is_freed(decoder, windows):
    """Reference counting frees its frames and the embeddings of its answer."""
    gc.disable()
    try:
        begin(decoder, windows[0])
        live = decoder._live.find(windows[0].index)
        assert live is not None
        frees = weakref.ref(live), weakref.ref(live.answer)
        del live
        for window in windows[:2]:
            decoder.caption(window, OPTIONS, Trace())
        # The engine's thread may still be in the last pass.
        end_s = time.monotonic() + WAIT_S
        while any(free() for free in frees) and time.monotonic() < end_s:
            time.sleep(0.01)
        assert not any(free() for free in frees)
    finally:
        gc.enable()
