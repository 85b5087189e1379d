"""The engine's loop: robots share passes, a failure affects only its request, and buffers are freed."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import CancelledError
from contextlib import closing

import numpy as np
import pytest
import torch
from draft_trees import ScriptedAcceptance, path_to, random_tree
from plain_target import chain, generated, logits
from scripted_answer import WAIT_S, ScriptedAnswer, film, frames_of

from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.pass_cost import SIZES, PassCost
from crossspec_ros.engine.sequence import TargetSequence
from crossspec_ros.engine.tree import ROOT
from crossspec_ros.errors import InputError, NonFiniteError
from crossspec_ros.telemetry.trace import Trace


def hold(engine):
    """Block the engine's thread; return the function that releases it."""
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
    """Return the tokens of a complete answer about a window."""
    answer = ScriptedAnswer(limit=100)
    engine.ask(request, answer, frames_of(window)).result(WAIT_S)
    return answer.tokens


@pytest.fixture
def engine(pair):
    with closing(LocalEngine(pair.target)) as engine:
        yield engine


@pytest.fixture(params=[False, True], ids=["dynamic", "static"])
def fleet(request, pair):
    """Yield an engine whose robots always share passes."""
    with closing(LocalEngine(pair.target, request.param, robots=3)) as engine:
        engine.warm_up(1)
        free = dict.fromkeys(SIZES, 1.0)
        engine._loop.cost = PassCost(free, shared={3: free})
        yield engine


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_shared_passes_have_logits_of_separate_ones(pair, windows, fleet, attention):
    """Frames, questions and trees of three robots share passes."""
    rng = random.Random(11)
    seen = []

    def ask(robot, passes):
        """Return an answer with random trees, of which random paths are accepted."""
        accepted, acceptance = list[int](), ScriptedAcceptance()

        def guess(tokens):
            tree = random_tree(rng, rng.randrange(20), pair.target.vocabulary)
            path = path_to(tree, rng.randrange(ROOT, len(tree)))
            acceptance.accepts = path, rng.randrange(3, pair.target.vocabulary)
            return tree

        def keep():
            seen.append((robot, accepted.copy(), acceptance.logits[0]))
            accepted[:] = answer.tokens

        answer = ScriptedAnswer(guess, passes, on_step=keep, accept=acceptance)
        return answer

    pair.target.module.set_attn_implementation(attention)
    try:
        requests = [fleet.open(0, Trace(), f"robot{i}") for i in range(3)]
        # The engine has some frames, others come with the question, and the third robot joins later.
        film(fleet, requests[0], windows[0], range(5))
        release = hold(fleet)
        answers = [ask(0, 6), ask(1, 4)]
        for i, answer in enumerate(answers):
            fleet.ask(requests[i], answer, frames_of(windows[i]))
        answers.append(ask(2, 3))
        fleet.ask(requests[2], answers[2], frames_of(windows[2]))
        release()
        for answer in answers:
            answer.future.result(WAIT_S)
    finally:
        pair.target.module.set_attn_implementation("sdpa")
    assert max(step.rows for answer in answers for step in answer.steps) == 3
    for robot, tokens, first in seen:
        if pair.target.spec.eos_ids[0] not in tokens:
            assert (first - logits(pair, windows[robot], tokens)[-1]).abs().max() < 5e-5


def test_outgrown_row_does_not_share_passes(pair, windows, fleet):
    requests = [fleet.open(0, Trace(), f"robot{i}") for i in range(2)]
    room = fleet.runner.capacity
    trees = {0: [chain([7] * room), chain([11])], 1: [chain([12]), chain([12])]}
    for turn in range(2):
        answers = [ScriptedAnswer(lambda tokens, tree=trees[i][turn]: tree) for i in range(2)]
        release = hold(fleet)
        for i, answer in enumerate(answers):
            fleet.ask(requests[i], answer, frames_of(windows[i]))
        release()
        for i, answer in enumerate(answers):
            answer.future.result(WAIT_S)
            assert answer.tokens == generated(pair, windows[i])[: len(answer.tokens)]
            assert answer.steps[0].rows == 1


