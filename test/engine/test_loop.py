"""The engine's loop: robots share passes, a failure is its request's alone, and nothing is left behind."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import CancelledError
from contextlib import closing

import numpy as np
import pytest
import torch
from asked import WAIT_S, Asked, film, given
from draft_trees import Told, path_to, random_tree
from plain_target import chain, generated, logits

from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.pass_cost import SIZES, PassCost
from crossspec_ros.engine.sequence import TargetSequence
from crossspec_ros.engine.tree import ROOT
from crossspec_ros.errors import InputError, NonFiniteError
from crossspec_ros.telemetry.trace import Trace


def hold(engine):
    """Hold the engine's thread; returns what lets it go."""
    held, go = threading.Event(), threading.Event()
    thread = threading.Thread(target=engine._call, args=(lambda: (held.set(), go.wait(WAIT_S)),))
    thread.start()
    assert held.wait(WAIT_S)
    return go.set


def wait_for(is_so):
    end_s = time.monotonic() + WAIT_S
    while not is_so() and time.monotonic() < end_s:
        time.sleep(0.01)


def caption(engine, request, window):
    """Tokens about a window, in as many passes as they take."""
    answer = Asked(limit=100)
    engine.ask(request, answer, given(window)).result(WAIT_S)
    return answer.tokens


@pytest.fixture
def engine(pair):
    with closing(LocalEngine(pair.target)) as engine:
        yield engine


@pytest.fixture(params=[False, True], ids=["dynamic", "static"])
def fleet(request, pair):
    """An engine whose robots always share passes."""
    with closing(LocalEngine(pair.target, request.param, robots=3)) as engine:
        engine.warm_up(1)
        free = dict.fromkeys(SIZES, 1.0)
        engine._loop.cost = PassCost(free, shared={3: free})
        yield engine


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_frames_questions_and_trees_of_several_robots_share_passes(pair, windows, fleet, attention):
    rng = random.Random(11)
    seen = []

    def ask(robot, passes):
        """Trees of any shape, of which any path is accepted."""
        accepted, told = list[int](), Told()

        def guess(tokens):
            tree = random_tree(rng, rng.randrange(20), pair.target.vocabulary)
            path = path_to(tree, rng.randrange(ROOT, len(tree)))
            told.accepts = path, rng.randrange(3, pair.target.vocabulary)
            return tree

        def keep():
            seen.append((robot, accepted.copy(), told.logits[0]))
            accepted[:] = answer.tokens

        answer = Asked(guess, passes, on_step=keep, accept=told)
        return answer

    pair.target.module.set_attn_implementation(attention)
    try:
        requests = [fleet.open(0, Trace(), f"robot{i}") for i in range(3)]
        # Some frames are there, others come with the question, and the third joins later.
        film(fleet, requests[0], windows[0], range(5))
        release = hold(fleet)
        answers = [ask(0, 6), ask(1, 4)]
        for i, answer in enumerate(answers):
            fleet.ask(requests[i], answer, given(windows[i]))
        answers.append(ask(2, 3))
        fleet.ask(requests[2], answers[2], given(windows[2]))
        release()
        for answer in answers:
            answer.future.result(WAIT_S)
    finally:
        pair.target.module.set_attn_implementation("sdpa")
    assert max(step.rows for answer in answers for step in answer.steps) == 3
    for robot, tokens, first in seen:
        if pair.target.spec.eos_ids[0] not in tokens:
            assert (first - logits(pair, windows[robot], tokens)[-1]).abs().max() < 5e-5


def test_what_has_outgrown_its_row_has_passes_of_its_own(pair, windows, fleet):
    requests = [fleet.open(0, Trace(), f"robot{i}") for i in range(2)]
    room = fleet.runner.capacity
    trees = {0: [chain([7] * room), chain([11])], 1: [chain([12]), chain([12])]}
    for turn in range(2):
        answers = [Asked(lambda tokens, tree=trees[i][turn]: tree) for i in range(2)]
        release = hold(fleet)
        for i, answer in enumerate(answers):
            fleet.ask(requests[i], answer, given(windows[i]))
        release()
        for i, answer in enumerate(answers):
            answer.future.result(WAIT_S)
            assert answer.tokens == generated(pair, windows[i])[: len(answer.tokens)]
            assert answer.steps[0].rows == 1


