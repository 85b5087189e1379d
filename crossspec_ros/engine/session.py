"""Engine, session, step: the target as the decoder holds it, with a session for each window.

The target may be in this process (`local.py`) or elsewhere: frames go in, token ids and seconds come out, and
no logits leave it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    # A robot whose target is elsewhere needs no torch.
    import numpy as np
    import torch

    from crossspec_ros.engine.json_grammar import GrammarState
    from crossspec_ros.engine.pass_cost import PassCost
    from crossspec_ros.engine.sampling import Sampling


@dataclass(frozen=True)
class HiddenStates:
    """A handle on the target's last hidden states of a step; they stay on its device.

    `taps` are the inputs of the tapped `layers`, side by side. Good until the session's next step.
    """

    states: torch.Tensor
    rows: tuple[int, ...]
    taps: torch.Tensor | None = None
    layers: tuple[int, ...] = ()

    def accepted(self) -> torch.Tensor:
        """(read + accepted nodes, width): of each token that the step read before the tree, which is the
        question in a first step and else the last token, and of each node on the path."""
        return self.states[list(self.rows)]

    def tapped(self, layers: Sequence[int]) -> torch.Tensor | None:
        """(read + accepted nodes, layers * width): the inputs of these layers at the same tokens, whichever
        others are tapped; None where none are asked for."""
        import torch

        if not layers or self.taps is None:
            return None
        parts = self.taps[list(self.rows)].chunk(len(self.layers), -1)
        return torch.cat([parts[self.layers.index(layer)] for layer in layers], -1)


@dataclass(frozen=True)
class Proposed:
    """Nodes of trees that an engine elsewhere put to the target, and those it took, by proposer."""

    drafted: Mapping[str, int]
    accepted: Mapping[str, int]


@dataclass(frozen=True)
class Step:
    """Result of a pass of the target.

    `path` are the accepted nodes of the tree, from the root down; `tokens` those of the path and the target's
    own next one, cut after an end of sequence, with which the response has `ended`. The pass read
    `tokens_read` tokens, the tree's included, in `seconds` of the device's time; it read up to `most_read`
    for each of the `rows` sessions that shared it. An engine with proposers of its own tells
    what these `proposed`. `round_trip_s` is the time of the link, if there is one, over
    which several `passes` may come as one step, with the `text` of the whole answer so far.
    """

    path: tuple[int, ...]
    tokens: tuple[int, ...]
    ended: bool
    tokens_read: int
    seconds: float
    hidden: HiddenStates | None = None
    rows: int = 1
    most_read: int = 0
    proposed: Proposed | None = None
    round_trip_s: float = 0.0
    passes: int = 1
    text: str | None = None


class Session(Protocol):
    """One window. No method waits: what they ask for is done in their order. `close` comes last, always."""

    @property
    def branches(self) -> bool:
        """Trees of a step may have more than one path."""
        ...

    def append(self, frame: np.ndarray, stamp_ns: int) -> Future[None]:
        """Read the next (H, W, 3) uint8 RGB frame ahead of the question, when there is time.

        A frame is known by its stamp from then on. Where it fails, the session is good again after `fit`.
        """
        ...

    def fit(self, frames: Sequence[np.ndarray | torch.Tensor], stamps_ns: Sequence[int]) -> Future[None]:
        """Let the session have exactly these (H, W, 3) frames, by their stamps; what was not read ahead is
        read with the question.

        In place of a frame that is a unit there may be features (n, width) on the target's device, which
        stand in for what its tower would make of it.
        """
        ...

    def rehearse(self, question: str, trace: Trace) -> int:
        """As `ask`, about the frames so far: the newest stands in for those that are missing.

        Its steps are made when the engine is idle. A frame, `fit` or another question ends the rehearsal; a
        step then fails with RehearsalOverError. Only where the engine `rehearses`.
        """
        ...

    def stop_rehearsal(self) -> None:
        """Cancel the steps that wait for idle time; a pass in flight goes on. For any thread."""
        ...

    def ask(self, question: str, trace: Trace, max_new_tokens: int, hint: str = "") -> int:
        """Begin an answer of at most so many tokens, whose spans go to `trace`; a further question takes the
        place of the last.

        An engine with proposers of its own drafts from the `hint`, which is the event draft's text. Returns
        how many tokens the first step will read before its tree, as far as is known.
        """
        ...

    def step(
        self,
        tree: DraftTree,
        sampling: Sampling | None = None,
        grammar: GrammarState | None = None,
    ) -> Future[Step]:
        """Put the tree to the target as the answer's continuation, and keep what it accepts.

        With a `grammar` the target writes what that allows alone; it goes on with what was written. Only
        where the engine has `masks`.
        """
        ...

    def score(self, tree: DraftTree, trace: Trace) -> Future[tuple[float, ...]]:
        """Logarithms of the probabilities that the target gives each node behind its parent, of a tree that
        follows the frames: it begins with what is asked, whose first tokens get 0.

        Nothing of it is kept; an answer in work is over. Only where the engine `scores`.
        """
        ...

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes that went to the target's host and came from it, for this window."""
        ...

    @property
    def frames(self) -> tuple[torch.Tensor, ...]:
        """A handle on the embeddings (n, width) of each unit of frames that was encoded so far; for any
        thread. They stay on the target's device, where they may still be in work."""
        ...

    def rest(self) -> None:
        """The answer is over; frames of other windows need not wait for it any more."""
        ...

    def close(self) -> None:
        """Give the buffers back; a second time does nothing."""
        ...


class Engine(Protocol):
    """Owns a target's weights, KV pool and streams, and the thread that uses them."""

    @property
    def pulses(self) -> tuple[Pulse, ...]:
        """Pulses of its threads."""
        ...

    @property
    def masks(self) -> bool:
        """Masks of a grammar over the target's tokens: steps may have a `grammar`."""
        ...

    @property
    def scores(self) -> bool:
        """Scores of trees: sessions have `score`."""
        ...

    @property
    def rehearses(self) -> bool:
        """Rehearsals: sessions have `rehearse`."""
        ...

    def tap(self, layers: Sequence[int]) -> None:
        """From now on let hidden states have the inputs of these decoder layers; before `warm_up`."""
        ...

    def warm_up(self, sessions: int) -> None:
        """Take the buffers of so many sessions of each robot that live at a time, capture all graphs, and do
        what is slow the first time."""
        ...

    def measure(self) -> PassCost | None:
        """Cost of passes after windows of noise, kept up to date; takes some 60 passes for each number of
        sequences that may share one. None where the engine decides itself what is verified."""
        ...

    def open(self, window: int, trace: Trace, robot: str = "") -> Session:
        """A session for the window of this index of this robot; what is read ahead becomes spans of
        `trace`."""
        ...

    def close(self) -> None:
        """End the thread; sessions are of no use any more."""
        ...
