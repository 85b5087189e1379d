"""One window as the target has read it: frames, then a question and its answer, over a KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.engine.protocols import Step
from crossspec_ros.engine.runner import Output, Reading, Runner
from crossspec_ros.engine.tree import DraftTree, sees
from crossspec_ros.models.base import Chunk, VideoTarget
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    import torch

REHEARSAL, STANDING = "rehearsal", "standing"
"""Stages of questions whose answers are no caption."""


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

    def __init__(self, target: VideoTarget, runner: Runner, trace: Trace) -> None:
        self._target, self._runner, self.trace = target, runner, trace
        opening = target.opening()
        # The opening is the unit without frames: the first mark.
        self._units = [Unit((), None, opening, len(opening), opening.span)]
        # Frames that are not encoded yet, with their stamps.
        self._waiting: list[tuple[int, np.ndarray]] = []
        # Chunks behind the units that are not read yet. `_place` is the position where the next one begins.
        self._tail: list[Chunk] = []
        self._place = 0
        self._passes = 0
        self._stage = ""
        self._row = runner.take()

    @property
    def frames(self) -> tuple[torch.Tensor, ...]:
        """The embeddings (n, width) of each unit that was encoded."""
        return tuple(unit.chunk.embeds for unit in self._units[1:])

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
        per_unit, kept = self._target.spec.frames_per_unit, 1
        wanted = [tuple(stamps_ns[i : i + per_unit]) for i in range(0, len(stamps_ns), per_unit)]
        for unit, stamps in zip(self._units[1:], wanted, strict=False):
            if unit.stamps != stamps:
                break
            kept += 1
        self._roll_back(kept)
        begin = self.frame_count
        self._waiting = list(zip(stamps_ns[begin:], frames[begin:], strict=True))

    def ask(self, question: str, trace: Trace, stage: str = "") -> None:
        """Let the question follow the frames; the next pass reads it together with its tree.

        A REHEARSAL comes before all frames are there: the newest unit stands in for those that are missing.
        STANDING questions are parts of a tree themselves.
        """
        # Before anything changes, because it may fail.
        closing, spec = self._target.closing(question), self._target.spec
        self._roll_back(len(self._units))
        self.trace, self._stage, self._tail = trace, stage, [closing]
        if stage == REHEARSAL:
            missing = range(len(self._units) - 1, spec.units)
            self._tail = [*(self._target.unit(self._units[-1].features, i) for i in missing), closing]
        elif stage == STANDING:
            # Some families put tokens between the frames and the text.
            self._tail = [closing.cut(len(closing) - len(self._target.prompt_ids(question)[1]))]

    def ends_rehearsal(self, frames: int) -> bool:
        """Test whether so many further frames are a reason to end a rehearsal.

        They are if they complete a unit, and at most one more unit follows. If each frame ended it, a
        rehearsal would spend most of its time on reading the question.
        """
        spec = self._target.spec
        units = (self.frame_count + len(self._waiting) + frames) // spec.frames_per_unit
        return units >= max(len(self._units), spec.units - 1)

    def units(self) -> list[np.ndarray]:
        """Return the units of frames (n, H, W, 3) that are to be encoded now; `add` takes their features.

        The last one may lack frames once a question follows.
        """
        per_unit, count = self._target.spec.frames_per_unit, len(self._waiting)
        if not self._tail or self._stage == REHEARSAL:
            count -= count % per_unit
        images = [image for _, image in self._waiting[:count]]
        return [np.stack(images[i : i + per_unit]) for i in range(0, count, per_unit)]

    def add(self, features: Sequence[Any]) -> None:
        """Take the features of `units`."""
        per_unit = self._target.spec.frames_per_unit
        for one in features:
            # First, because it may fail; the frames wait until then.
            chunk, last = self._target.unit(one, len(self._units) - 1), self._units[-1]
            stamps = tuple(stamp_ns for stamp_ns, _ in self._waiting[:per_unit])
            del self._waiting[:per_unit]
            self._units.append(Unit(stamps, one, chunk, last.length + len(chunk), last.place + chunk.span))

    def pass_name(self, tree: DraftTree) -> str:
        """Return the name of the next pass in the trace."""
        if self._stage:
            return f"{self._stage}[{self._passes}]"
        if self._passes == 0:
            return f"target_prefill[{self.frame_count}]"
        return f"verify[{self._passes}]" if len(tree) else f"decode[{self._passes}]"

    def reading(self, tree: DraftTree, logits: int) -> Reading:
        """Return all unread chunks and the tree, for a pass that gives the logits of so many last tokens."""
        unread = self._unread()
        words = self._target.words(tree.token_ids)
        nodes = Chunk.at(words.embeds, [depth - 1 for depth in tree.depths()], len(words.positions))
        read = Chunk.joined([*unread, nodes])
        seen = sees(self._row.length, sum(map(len, unread)), tree)
        return Reading(self._row, read.embeds, self._place + read.positions, seen, read.layers, logits)

    def was_read(self, reading: Reading, tree: DraftTree) -> None:
        """Note that the pass over a reading with this tree is done."""
        self._place = int(reading.positions[:, : len(reading) - len(tree)].max()) + 1
        self._tail = []

    def keep(
        self, reading: Reading, tree: DraftTree, path: tuple[int, ...], following: int, output: Output
    ) -> Step:
        """Keep the accepted path and the target's own next token, behind a pass over this reading."""
        before = len(self._tail[-1])
        self.was_read(reading, tree)
        self._passes += 1
        verified = self._row.length - len(tree)
        self._row.keep(verified, [verified + node for node in path])
        self._place += len(path)
        self._tail = [self._target.words((following,))]
        tokens = (*(tree.token_ids[node] for node in path), following)
        eos = next((i for i, token in enumerate(tokens) if token in self._target.spec.eos_ids), None)
        # Of the question, or the last token, and of the path.
        root = len(reading) - len(tree)
        kept = [*range(root - before, root), *(root + node for node in path)]
        return Step(
            path,
            tokens if eos is None else tokens[: eos + 1],
            eos is not None,
            len(reading),
            hidden=None if output.hidden is None else partial(_hidden, output, kept, self._runner.taps),
        )

    def forget(self) -> None:
        """Keep the frames alone."""
        self._roll_back(len(self._units))

    def close(self, is_sound: bool = True) -> None:
        """Leave the buffers to the next window. They are zeroed unless they are sound: 0 x NaN is NaN, so
        that masked keys would spoil a pass."""
        self._row.is_sound = self._row.is_sound and is_sound
        self._runner.give_back(self._row)

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


def _hidden(
    output: Output, rows: list[int], taps: tuple[int, ...], layers: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return `Step.hidden` at these rows of a pass in which the layers `taps` were tapped."""
    if not layers or output.tapped is None:
        return output.hidden[rows], None
    import torch

    parts = output.tapped[rows].chunk(len(taps), -1)
    return output.hidden[rows], torch.cat([parts[taps.index(layer)] for layer in layers], -1)