def test_a_bad_frame_is_its_own_robots_failure(pair, windows, fleet, monkeypatch):
    encode, calls = pair.target.encode, list[int]()

    def picky(frames):
        calls.append(len(frames))
        if (frames == 77).all((1, 2, 3)).any():
            raise ValueError("a frame that no tower takes")
        return encode(frames)

    monkeypatch.setattr(pair.target, "encode", picky)
    frames = [windows[0].frames[0], np.full_like(windows[0].frames[0], 77), windows[2].frames[0]]
    release = hold(fleet)
    read = [fleet.add_frame(fleet.open(0, Trace(), f"r{i}"), frame, 0) for i, frame in enumerate(frames)]
    release()
    errors = [one.exception(WAIT_S) for one in read]
    assert [type(error) for error in errors] == [type(None), ValueError, type(None)]
    assert calls == [3, 1, 1, 1]


def test_a_robot_whose_frames_cannot_be_added_doubles_no_other_ones(pair, windows, fleet, monkeypatch):
    unit, calls = pair.target.unit, list[int]()

    def fails_once(features, index):
        calls.append(index)
        if len(calls) == len(windows[0].frames) + 1:
            raise RuntimeError("no memory")
        return unit(features, index)

    monkeypatch.setattr(pair.target, "unit", fails_once)
    answers, release = [Asked(limit=100) for _ in range(2)], hold(fleet)
    for i, answer in enumerate(answers):
        fleet.ask(fleet.open(0, Trace(), f"robot{i}"), answer, given(windows[i]))
    release()
    for i, answer in enumerate(answers):
        answer.future.result(WAIT_S)
        assert answer.tokens == generated(pair, windows[i])


class Panic(BaseException):
    """As libraries in Rust raise it."""


@pytest.mark.parametrize("error", [RuntimeError, Panic, InputError])
@pytest.mark.parametrize("where", ["propose", "take", "encode", "units", "read"])
def test_what_fails_is_told_and_the_frames_are_read_again(pair, windows, engine, monkeypatch, error, where):
    def fail(*_):
        raise error("no memory")

    request = engine.open(0, Trace())
    film(engine, request, windows[0], range(4))
    answer = Asked()
    with monkeypatch.context() as broken:
        owners = {"encode": pair.target, "units": TargetSequence, "read": engine.runner}
        owner = owners.get(where, answer)
        broken.setattr(owner, where, fail)
        engine.ask(request, answer, given(windows[0]))
        assert type(answer.future.exception(WAIT_S)) is error
    assert caption(engine, request, windows[0]) == generated(pair, windows[0]) and not engine.pulse.death


def test_a_question_that_is_cancelled_leaves_the_frames(pair, windows, engine):
    request, begun = engine.open(0, Trace()), threading.Event()
    endless = Asked(limit=10**6, question="Who?", on_step=begun.set)
    engine.ask(request, endless, given(windows[0]))
    assert begun.wait(WAIT_S)
    engine.cancel(request)
    assert isinstance(endless.future.exception(WAIT_S), CancelledError)
    answer = Asked(limit=100)
    engine.ask(request, answer, given(windows[0])).result(WAIT_S)
    assert answer.tokens == generated(pair, windows[0]) and "frame_encode" not in answer.trace.stages


def test_buffers_come_back_and_what_is_asked_of_a_dropped_window_is_cancelled(windows, engine):
    engine.warm_up(2)
    request = engine.open(0, Trace())
    film(engine, request, windows[0], range(2))
    assert len(engine.runner._free) == 1
    release = hold(engine)
    read = [engine.add_frame(request, windows[0].frames[0], i) for i in range(3)]
    engine.drop(request)
    assert all(one.cancelled() for one in read)
    release()
    assert engine._call(lambda: len(engine.runner._free)) == 2
    late = Asked()
    engine.ask(request, late, given(windows[0]))
    assert isinstance(late.future.exception(WAIT_S), CancelledError)
    assert engine.add_frame(request, windows[0].frames[2], 2).cancelled()
    engine.drop(request)
    assert engine._call(lambda: len(engine.runner._free)) == 2


