"""One window in the target's eyes: what it has read and said, as a KV cache that grows with the frames.

All of this runs in the engine's thread; `session.py` is what others hold. What needs the device is a
generator of requests (`batching.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.engine.accept import Verifier, node_scores
from crossspec_ros.engine.batching import Encode, PassOutput, Requests
from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.runner import Reading, Runner
from crossspec_ros.engine.session import HiddenStates, Step
from crossspec_ros.engine.tree import DraftTree, sees
from crossspec_ros.errors import NonFiniteError
from crossspec_ros.models.base import Chunk, VideoTarget
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    import torch

    from crossspec_ros.engine.json_grammar import GrammarState
    from crossspec_ros.engine.sampling import Sampling


class TargetSequence:
    """Frames as they come, then a question, then steps that verify a tree and keep what was accepted.

    Frames may be read one by one or all with the question; both are exact, for the target's contract is that
    each piece can be read on its own. The first step reads question and tree in one pass: fused
    prefill-verify. A further question takes the place of the one before and of its answer; frames stay read.
    """

    def __init__(
        self, target: VideoTarget, runner: Runner, stream: CudaStream, verifier: Verifier, trace: Trace
    ) -> None:
        self._target, self._runner, self._stream, self._verifier = target, runner, stream, verifier
        self._trace = trace
        # What the vision tower made of units, by the stamps of their frames.
        self._features: dict[tuple[int, ...], Any] = {}
        self._stamps: list[int] = []
        self.frames: list[torch.Tensor] = []
        """The embeddings (n, width) of each unit that was encoded."""
        # Frames of a unit that is not yet whole.
        self._waiting: list[np.ndarray | torch.Tensor] = []
        self._is_whole = False
        self._begin()
        self._row = runner.take()

    def _begin(self) -> None:
        self._stamps.clear()
        self._waiting.clear()
        self.frames.clear()
        # What follows the cache and the target has not read yet; `_place` is the position where it begins.
        self._unread = [self._target.opening()]
        self._place = 0
        self._prefix: tuple[int, int] | None = None
        self._passes = 0

    @property
    def unread(self) -> int:
        """Tokens that the next pass reads before it comes to the tree."""
        return sum(map(len, self._unread))

    def append(self, frame: np.ndarray | torch.Tensor, stamp_ns: int) -> Requests[None]:
        """Take the next (H, W, 3) uint8 RGB frame, and encode its unit if that is whole now; or features
        (n, width) that stand in for those of a frame which is a unit."""
        self._stamps.append(stamp_ns)
        self._waiting.append(frame)
        yield from self._encode(self._whole())

    def read_ahead(
        self,
        frame: np.ndarray,
        stamp_ns: int,
        is_last: Callable[[], bool] = lambda: True,
        joined: float = math.inf,
    ) -> Requests[bool]:
        """Encode and read the next frame ahead of the question; after `fit` it changes nothing.

        One that is not the last of those that wait is read together with the next, up to so many `joined`
        units: a pass over both takes less time than two. Returns whether all is read.
        """
        if self._is_whole:
            return True
        yield from self.append(frame, stamp_ns)
        most = joined * self._target.spec.unit_tokens
        if self._waiting or (self.unread < most and not is_last()):
            return False
        with self._trace.span(f"target_prefill[{len(self._stamps) - 1}]"):
            yield from self._read(DraftTree(), 0)
        return True

    def fit(self, frames: Sequence[np.ndarray | torch.Tensor], stamps_ns: Sequence[int]) -> Requests[None]:
        """Have exactly these frames appended, as `append` takes them; those that were read stay read where
        they come first."""
        if (
            not self._row.is_sound
            or self._stamps != list(stamps_ns[: len(self._stamps)])
            # What comes now would stand behind the question.
            or (self._prefix is not None and len(self._stamps) < len(stamps_ns))
            # A unit that could not be encoded.
            or self._whole()
        ):
            self._row.clear()
            self._begin()
        missing = len(self._stamps)
        self._stamps.extend(stamps_ns[missing:])
        # An array of frames is as good as a list.
        self._waiting.extend(frames[missing:])
        yield from self._encode(self._whole())
        self._is_whole = True

    def ask(self, question: str, trace: Trace) -> Requests[None]:
        """Let the question follow the frames; the next step reads it together with its tree."""
        # Before anything changes, for it may fail.
        yield from self._follow_frames(self._target.closing(question), trace)

    def score(self, tree: DraftTree, trace: Trace) -> Requests[tuple[float, ...]]:
        """Scores of a tree that follows the frames, see `session.Session`."""
        closing = self._target.closing("")
        # What some families put between the frames and the text.
        between = closing.cut(len(closing) - len(self._target.prompt_ids("")[1]))
        yield from self._follow_frames(between, trace)
        with trace.span("standing"):
            output = yield from self._read(tree, len(tree))
            with self._cleared_if_not_finite():
                told = node_scores(tree, output.logits)
        assert self._prefix is not None
        length, self._place = self._prefix
        self._row.keep(length)
        return told

    def _follow_frames(self, closing: Chunk, trace: Trace) -> Requests[None]:
        """Let a chunk follow the frames, in place of what was asked before."""
        self._trace, self._passes = trace, 0
        yield from self._encode(len(self._waiting))
        if self._prefix is None:
            self._prefix = self._row.length + self.unread, self._following_place()
        elif self._row.length < self._prefix[0]:
            self._unread.pop()  # a question that nobody put to the target
        else:
            length, self._place = self._prefix
            self._row.keep(length)
            self._unread.clear()
        self._unread.append(closing)

    def step(
        self,
        tree: DraftTree,
        sampling: Sampling | None,
        grammar: GrammarState | None = None,
    ) -> Requests[Step]:
        unread = self.unread
        # The question, or the last token.
        before = len(self._unread[-1])
        with self._trace.span(self._pass_name(tree)):
            output = yield from self._read(tree, len(tree) + 1)
            given = tree, output.logits, sampling
            with self._cleared_if_not_finite():
                if grammar is None:
                    path, following = self._verifier.accept(*given)
                else:
                    path, following = self._verifier.accept_allowed(*given, grammar)
        self._passes += 1
        verified = self._row.length - len(tree)
        self._row.keep(verified, [verified + node for node in path])
        self._place += len(path)
        self._unread = [self._target.words((following,))]
        tokens = (*(tree.token_ids[node] for node in path), following)
        eos = next((i for i, token in enumerate(tokens) if token in self._target.spec.eos_ids), None)
        return Step(
            path,
            tokens if eos is None else tokens[: eos + 1],
            eos is not None,
            unread + len(tree),
            self._stream.seconds(output.begun, output.ended),
            self._hidden(output, before, len(tree), path),
            output.rows,
            output.tokens,
        )

    def _hidden(
        self, output: PassOutput, before: int, nodes: int, path: tuple[int, ...]
    ) -> HiddenStates | None:
        if output.hidden is None:
            return None
        return HiddenStates(
            output.hidden[-nodes - before :],
            (*range(before), *(before + node for node in path)),
            None if output.tapped is None else output.tapped[-nodes - before :],
            self._runner.taps,
        )

    def close(self) -> None:
        """Leave the buffers to the next window."""
        self._runner.give_back(self._row)
        self._features.clear()
        self._unread.clear()

    def _whole(self) -> int:
        """Number of waiting frames that make whole units."""
        per_unit = self._target.spec.frames_per_unit
        return len(self._waiting) // per_unit * per_unit

    def _encode(self, count: int) -> Requests[None]:
        """Encode the units of so many frames that wait, all at once, save those that were before."""
        if not count:
            return
        per_unit = self._target.spec.frames_per_unit
        begin = len(self._stamps) - len(self._waiting)
        units = [range(i, min(i + per_unit, count)) for i in range(0, count, per_unit)]
        # Of two frames with one stamp, nobody knows which was meant.
        is_known = len(set(self._stamps)) == len(self._stamps)
        found: list[Any] = []
        for unit in units:
            first, known = self._waiting[unit[0]], tuple(self._stamps[begin + i] for i in unit)
            if isinstance(first, np.ndarray):
                found.append(self._features.get(known) if is_known else None)
            else:
                found.append(first.to(self._target.dtype))
        new = [at for at, features in enumerate(found) if features is None]
        if new:
            with self._trace.span(f"frame_encode[{begin + count - 1}]"):
                frames = [[self._waiting[i] for i in units[at]] for at in new]
                encoded = yield Encode([np.stack(unit) for unit in frames])
            for at, features in zip(new, encoded, strict=True):
                found[at] = features
                self._features.setdefault(tuple(self._stamps[begin + i] for i in units[at]), features)
        for unit, features in zip(units, found, strict=True):
            chunk = self._target.unit(features, (begin + unit[0]) // per_unit)
            self._unread.append(chunk)
            self.frames.append(chunk.embeds)
        # Not before: what failed half way still waits.
        del self._waiting[:count]

    def _read(self, tree: DraftTree, logits: int) -> Requests[PassOutput]:
        """Output of a pass over all that is unread and the tree, with the logits of so many last tokens; all
        of it is in the cache afterwards."""
        place = self._following_place()
        words = self._target.words(tree.token_ids)
        nodes = Chunk.at(words.embeds, [depth - 1 for depth in tree.depths()], len(words.positions))
        read = Chunk.joined([*self._unread, nodes])
        seen = sees(self._row.length, self.unread, tree)
        places = self._place + read.positions
        output: PassOutput = yield Reading(self._row, read.embeds, places, seen, read.layers, logits)
        # Not before: what failed half way is read again.
        self._unread, self._place = [], place
        return output

    @contextmanager
    def _cleared_if_not_finite(self) -> Iterator[None]:
        """Have the row zeroed before its next use: 0 x NaN is NaN, so that masked keys spoil a pass."""
        try:
            yield
        except NonFiniteError:
            self._row.is_sound = False
            raise

    def _following_place(self) -> int:
        """The position of what follows all that is unread."""
        return self._place + sum(chunk.span for chunk in self._unread)

    def _pass_name(self, tree: DraftTree) -> str:
        if self._passes == 0:
            return f"target_prefill[{len(self._stamps)}]"
        return f"verify[{self._passes}]" if len(tree) else f"decode[{self._passes}]"
