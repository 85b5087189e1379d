"""Decoders that get a window whole: the loop of guesses and passes, the target alone, one of ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from crossspec_lab.baselines.written import LIMIT, Written
from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.engine.accept import accepted
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.protocols import Step
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

Guess = Callable[[tuple[int, ...]], DraftTree]
"""Returns the tree for the tokens so far."""
Accept = Callable[[DraftTree, Any], tuple[tuple[int, ...], int]]
"""Returns the accepted nodes of a tree and the token behind them, from the logits of a pass."""
_OPTIONS = Options("")


class GuessedAnswer:
    """See `engine.protocols.Answering`: each tree is a `guess`, in the engine's thread, of which the tokens
    are accepted that `accept` returns.

    `accept_lengths`, `seconds` and `rows` have the tokens, the device time and the windows of each pass.
    """

    sampling: Sampling | None = None
    hint = ""
    rehearses = False

    def __init__(
        self,
        question: str,
        trace: Trace,
        guess: Guess,
        max_new_tokens: int = LIMIT,
        accept: Accept = accepted,
    ) -> None:
        self.question, self.trace, self.max_new_tokens = question, trace, max_new_tokens
        self._guess, self.accept = guess, accept
        self.future: Future[None] = Future()
        self.tokens: tuple[int, ...] = ()
        self.accept_lengths: list[int] = []
        self.seconds: list[float] = []
        self.rows: list[int] = []

    def prepare(self, frames: Any) -> bool:
        return False

    def propose(self, frames: Any, unread: int, branches: bool) -> DraftTree:
        with self.trace.span("propose"):
            return self._guess(self.tokens).cut(self.max_new_tokens - len(self.tokens) - 1)

    def take(self, tree: DraftTree, step: Step) -> bool:
        self.trace.mark("first_token")
        self.tokens += step.tokens
        self.accept_lengths.append(len(step.tokens))
        self.seconds.append(step.seconds)
        self.rows.append(step.rows)
        return not step.ended and len(self.tokens) < self.max_new_tokens

    def rest(self, error: BaseException) -> None:
        """Do nothing: it is not rehearsed."""

    def learn(self) -> None:
        pass


class OneShot:
    """Gives the target all frames with the question, then one guess after the other, each from the tokens
    so far."""

    def __init__(self, pair: ModelPair) -> None:
        self.pair, self._engine = pair, LocalEngine(pair.target)
        self._engine.warm_up(1)

    def answer(
        self, window: Window, question: str, trace: Trace, guess: Guess, accept: Accept = accepted
    ) -> Written:
        """Return the caption; `guess` gives a tree for the tokens so far, and `accept` some of it."""
        answer, begun_ns = GuessedAnswer(question, trace, guess, accept=accept), time.perf_counter_ns()
        handle = self._engine.open(window.index, trace)
        try:
            frames = list(window.frames), list(window.frame_stamps_ns)
            self._engine.ask(handle, answer, frames).result()
            # What is tidied up afterwards keeps nobody waiting.
            trace.add("answer", begun_ns, time.perf_counter_ns())
        finally:
            self._engine.drop(handle)
        return Written(answer.tokens, tuple(answer.accept_lengths))

    def close(self) -> None:
        """End the engine's thread."""
        self._engine.close()


class Alone(OneShot):
    """The target alone, a token a pass."""

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        return self.answer(window, question, trace, lambda tokens: DraftTree())


class Whole:
    """A decoder of ours after the last frame: nothing is read, drafted or looked up before."""

    def __init__(self, decoder: PrefillHiddenDecoder, options: Options = _OPTIONS) -> None:
        self._decoder, self._options = decoder, options

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        caption = self._decoder.caption(window, replace(self._options, question=question), trace)
        return Written(caption.token_ids, caption.accept_lengths)

    def close(self) -> None:
        """End the threads of draft and engine."""
        self._decoder.close()