def test_the_end_of_the_engine_waits_for_the_pass_in_flight_and_cancels_the_rest(pair, windows):
    engine, begun = LocalEngine(pair.target), threading.Event()
    request = engine.open(0, Trace())
    endless, behind = Asked(limit=10**6, on_step=begun.set), Asked()
    engine.ask(request, endless, given(windows[0]))
    engine.ask(request, behind, given(windows[0]))
    assert begun.wait(WAIT_S)
    engine.close(WAIT_S)
    for answer in (endless, behind):
        assert isinstance(answer.future.exception(WAIT_S), CancelledError)
    assert not engine.pulse.death
    with pytest.raises(CancelledError):
        engine.warm_up(1)


def test_a_rehearsal_gives_way_to_the_last_frame_but_one_and_then_begins_again(pair, windows, engine):
    window, rehearsals = windows[0], list[Asked]()

    def come():
        # Frames come after the first and the third pass of the first rehearsal.
        if len(rehearsals) == 1:
            for i in {1: (4, 5), 3: (6,)}.get(len(rehearsals[0].steps), ()):
                engine.add_frame(request, window.frames[i], window.frame_stamps_ns[i])

    def plan():
        rehearsals.append(Asked(limit=100, on_step=come))
        return rehearsals[-1]

    request = engine.open(0, Trace(), plan=plan)
    film(engine, request, window, range(4))
    wait_for(lambda: len(rehearsals) == 2 and not request.has_more)
    first, second = rehearsals
    assert len(first.steps) == 3 and first.future.done()
    assert second.steps[-1].ended and second.prepared == 1 and first.prepared == 0
    assert caption(engine, request, window) == generated(pair, window)


@pytest.mark.parametrize("frames", [0, 3, 8])
def test_nothing_is_rehearsed_of_few_frames_or_of_all(windows, engine, frames):
    planned = Asked()
    request = engine.open(0, Trace(), plan=lambda: planned)
    release = hold(engine)
    read = [engine.add_frame(request, windows[0].frames[i], i) for i in range(frames)]
    release()
    for one in read:
        one.result(WAIT_S)
    wait_for(lambda: not request.has_more)
    assert planned.steps == [] and planned.prepared == bool(frames)


def test_a_rehearsal_that_fails_costs_the_answer_nothing(pair, windows, engine):
    def fail():
        raise RuntimeError("no words")

    rehearsed = Asked(on_step=fail)
    request = engine.open(0, Trace(), plan=lambda: rehearsed)
    film(engine, request, windows[0], range(7))
    wait_for(lambda: not request.has_more)
    assert caption(engine, request, windows[0]) == generated(pair, windows[0]) and rehearsed.rests == 1


def test_scores_that_can_wait_come_after_questions_and_frames(windows, engine):
    request, order = engine.open(0, Trace()), list[str]()
    other = engine.open(1, Trace())
    engine.ask(request, Asked(), given(windows[0])).result(WAIT_S)
    release = hold(engine)
    scores = engine.score(request, chain([5, 6]), Trace(), given(windows[0]), can_wait=True)
    scores.add_done_callback(lambda done: order.append("scores"))
    for i in range(2):
        read = engine.add_frame(other, windows[1].frames[i], i)
        read.add_done_callback(lambda done: order.append("frame"))
    further = engine.ask(request, Asked(), given(windows[0]))
    further.add_done_callback(lambda done: order.append("answer"))
    release()
    assert len(scores.result(WAIT_S)) == 2 and order == ["answer", "frame", "frame", "scores"]


def test_a_window_that_is_not_finite_spoils_no_later_one(pair, windows, monkeypatch):
    """With static buffers every pass attends to the whole row under a mask, and 0 x NaN is NaN."""
    with closing(LocalEngine(pair.target, is_static=True)) as engine:
        engine.warm_up(1)

        def answer(frames):
            request, asked = engine.open(0, Trace()), Asked(question="What is this?")
            try:
                engine.ask(request, asked, (frames, [*range(len(frames))])).result(WAIT_S)
                return asked.tokens
            finally:
                engine.drop(request)

        # Fewer frames than in the failed window, whose last keys stay behind them.
        frames = list(windows[0].frames[:4])
        before = answer(frames)
        encode = pair.target.encode
        with monkeypatch.context() as patched:
            patched.setattr(
                pair.target, "encode", lambda frames: [part * torch.nan for part in encode(frames)]
            )
            for _ in engine.runner.pooled:
                with pytest.raises(NonFiniteError):
                    answer(list(windows[0].frames))
        assert answer(frames) == before
