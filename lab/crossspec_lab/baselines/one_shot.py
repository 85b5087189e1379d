"""Decoders that get a window whole: the loop of guesses and passes, the target alone, one of ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from crossspec_lab.baselines.written import LIMIT, Written
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class OneShot:
    """Gives the target all frames with the question, then one guess after the other, each from the tokens
    so far."""

    def __init__(self, pair: ModelPair) -> None:
        self.pair, self._engine = pair, LocalEngine(pair.target)
        self._engine.warm_up(1)

    def answer(
        self, window: Window, question: str, trace: Trace, guess: Callable[[tuple[int, ...]], DraftTree]
    ) -> Written:
        """The caption; `guess` gives a tree for the tokens so far."""
        tokens, ended, lengths = tuple[int, ...](), False, list[int]()
        begun_ns = time.perf_counter_ns()
        with closing(self._engine.open(window.index, trace)) as session:
            session.fit(list(window.frames), list(window.frame_stamps_ns))
            session.ask(question, trace)
            while not ended and len(tokens) < LIMIT:
                with trace.span("propose"):
                    tree = guess(tokens).cut(LIMIT - len(tokens) - 1)
                step = session.step(tree).result()
                trace.mark("first_token")
                tokens, ended = tokens + step.tokens, step.ended
                lengths.append(len(step.tokens))
            # What is tidied up afterwards keeps nobody waiting.
            trace.add("answer", begun_ns, time.perf_counter_ns())
        return Written(tokens, tuple(lengths))

    def close(self) -> None:
        """End the engine's thread."""
        self._engine.close()


class Alone(OneShot):
    """The target alone, a token a pass."""

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        return self.answer(window, question, trace, lambda tokens: DraftTree())


class Whole:
    """A decoder of ours after the last frame: nothing is read, drafted or looked up before."""

    def __init__(self, decoder: PrefillHiddenDecoder) -> None:
        self._decoder = decoder

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        caption = self._decoder.caption(window, question, trace)
        return Written(caption.token_ids, caption.accept_lengths)

    def close(self) -> None:
        """End the threads of draft and engine."""
        self._decoder.close()
