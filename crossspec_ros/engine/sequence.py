"""KV state of one window: its frames, then a question and the answer so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.engine.protocols import Step
from crossspec_ros.engine.runner import Input, Output, Runner
from crossspec_ros.engine.tree import DraftTree, attention_mask
from crossspec_ros.models.base import Chunk, VideoTarget
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    import torch

REHEARSAL, STANDING = "rehearsal", "standing"
"""Names in the trace of questions whose answers are not captions."""


@dataclass(frozen=True, eq=False)
class Unit:
    """A unit of frames (one, or two in Qwen3-VL) in the sequence.

    After it the cache has `length` tokens, and the next token has the position `end`.
    """

    stamps: tuple[int, ...]
    features: Any
    chunk: Chunk
    length: int
    end: int


class TargetSequence:
    """The frames of a window, then a tail with the question and the answer. Not thread-safe.

    The first pass reads the question and the tree together: fused prefill and verification. Each unit of
    frames records its cache length and position. A further frame or question rolls back to a unit. So
    nothing is prefilled twice, and no old tail stays in the cache.
    """

    def __init__(self, target: VideoTarget, runner: Runner, trace: Trace) -> None:
        self._target, self._runner, self.trace = target, runner, trace
        opening = target.opening()
        # The opening text is a unit without frames.
        self._units = [Unit((), None, opening, len(opening), opening.span)]
        # Frames that are not encoded yet, with their stamps.
        self._waiting: list[tuple[int, np.ndarray]] = []
        # Unread chunks after the units.
        self._tail: list[Chunk] = []
        # Position of the next unread token.
        self._position = 0
        self._passes = 0
        self._stage = ""
        self._row = runner.take()

    @property
    def frames(self) -> tuple[torch.Tensor, ...]:
        """The embeddings (n, width) of each encoded unit."""
        return tuple(unit.chunk.embeds for unit in self._units[1:])

    @property
    def frame_count(self) -> int:
        """Number of encoded frames."""
        return sum(len(unit.stamps) for unit in self._units)

    @property
    def unread(self) -> int:
        """Number of tokens that the next pass reads before its tree."""
        return sum(map(len, self._unread()))

    def append(self, frame: np.ndarray, stamp_ns: int) -> None:
        """Add the next (H, W, 3) uint8 RGB frame."""
        self._roll_back(len(self._units))
        self._waiting.append((stamp_ns, frame))

    def fit(self, frames: Sequence[np.ndarray], stamps_ns: Sequence[int]) -> None:
        """Set the window's frames, identified by their stamps; keep the units that match from the start."""
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
        """Add the question after the frames; the next pass reads it together with the tree.

        In a REHEARSAL the newest unit stands in for the missing ones. In STANDING questions the tree contains
        the question.
        """
        # This may fail, so it runs before any change.
        closing, spec = self._target.closing(question), self._target.spec
        self._roll_back(len(self._units))
        self.trace, self._stage, self._tail = trace, stage, [closing]
        if stage == REHEARSAL:
            missing = range(len(self._units) - 1, spec.units)
            self._tail = [*(self._target.unit(self._units[-1].features, i) for i in missing), closing]
        elif stage == STANDING:
            # Some families have tokens between the frames and the text.
            self._tail = [closing.cut(len(closing) - len(self._target.prompt_ids(question)[1]))]

    def ends_rehearsal(self, frames: int) -> bool:
        """Return whether this number of further frames ends a rehearsal.

        They end it if they complete a unit and at most one more unit follows. If every frame ended it, a
        rehearsal would spend most of its time on the prefill of the question.
        """
        spec = self._target.spec
        units = (self.frame_count + len(self._waiting) + frames) // spec.frames_per_unit
        return units >= max(len(self._units), spec.units - 1)

    def units(self) -> list[np.ndarray]:
        """Return the units of frames (n, H, W, 3) to encode now; `add` takes their features.

        If a question follows, the last unit may be incomplete.
        """
        per_unit, count = self._target.spec.frames_per_unit, len(self._waiting)
        if not self._tail or self._stage == REHEARSAL:
            count -= count % per_unit
        images = [image for _, image in self._waiting[:count]]
        return [np.stack(images[i : i + per_unit]) for i in range(0, count, per_unit)]

    def add(self, features: Sequence[Any]) -> None:
        """Add the features of `units`."""
        per_unit = self._target.spec.frames_per_unit
        for one in features:
            # This may fail, so it runs before the frames leave the queue.
            chunk, last = self._target.unit(one, len(self._units) - 1), self._units[-1]
            stamps = tuple(stamp_ns for stamp_ns, _ in self._waiting[:per_unit])
            del self._waiting[:per_unit]
            self._units.append(Unit(stamps, one, chunk, last.length + len(chunk), last.end + chunk.span))

    def pass_name(self, tree: DraftTree) -> str:
        """Return the name of the next pass in the trace."""
        if self._stage:
            return f"{self._stage}[{self._passes}]"
        if self._passes == 0:
            return f"target_prefill[{self.frame_count}]"
        return f"verify[{self._passes}]" if len(tree) else f"decode[{self._passes}]"

    def next_input(self, tree: DraftTree, logits: int) -> Input:
        """Return the unread chunks and the tree as input of a pass with `logits` rows of logits."""
        unread = self._unread()
        words = self._target.words(tree.token_ids)
        nodes = Chunk.at(words.embeds, [depth - 1 for depth in tree.depths()], len(words.positions))
        read = Chunk.joined([*unread, nodes])
        mask = attention_mask(self._row.length, sum(map(len, unread)), tree)
        return Input(self._row, read.embeds, self._position + read.positions, mask, read.layers, logits)

    def was_read(self, input_: Input, tree: DraftTree) -> None:
        """Update the state after a pass over this input with this tree."""
        self._position = int(input_.positions[:, : len(input_) - len(tree)].max()) + 1
        self._tail = []

    def keep(
        self, input_: Input, tree: DraftTree, path: tuple[int, ...], following: int, output: Output
    ) -> Step:
        """Commit the accepted path and the bonus token `following` after a pass over this input."""
        before = len(self._tail[-1])
        self.was_read(input_, tree)
        self._passes += 1
        verified = self._row.length - len(tree)
        self._row.keep(verified, [verified + node for node in path])
        self._position += len(path)
        self._tail = [self._target.words((following,))]
        tokens = (*(tree.token_ids[node] for node in path), following)
        eos = next((i for i, token in enumerate(tokens) if token in self._target.spec.eos_ids), None)
        # Hidden states of the question or the last token, and of the path.
        root = len(input_) - len(tree)
        kept = [*range(root - before, root), *(root + node for node in path)]
        return Step(
            path,
            tokens if eos is None else tokens[: eos + 1],
            eos is not None,
            len(input_),
            hidden=None if output.hidden is None else partial(_hidden, output, kept, self._runner.taps),
        )

    def forget(self) -> None:
        """Remove everything after the frames."""
        self._roll_back(len(self._units))

    def close(self, is_valid: bool = True) -> None:
        """Give the row back to the runner, which zeroes an invalid row: masked NaN would spread (0 x NaN)."""
        self._row.is_valid = self._row.is_valid and is_valid
        self._runner.give_back(self._row)

    def _unread(self) -> list[Chunk]:
        """Return the chunks that the cache lacks."""
        return [*(unit.chunk for unit in self._units if unit.length > self._row.length), *self._tail]

    def _roll_back(self, units: int) -> None:
        """Keep the first `units` units, and the cache of those that were read."""
        del self._units[units:]
        self._tail, self._stage, self._passes = [], "", 0
        read = [unit for unit in self._units if unit.length <= self._row.length]
        self._row.keep(read[-1].length if read else 0)
        self._position = read[-1].end if read else 0


def _hidden(
    output: Output, rows: list[int], taps: tuple[int, ...], layers: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return `Step.hidden` for these rows of an output with the tapped layers `taps`."""
    if not layers or output.tapped is None:
        return output.hidden[rows], None
    import torch

    parts = output.tapped[rows].chunk(len(taps), -1)
    return output.hidden[rows], torch.cat([parts[taps.index(layer)] for layer in layers], -1)
