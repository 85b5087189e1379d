"""Scripted answers for tests of an engine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch
from plain_target import QUESTION

from crossspec_ros.engine.accept import accept_tokens
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.protocols import Step
from crossspec_ros.engine.request import Request
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

WAIT_S = 60


class ScriptedAnswer:
    """An answer of at most `limit` passes, with draft trees from `guess` for its tokens."""

    max_new_tokens = 10**6
    sampling = None
    hint = ""
    rehearses = True

    def __init__(
        self,
        guess: Callable[[tuple[int, ...]], DraftTree] = lambda tokens: DraftTree(),
        limit: int = 1,
        question: str = QUESTION,
        on_step: Callable[[], None] = lambda: None,
        accept: Callable[[DraftTree, Any], tuple[tuple[int, ...], int]] = accept_tokens,
    ) -> None:
        self._guess, self._limit, self._on_step, self.question = guess, limit, on_step, question
        self.trace, self.accept = Trace(), accept
        self.future: Future[None] = Future()
        self.tokens: tuple[int, ...] = ()
        self.steps: list[Step] = []
        self.prepared = self.rests = 0

    def prepare(self, frames: tuple[torch.Tensor, ...]) -> bool:
        self.prepared += 1
        return False

    def propose(self, frames: tuple[torch.Tensor, ...], unread: int, branches: bool) -> DraftTree:
        return self._guess(self.tokens)

    def take(self, tree: DraftTree, step: Step) -> bool:
        self.steps.append(step)
        self.tokens += step.tokens
        self._on_step()
        return len(self.steps) < self._limit and not step.ended

    def learn(self) -> None:
        pass

    def rest(self, error: BaseException) -> None:
        self.rests += 1


def frames_of(window: Window) -> tuple[list[np.ndarray], list[int]]:
    return list(window.frames), list(window.frame_stamps_ns)


def film(engine: LocalEngine, request: Request, window: Window, frames: range) -> None:
    read = [engine.add_frame(request, window.frames[i], window.frame_stamps_ns[i]) for i in frames]
    for future in read:
        future.result(WAIT_S)


def answered(
    engine: LocalEngine,
    frames: np.ndarray,
    guess: Callable[[tuple[int, ...]], DraftTree] = lambda tokens: DraftTree(),
    limit: int = 64,
    ahead: int = 0,
    question: str = QUESTION,
) -> tuple[int, ...]:
    """Return tokens about these frames from at most `limit` passes; prefill the first `ahead` frames."""
    request, answer = engine.open(0, Trace()), ScriptedAnswer(guess, limit, question)
    for i, frame in enumerate(frames[:ahead]):
        engine.add_frame(request, frame, i).result(WAIT_S)
    engine.ask(request, answer, (list(frames), list(range(len(frames))))).result(WAIT_S)
    engine.drop(request)
    return answer.tokens


def ahead_of(tokens: tuple[int, ...], count: int = 5) -> Callable[[tuple[int, ...]], DraftTree]:
    """Return a guess that drafts the next `count` of these tokens."""

    def guess(verified: tuple[int, ...]) -> DraftTree:
        right = tokens[len(verified) : len(verified) + count]
        return DraftTree.chain(right, [0.9] * len(right), "guess")

    return guess
