"""Decoders that get all frames with the question: loop of drafts and passes, and the target alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.draft_model import DraftModel
from crossspec_ros.engine.accept import accept_tokens
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.protocols import Step
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.base import Chunk, VideoTarget
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

Tokens = tuple[int, ...]
Guess = Callable[[Tokens], DraftTree]
"""Returns the tree for the tokens so far."""
Accept = Callable[[DraftTree, Any], tuple[Tokens, int]]
"""Returns the accepted nodes of a tree and the token behind them, from the logits of a pass."""
_OPTIONS = Options("")
LIMIT = 64
"""Highest number of tokens of a caption."""


@dataclass(frozen=True)
class Written:
    """A caption's token ids with the end of sequence, and the number of tokens from each pass of the target.

    The latter is empty for decoders that do not report passes.
    """

    tokens: tuple[int, ...]
    accept_lengths: tuple[int, ...] = ()


Baseline = Callable[[Window, str, Trace], Written]
"""Captions a closed window; its stages become spans of the trace, its first token a mark."""


def embed_prompt(target: VideoTarget, window: Window, question: str) -> Chunk:
    """Return all frames and the question as the input of engines other than torch."""
    units = [target.unit(features, i) for i, features in enumerate(target.encode(window.frames))]
    return Chunk.joined([target.opening(), *units, target.closing(question)])


class GuessedAnswer:
    """An answer (`engine.protocols.Answering`) whose trees come from `guess` and are judged by `accept`.

    `accept_lengths`, `seconds` and `rows` hold the tokens, the device time and the windows of each pass.
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
        accept: Accept = accept_tokens,
    ) -> None:
        self.question, self.trace, self.max_new_tokens = question, trace, max_new_tokens
        self._guess, self.accept = guess, accept
        self.future: Future[None] = Future()
        self.tokens: Tokens = ()
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
    """Give the target all frames with the question, then verify one tree after the other.

    Subclasses begin a caption in `drafter`, and may accept nodes in another way than greedily.
    """

    accept: Accept = staticmethod(accept_tokens)

    def __init__(self, pair: ModelPair) -> None:
        self.pair, self._engine = pair, LocalEngine(pair.target)
        self._engine.warm_up(1)

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        return self.answer(window, question, trace, self.drafter(window, question, trace))

    def drafter(self, window: Window, question: str, trace: Trace) -> Guess:
        """Return the source of a caption's draft trees."""
        raise NotImplementedError

    def answer(self, window: Window, question: str, trace: Trace, guess: Guess) -> Written:
        """Return the caption; `guess` returns a tree for the tokens so far."""
        answer, begun_ns = GuessedAnswer(question, trace, guess, accept=self.accept), time.perf_counter_ns()
        handle = self._engine.open(window.index, trace)
        try:
            frames = list(window.frames), list(window.frame_stamps_ns)
            self._engine.ask(handle, answer, frames).result()
            # The caption does not wait for what follows.
            trace.add("answer", begun_ns, time.perf_counter_ns())
        finally:
            self._engine.drop(handle)
        return Written(answer.tokens, tuple(answer.accept_lengths))

    def prompt(self, question: str) -> Tokens:
        """Return the tokens of the question."""
        return self.pair.target.prompt_ids(question)[1]

    def close(self) -> None:
        """End the engine's thread."""
        self._engine.close()


class Alone(OneShot):
    """The target alone, a token a pass."""

    def drafter(self, window: Window, question: str, trace: Trace) -> Guess:
        return lambda tokens: DraftTree()


class BesideDraft(OneShot):
    """A decoder whose event draft runs in a thread and stream of its own."""

    def __init__(self, pair: ModelPair) -> None:
        super().__init__(pair)
        assert pair.draft is not None and pair.translation is not None
        self.drafts = DraftModel(pair.draft, pair.translation)

    def close(self) -> None:
        """End the threads of draft and engine."""
        self.drafts.close()
        super().close()


class Waiting:
    """A decoder of crossspec_ros that gets all frames with the question, and does nothing before."""

    def __init__(self, decoder: PrefillHiddenDecoder, options: Options = _OPTIONS) -> None:
        self.decoder, self.options = decoder, options

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        caption = self.decoder.caption(window, replace(self.options, question=question), trace)
        return Written(caption.token_ids, caption.accept_lengths)

    def close(self) -> None:
        """End the threads of draft and engine."""
        self.decoder.close()
