"""One window as the target has read it: frames, then a question and its answer, over a KV cache.

All of this runs in the engine's thread; `session.py` is what others hold. What needs the device is a
generator of requests (`batching.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.engine.accept import Verifier, node_scores
from crossspec_ros.engine.batching import Encode, PassOutput, Requests
from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.runner import Reading, Runner
from crossspec_ros.engine.session import HiddenStates, Step
from crossspec_ros.engine.tree import DraftTree, sees
from crossspec_ros.errors import NonFiniteError, RehearsalOverError
from crossspec_ros.models.base import Chunk, VideoTarget
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    import torch

    from crossspec_ros.engine.json_grammar import GrammarState
    from crossspec_ros.engine.sampling import Sampling


@dataclass(frozen=True, eq=False)
class Unit:
    """A unit of frames in the sequence. Its last token has the cache `length` and is followed by the position
    `place`."""

    stamps: tuple[int, ...]
    features: Any
    chunk: Chunk
    length: int
    place: int


class TargetSequence:
    """The frames of a window, then a tail: a question, and steps that verify trees and keep what is accepted.

    The first step reads the question and the tree in one pass: fused prefill-verify. Each unit of frames
    keeps a mark, its cache length and position. A further frame or question is a rollback to a mark. So
    nothing is prefilled twice, and nothing of a tail stays in the cache.
    """

    def __init__(
        self, target: VideoTarget, runner: Runner, stream: CudaStream, verifier: Verifier, trace: Trace
    ) -> None:
        self._target, self._runner, self._stream, self._verifier = target, runner, stream, verifier
        self._trace = trace
        opening = target.opening()
        # The opening is the unit without frames: the first mark.
        self._units = [Unit((), None, opening, len(opening), opening.span)]
        # Frames of a unit that is not whole yet, or could not be encoded, with their stamps.
        self._waiting: list[tuple[int, np.ndarray | torch.Tensor]] = []
        # Chunks behind the units that are not read yet. `_place` is the position where the next one begins.
        self._tail: list[Chunk] = []
        self._place = 0
        self._passes = 0
        self._rehearses = False
        self._is_whole = False
        self._row = runner.take()

    @property
    def frames(self) -> list[torch.Tensor]:
        """The embeddings (n, width) of each unit that was encoded."""
        return [unit.chunk.embeds for unit in self._units[1:]]

    @property
    def unread(self) -> int:
        """Tokens that the next pass reads before its tree."""
        return sum(map(len, self._unread()))

    def append(self, frame: np.ndarray | torch.Tensor, stamp_ns: int) -> Requests[None]:
        """Take the next (H, W, 3) uint8 RGB frame, and encode its unit if that is whole now; or features
        (n, width) that stand in for those of a frame which is a unit."""
        self._roll_back(len(self._units))
        self._waiting.append((stamp_ns, frame))
        yield from self._encode(self._whole())

    def read_ahead(
        self,
        frame: np.ndarray,
        stamp_ns: int,
        is_last: Callable[[], bool] = lambda: True,
        joined: float = math.inf,
    ) -> Requests[bool]:
        """Encode and prefill the next frame before the question; after `fit` it changes nothing.

        A frame behind which others wait is read together with the next, up to so many `joined` units: one
        pass over both takes less time than two. Returns whether all frames are read.
        """
        if self._is_whole:
            return True
        yield from self.append(frame, stamp_ns)
        most = joined * self._target.spec.unit_tokens
        if self._waiting or (self.unread < most and not is_last()):
            return False
        with self._trace.span(f"target_prefill[{sum(len(unit.stamps) for unit in self._units) - 1}]"):
            yield from self._read(DraftTree(), 0)
        return True

    def fit(self, frames: Sequence[np.ndarray | torch.Tensor], stamps_ns: Sequence[int]) -> Requests[None]:
        """Have exactly these frames, as `append` takes them, known by their stamps; units that come first in
        both stay read."""
        if not self._row.is_sound:
            self._row.clear()
        per_unit = self._target.spec.frames_per_unit
        wanted = [tuple(stamps_ns[i : i + per_unit]) for i in range(0, len(stamps_ns), per_unit)]
        kept = 1
        for unit, stamps in zip(self._units[1:], wanted, strict=False):
            if unit.stamps != stamps:
                break
            kept += 1
        dropped = self._units[kept:]
        self._roll_back(kept)
        begin = sum(len(unit.stamps) for unit in self._units)
        self._waiting = list(zip(stamps_ns[begin:], frames[begin:], strict=True))
        # Two frames with one stamp may differ.
        are_known = len(set(stamps_ns)) == len(stamps_ns)
        known = {unit.stamps: unit.features for unit in dropped} if are_known else {}
        yield from self._encode(self._whole(), known)
        self._is_whole = True

    def ask(self, question: str, trace: Trace) -> Requests[None]:
        """Let the question follow the frames; the next step reads it together with its tree."""
        # Before anything changes, because it may fail.
        closing = self._target.closing(question)
        self._begin_tail(trace)
        yield from self._encode(len(self._waiting))
        self._tail = [closing]

    def rehearse(self, question: str, trace: Trace) -> Requests[None]:
        """Ask before all frames are there: the newest unit stands in for those that are missing.

        The next frame or question ends the rehearsal. Its steps then raise RehearsalOverError.
        """
        closing, spec = self._target.closing(question), self._target.spec
        self._begin_tail(trace)
        newest, count = self._units[-1], -(-spec.frames // spec.frames_per_unit)
        missing = range(len(self._units) - 1, count)
        self._tail = [*(self._target.unit(newest.features, i) for i in missing), closing]
        self._rehearses = True
        # The device has nothing to do here.
        yield from ()

    def score(self, tree: DraftTree, trace: Trace) -> Requests[tuple[float, ...]]:
        """Scores of a tree that follows the frames, see `session.Session`."""
        closing = self._target.closing("")
        self._begin_tail(trace)
        yield from self._encode(len(self._waiting))
        # Some families put tokens between the frames and the text.
        self._tail = [closing.cut(len(closing) - len(self._target.prompt_ids("")[1]))]
        with trace.span("standing"):
            output = yield from self._read(tree, len(tree))
            with self._cleared_if_not_finite():
                scores = node_scores(tree, output.logits)
        self._roll_back(len(self._units))
        return scores

    def step(
        self,
        tree: DraftTree,
        sampling: Sampling | None,
        grammar: GrammarState | None = None,
        rehearses: bool = False,
    ) -> Requests[Step]:
        """Verify the tree, and keep the accepted path and the target's own next token."""
        if rehearses and not self._rehearses:
            raise RehearsalOverError
        unread = self.unread
        # The question, or the last token.
        before = len(self._tail[-1])
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
        self._tail = [self._target.words((following,))]
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
        self._units.clear()
        self._tail.clear()

    def _unread(self) -> list[Chunk]:
        """Chunks that the cache lacks."""
        return [*(unit.chunk for unit in self._units if unit.length > self._row.length), *self._tail]

    def _roll_back(self, units: int) -> None:
        """Keep so many units, and of the cache what they have read."""
        del self._units[units:]
        self._tail, self._rehearses = [], False
        read = [unit for unit in self._units if unit.length <= self._row.length]
        self._row.keep(read[-1].length if read else 0)
        self._place = read[-1].place if read else 0

    def _begin_tail(self, trace: Trace) -> None:
        """Drop the question before and its answer."""
        self._roll_back(len(self._units))
        self._trace, self._passes = trace, 0

    def _whole(self) -> int:
        """Number of waiting frames that make whole units."""
        per_unit = self._target.spec.frames_per_unit
        return len(self._waiting) // per_unit * per_unit

    def _encode(self, count: int, known: dict[tuple[int, ...], Any] | None = None) -> Requests[None]:
        """Encode the units of so many waiting frames, all at once, save those with `known` features."""
        if not count:
            return
        per_unit = self._target.spec.frames_per_unit
        units = [self._waiting[i : min(i + per_unit, count)] for i in range(0, count, per_unit)]
        found: list[Any] = []
        for unit in units:
            stamps, first = tuple(stamp for stamp, _ in unit), unit[0][1]
            found.append((known or {}).get(stamps) if isinstance(first, np.ndarray) else first)
        new = [at for at, features in enumerate(found) if features is None]
        if new:
            last = sum(len(unit.stamps) for unit in self._units) + count - 1
            with self._trace.span(f"frame_encode[{last}]"):
                encoded = yield Encode([np.stack([frame for _, frame in units[at]]) for at in new])
            for at, features in zip(new, encoded, strict=True):
                found[at] = features
        for unit, features in zip(units, found, strict=True):
            if not isinstance(unit[0][1], np.ndarray):
                features = features.to(self._target.dtype)
            chunk = self._target.unit(features, len(self._units) - 1)
            length, place = self._units[-1].length + len(chunk), self._units[-1].place + chunk.span
            self._units.append(Unit(tuple(stamp for stamp, _ in unit), features, chunk, length, place))
        # Not before: what could not be encoded still waits.
        del self._waiting[:count]

    def _read(self, tree: DraftTree, logits: int) -> Requests[PassOutput]:
        """Output of a pass over all unread chunks and the tree, with the logits of so many last tokens; the
        cache holds all of it afterwards."""
        unread = self._unread()
        place = self._place + sum(chunk.span for chunk in unread)
        words = self._target.words(tree.token_ids)
        nodes = Chunk.at(words.embeds, [depth - 1 for depth in tree.depths()], len(words.positions))
        read = Chunk.joined([*unread, nodes])
        seen = sees(self._row.length, sum(map(len, unread)), tree)
        places = self._place + read.positions
        output: PassOutput = yield Reading(self._row, read.embeds, places, seen, read.layers, logits)
        # Not before: what failed half way is read again.
        self._tail, self._place = [], place
        return output

    @contextmanager
    def _cleared_if_not_finite(self) -> Iterator[None]:
        """Have the row zeroed before its next use: 0 x NaN is NaN, so that masked keys spoil a pass."""
        try:
            yield
        except NonFiniteError:
            self._row.is_sound = False
            raise

    def _pass_name(self, tree: DraftTree) -> str:
        if self._rehearses:
            return f"rehearsal[{self._passes}]"
        if self._passes == 0:
            return f"target_prefill[{sum(len(unit.stamps) for unit in self._units)}]"
        return f"verify[{self._passes}]" if len(tree) else f"decode[{self._passes}]"
