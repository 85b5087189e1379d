"""One window as the target has read it: frames, then a question and its answer, over a KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.engine.accept import Verifier, node_scores
from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.passes import PassOutput
from crossspec_ros.engine.protocols import HiddenStates, Step
from crossspec_ros.engine.runner import Reading, Runner
from crossspec_ros.engine.tree import DraftTree, sees
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
    """The frames of a window, then a tail: a question, and what the target wrote.

    The first pass reads the question and the tree together: fused prefill and verification. Each unit of
    frames is a mark, with its cache length and position. A further frame or question rolls back to a mark, so
    that nothing is prefilled twice and nothing of a tail stays in the cache. For the engine's thread.
    """

    def __init__(
        self, target: VideoTarget, runner: Runner, stream: CudaStream, verifier: Verifier, trace: Trace
    ) -> None:
        self._target, self._runner, self._stream, self._verifier = target, runner, stream, verifier
        self.trace = trace
        opening = target.opening()
        # The opening is the unit without frames: the first mark.
        self._units = [Unit((), None, opening, len(opening), opening.span)]
        # Frames that are not encoded yet, with their stamps, and features of units that were dropped.
        self._waiting: list[tuple[int, np.ndarray]] = []
        self._known: dict[tuple[int, ...], Any] = {}
        # Chunks behind the units that are not read yet. `_place` is the position where the next one begins.
        self._tail: list[Chunk] = []
        self._place = 0
        self._passes = 0
        # Stage of the tail's passes; an answer's have several.
        self._stage = ""
        self._row = runner.take()

    @property
    def frames(self) -> tuple[torch.Tensor, ...]:
        """The embeddings (n, width) of each unit that was encoded."""
        return tuple(unit.chunk.embeds for unit in self._units[1:])

    @property
    def vocabulary(self) -> int:
        """Number of the target's tokens."""
        return self._target.vocabulary

    @property
    def frame_count(self) -> int:
        """Number of frames that were encoded."""
        return sum(len(unit.stamps) for unit in self._units)

    @property
    def unread(self) -> int:
        """Tokens that the next pass reads before its tree."""
        return sum(map(len, self._unread()))

    def append(self, frame: np.ndarray, stamp_ns: int) -> None:
        """Take the next (H, W, 3) uint8 RGB frame."""
        self._roll_back(len(self._units))
        self._waiting.append((stamp_ns, frame))

    def fit(self, frames: Sequence[np.ndarray], stamps_ns: Sequence[int]) -> None:
        """Have exactly these frames, known by their stamps; units that come first in both stay read."""
        per_unit = self._target.spec.frames_per_unit
        wanted = [tuple(stamps_ns[i : i + per_unit]) for i in range(0, len(stamps_ns), per_unit)]
        kept = 1
        for unit, stamps in zip(self._units[1:], wanted, strict=False):
            if unit.stamps != stamps:
                break
            kept += 1
        # Two frames with one stamp may differ.
        are_known = len(set(stamps_ns)) == len(stamps_ns)
        self._known = {unit.stamps: unit.features for unit in self._units[kept:]} if are_known else {}
        self._roll_back(kept)
        begin = self.frame_count
        self._waiting = list(zip(stamps_ns[begin:], frames[begin:], strict=True))

    def ask(self, question: str, trace: Trace) -> None:
        """Let the question follow the frames; the next pass reads it together with its tree."""
        # Before anything changes, because it may fail.
        closing = self._target.closing(question)
        self._begin_tail(trace)
        self._tail = [closing]

    def rehearse(self, question: str, trace: Trace) -> None:
        """Ask before all frames are there: the newest unit stands in for those that are missing."""
        closing, spec = self._target.closing(question), self._target.spec
        self._begin_tail(trace)
        newest = self._units[-1]
        missing = range(len(self._units) - 1, spec.units)
        self._tail = [*(self._target.unit(newest.features, i) for i in missing), closing]
        self._stage = "rehearsal"

    def ends_rehearsal(self, frames: int) -> bool:
        """Test whether so many further frames are a reason to end a rehearsal.

        They are if they complete a unit, and at most one more unit follows. If each frame ended it, a
        rehearsal would spend most of its time on reading the question.
        """
        spec = self._target.spec
        units = (self.frame_count + len(self._waiting) + frames) // spec.frames_per_unit
        return units >= max(len(self._units), spec.units - 1)

    def begin_scores(self, trace: Trace) -> None:
        """Let a tree follow the frames that begins with the question itself."""
        closing = self._target.closing("")
        self._begin_tail(trace)
        # Some families put tokens between the frames and the text.
        self._tail = [closing.cut(len(closing) - len(self._target.prompt_ids("")[1]))]
        self._stage = "standing"

    def units(self) -> list[np.ndarray]:
        """Return the units of frames (n, H, W, 3) that are to be encoded now; `add` takes their features."""
        new = self._new_units()
        return [np.stack([image for _, image in unit]) for unit in new if _stamps(unit) not in self._known]

    def add(self, features: Sequence[Any]) -> None:
        """Take the features of `units`."""
        made = iter(features)
        for unit in self._new_units():
            stamps = _stamps(unit)
            found = self._known[stamps] if stamps in self._known else next(made)
            chunk = self._target.unit(found, len(self._units) - 1)
            length, place = self._units[-1].length + len(chunk), self._units[-1].place + chunk.span
            self._units.append(Unit(stamps, found, chunk, length, place))
            del self._waiting[: len(unit)]
        self._known = {}

    def reading(self, tree: DraftTree, logits: int) -> Reading:
        """Return all unread chunks and the tree, for a pass that gives the logits of so many last tokens."""
        unread = self._unread()
        words = self._target.words(tree.token_ids)
        nodes = Chunk.at(words.embeds, [depth - 1 for depth in tree.depths()], len(words.positions))
        read = Chunk.joined([*unread, nodes])
        seen = sees(self._row.length, sum(map(len, unread)), tree)
        return Reading(self._row, read.embeds, self._place + read.positions, seen, read.layers, logits)

    def was_read(self, output: PassOutput, tree: DraftTree) -> None:
        """Note that the pass over a reading with this tree is done."""
        reading = output.reading
        self._place = int(reading.positions[:, : len(reading) - len(tree)].max()) + 1
        self._tail = []

    def verify(
        self, tree: DraftTree, output: PassOutput, sampling: Sampling | None, grammar: GrammarState | None
    ) -> Step:
        """Keep the accepted path and the target's own next token."""
        if grammar is None:
            path, following = self._verifier.accept(tree, output.logits, sampling)
        else:
            path, following = self._verifier.accept_allowed(tree, output.logits, sampling, grammar)
        # The question, or the last token.
        hidden = self._hidden(output, len(self._tail[-1]), len(tree), path)
        self.was_read(output, tree)
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
            len(output.reading),
            self._stream.seconds(output.begun, output.ended),
            hidden,
            output.rows,
            output.tokens,
        )

    def scores(self, tree: DraftTree, output: PassOutput) -> tuple[float, ...]:
        """Return the tree's scores, and keep nothing of it."""
        scores = node_scores(tree, output.logits)
        self._roll_back(len(self._units))
        return scores

    def close(self, is_sound: bool = True) -> None:
        """Leave the buffers to the next window. They are zeroed unless they are sound: 0 x NaN is NaN, so
        that masked keys would spoil a pass."""
        self._row.is_sound = self._row.is_sound and is_sound
        self._runner.give_back(self._row)

    def pass_name(self, tree: DraftTree) -> str:
        """Return the name of the next pass in the trace."""
        if self._stage:
            return f"{self._stage}[{self._passes}]"
        if self._passes == 0:
            return f"target_prefill[{self.frame_count}]"
        return f"verify[{self._passes}]" if len(tree) else f"decode[{self._passes}]"

    def _unread(self) -> list[Chunk]:
        """Return the chunks that the cache lacks."""
        return [*(unit.chunk for unit in self._units if unit.length > self._row.length), *self._tail]

    def _roll_back(self, units: int) -> None:
        """Keep so many units, and of the cache what they have read."""
        del self._units[units:]
        self._tail, self._stage, self._passes = [], "", 0
        read = [unit for unit in self._units if unit.length <= self._row.length]
        self._row.keep(read[-1].length if read else 0)
        self._place = read[-1].place if read else 0

    def _begin_tail(self, trace: Trace) -> None:
        """Drop the question before and its answer."""
        self._roll_back(len(self._units))
        self.trace = trace

    def _new_units(self) -> list[list[tuple[int, np.ndarray]]]:
        """Return the waiting frames by units. The last unit may lack frames once a question follows."""
        per_unit, count = self._target.spec.frames_per_unit, len(self._waiting)
        if not self._tail or self._stage == "rehearsal":
            count -= count % per_unit
        return [self._waiting[i : min(i + per_unit, count)] for i in range(0, count, per_unit)]

    def _hidden(
        self, output: PassOutput, before: int, nodes: int, path: tuple[int, ...]
    ) -> HiddenStates | None:
        """Return the states of the `before` tokens in front of the tree, and of the accepted path."""
        if output.hidden is None:
            return None
        return HiddenStates(
            output.hidden[-nodes - before :],
            (*range(before), *(before + node for node in path)),
            None if output.tapped is None else output.tapped[-nodes - before :],
            self._runner.taps,
        )


def _stamps(unit: Sequence[tuple[int, np.ndarray]]) -> tuple[int, ...]:
    return tuple(stamp for stamp, _ in unit)