def test_bad_frame_fails_its_robot_only(pair, windows, fleet, monkeypatch):
    encode, calls = pair.target.encode, list[int]()

    def picky(frames):
        calls.append(len(frames))
        if (frames == 77).all((1, 2, 3)).any():
            raise ValueError("invalid frame")
        return encode(frames)

    monkeypatch.setattr(pair.target, "encode", picky)
    frames = [windows[0].frames[0], np.full_like(windows[0].frames[0], 77), windows[2].frames[0]]
    release = hold(fleet)
    read = [fleet.add_frame(fleet.open(0, Trace(), f"r{i}"), frame, 0) for i, frame in enumerate(frames)]
    release()
    errors = [one.exception(WAIT_S) for one in read]
    assert [type(error) for error in errors] == [type(None), ValueError, type(None)]
    assert calls == [3, 1, 1, 1]


def test_failed_unit_leaves_other_robots_frames(pair, windows, fleet, monkeypatch):
    """An error while one robot's frames are added must not add another robot's frames twice."""
    unit, calls = pair.target.unit, list[int]()

    def fails_once(features, index):
        calls.append(index)
        if len(calls) == len(windows[0].frames) + 1:
            raise RuntimeError("no memory")
        return unit(features, index)

    monkeypatch.setattr(pair.target, "unit", fails_once)
    answers, release = [ScriptedAnswer(limit=100) for _ in range(2)], hold(fleet)
    for i, answer in enumerate(answers):
        fleet.ask(fleet.open(0, Trace(), f"robot{i}"), answer, frames_of(windows[i]))
    release()
    for i, answer in enumerate(answers):
        answer.future.result(WAIT_S)
        assert answer.tokens == generated(pair, windows[i])


class Panic(BaseException):
    """Error of a library in Rust."""


@pytest.mark.parametrize("error", [RuntimeError, Panic, InputError])
@pytest.mark.parametrize("where", ["propose", "take", "encode", "units", "read"])
def test_failed_answer_reports_error_and_recovers(pair, windows, engine, monkeypatch, error, where):
    """The next answer prefills the frames again."""

    def fail(*_):
        raise error("no memory")

    request = engine.open(0, Trace())
    film(engine, request, windows[0], range(4))
    answer = ScriptedAnswer()
    with monkeypatch.context() as broken:
        owners = {"encode": pair.target, "units": TargetSequence, "read": engine.runner}
        owner = owners.get(where, answer)
        broken.setattr(owner, where, fail)
        engine.ask(request, answer, frames_of(windows[0]))
        assert type(answer.future.exception(WAIT_S)) is error
    assert caption(engine, request, windows[0]) == generated(pair, windows[0]) and not engine.pulse.death


def test_cancelled_question_keeps_frames(pair, windows, engine):
    request, begun = engine.open(0, Trace()), threading.Event()
    endless = ScriptedAnswer(limit=10**6, question="Who?", on_step=begun.set)
    engine.ask(request, endless, frames_of(windows[0]))
    assert begun.wait(WAIT_S)
    engine.cancel(request)
    assert isinstance(endless.future.exception(WAIT_S), CancelledError)
    answer = ScriptedAnswer(limit=100)
    engine.ask(request, answer, frames_of(windows[0])).result(WAIT_S)
    assert answer.tokens == generated(pair, windows[0]) and "frame_encode" not in answer.trace.stages


def test_dropped_window_frees_row_and_cancels_work(windows, engine):
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
    late = ScriptedAnswer()
    engine.ask(request, late, frames_of(windows[0]))
    assert isinstance(late.future.exception(WAIT_S), CancelledError)
    assert engine.add_frame(request, windows[0].frames[2], 2).cancelled()
    engine.drop(request)
    assert engine._call(lambda: len(engine.runner._free)) == 2


def test_close_finishes_pass_and_cancels_rest(pair, windows):
    engine, begun = LocalEngine(pair.target), threading.Event()
    request = engine.open(0, Trace())
    endless, behind = ScriptedAnswer(limit=10**6, on_step=begun.set), ScriptedAnswer()
    engine.ask(request, endless, frames_of(windows[0]))
    engine.ask(request, behind, frames_of(windows[0]))
    assert begun.wait(WAIT_S)
    engine.close(WAIT_S)
    for answer in (endless, behind):
        assert isinstance(answer.future.exception(WAIT_S), CancelledError)
    assert not engine.pulse.death
    with pytest.raises(CancelledError):
        engine.warm_up(1)


def test_late_frame_restarts_rehearsal(pair, windows, engine):
    """The last frame but one ends a rehearsal, and another one starts."""
    window, rehearsals = windows[0], list[ScriptedAnswer]()

    def come():
        # Frames arrive after the first and the third pass of the first rehearsal.
        if len(rehearsals) == 1:
            for i in {1: (4, 5), 3: (6,)}.get(len(rehearsals[0].steps), ()):
                engine.add_frame(request, window.frames[i], window.frame_stamps_ns[i])

    def plan():
        rehearsals.append(ScriptedAnswer(limit=100, on_step=come))
        return rehearsals[-1]

    request = engine.open(0, Trace(), plan=plan)
    film(engine, request, window, range(4))
    wait_for(lambda: len(rehearsals) == 2 and not request.has_more)
    first, second = rehearsals
    assert len(first.steps) == 3 and first.future.done()
    assert second.steps[-1].ended and second.prepared == 1 and first.prepared == 0
    assert caption(engine, request, window) == generated(pair, window)


@pytest.mark.parametrize("frames", [0, 3, 8])
def test_rehearsal_needs_some_but_not_all_frames(windows, engine, frames):
    planned = ScriptedAnswer()
    request = engine.open(0, Trace(), plan=lambda: planned)
    release = hold(engine)
    read = [engine.add_frame(request, windows[0].frames[i], i) for i in range(frames)]
    release()
    for one in read:
        one.result(WAIT_S)
    wait_for(lambda: not request.has_more)
    assert planned.steps == [] and planned.prepared == bool(frames)


def test_failed_rehearsal_does_not_affect_answer(pair, windows, engine):
    def fail():
        raise RuntimeError("no words")

    rehearsed = ScriptedAnswer(on_step=fail)
    request = engine.open(0, Trace(), plan=lambda: rehearsed)
    film(engine, request, windows[0], range(7))
    wait_for(lambda: not request.has_more)
    assert caption(engine, request, windows[0]) == generated(pair, windows[0]) and rehearsed.rests == 1


def test_patient_scores_follow_questions_and_frames(windows, engine):
    request, order = engine.open(0, Trace()), list[str]()
    other = engine.open(1, Trace())
    engine.ask(request, ScriptedAnswer(), frames_of(windows[0])).result(WAIT_S)
    release = hold(engine)
    scores = engine.score(request, chain([5, 6]), Trace(), frames_of(windows[0]), can_wait=True)
    scores.add_done_callback(lambda done: order.append("scores"))
    for i in range(2):
        read = engine.add_frame(other, windows[1].frames[i], i)
        read.add_done_callback(lambda done: order.append("frame"))
    further = engine.ask(request, ScriptedAnswer(), frames_of(windows[0]))
    further.add_done_callback(lambda done: order.append("answer"))
    release()
    assert len(scores.result(WAIT_S)) == 2 and order == ["answer", "frame", "frame", "scores"]


def test_nan_window_does_not_affect_later_windows(pair, windows, monkeypatch):
    """With static buffers every pass attends to the full row under a mask, and 0 x NaN is NaN."""
    with closing(LocalEngine(pair.target, is_static=True)) as engine:
        engine.warm_up(1)

        def answer(frames):
            request, scripted = engine.open(0, Trace()), ScriptedAnswer(question="Describe the scene.")
            try:
                engine.ask(request, scripted, (frames, [*range(len(frames))])).result(WAIT_S)
                return scripted.tokens
            finally:
                engine.drop(request)

        # Fewer frames than in the failed window, whose last keys remain after them.
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
