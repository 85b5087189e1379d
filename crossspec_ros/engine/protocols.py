"""Contracts between a captioner and an engine: the target in this process, or on another host.

Frames go in, token ids and seconds come out, and no logits leave the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

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
    from crossspec_ros.engine.work import Frames


@dataclass(frozen=True)
class HiddenStates:
    """The target's last hidden states of a pass, on its device; good until the window's next pass.

    `taps` are the inputs of the tapped `layers`, side by side.
    """

    states: torch.Tensor
    rows: tuple[int, ...]
    taps: torch.Tensor | None = None
    layers: tuple[int, ...] = ()

    def accepted(self) -> torch.Tensor:
        """Return (read + accepted nodes, width): the states of each token before the tree, which is the
        question in a first pass and else the last token, and of each node on the path."""
        return self.states[list(self.rows)]

    def tapped(self, layers: Sequence[int]) -> torch.Tensor | None:
        """Return (read + accepted nodes, layers * width): the inputs of these layers at the same tokens;
        None without layers."""
        import torch

        if not layers or self.taps is None:
            return None
        parts = self.taps[list(self.rows)].chunk(len(self.layers), -1)
        return torch.cat([parts[self.layers.index(layer)] for layer in layers], -1)


@dataclass(frozen=True)
class Proposed:
    """Nodes of trees that an engine elsewhere verified, and those it accepted, by proposer."""

    drafted: Mapping[str, int]
    accepted: Mapping[str, int]


@dataclass(frozen=True)
class Step:
    """Result of a pass.

    `path` are the accepted nodes of the tree, from the root down. `tokens` are those of the path and the
    bonus token, cut behind an end of sequence; then the response has `ended`. The pass read `tokens_read`
    tokens, the tree's included, in `seconds` of the device's time, and up to `most_read` for each of the
    `rows` windows that shared it. From another host several `passes` may come as one step, with the `text`
    so far, what its proposers `proposed`, and the link's time `round_trip_s`.
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


class Answering(Protocol):
    """An answer as an engine sees it: it proposes trees and takes steps, in the engine's thread."""

    @property
    def question(self) -> str: ...

    @property
    def max_new_tokens(self) -> int: ...

    @property
    def sampling(self) -> Sampling | None: ...

    @property
    def grammar(self) -> GrammarState | None: ...

    @property
    def hint(self) -> str:
        """Text from which an engine with proposers of its own may draft."""
        ...

    @property
    def trace(self) -> Trace: ...

    @property
    def rehearses(self) -> bool:
        """Whether it may be rehearsed."""
        ...

    @property
    def future(self) -> Future[None]:
        """Done with the last pass."""
        ...

    def prepare(self, frames: tuple[torch.Tensor, ...]) -> bool:
        """Look up in idle time what `propose` will need; return whether there is more to do."""
        ...

    def propose(self, frames: tuple[torch.Tensor, ...], unread: int, branches: bool) -> DraftTree:
        """Return the tree for a pass that also reads `unread` tokens. It is a single path unless the runner
        `branches`; `frames` are the embeddings (n, width) of each unit of frames."""
        ...

    def take(self, tree: DraftTree, step: Step) -> bool:
        """Take the result of a pass; return whether another one is to follow."""
        ...

    def learn(self) -> None:
        """Learn from the last pass."""
        ...

    def rest(self, error: BaseException) -> None:
        """Rehearse no more for some windows: this rehearsal failed."""
        ...


class Engine(Protocol):
    """Owns a target's weights, its KV pool, and the thread that uses them. No method waits, unless it says
    so. `open` returns the engine's own handle on a window."""

    @property
    def pulses(self) -> tuple[Pulse, ...]:
        """Pulses of its threads."""
        ...

    @property
    def masks(self) -> bool:
        """Whether answers may follow a grammar."""
        ...

    @property
    def scores(self) -> bool:
        """Whether trees can be scored."""
        ...

    def tap(self, layers: Sequence[int]) -> None:
        """Let hidden states have the inputs of these decoder layers from now on; before `warm_up`. Waits."""
        ...

    def warm_up(self, windows: int) -> None:
        """Take the buffers of so many windows of each robot, and do what is slow the first time. Waits."""
        ...

    def measure(self) -> PassCost | None:
        """Return what passes cost, from some 60 passes over noise; None from another host. Waits."""
        ...

    def open(
        self,
        window: int,
        trace: Trace,
        robot: str = "",
        plan: Callable[[], Answering | None] = lambda: None,
    ) -> Any:
        """Return a handle on the window of this index of this robot, whose spans go to `trace`.

        `plan` returns the answer that is rehearsed in idle time, once half of the frames are prefilled.
        """
        ...

    def add_frame(self, window: Any, frame: np.ndarray, stamp_ns: int) -> Future[None]:
        """Prefill the next (H, W, 3) uint8 RGB frame when there is time; the future is done with that."""
        ...

    def ask(self, window: Any, answer: Answering, frames: Frames) -> Future[None]:
        """Let the target answer about exactly these frames.

        What was not prefilled is read with the question. Returns the answer's future.
        """
        ...

    def score(
        self, window: Any, tree: DraftTree, trace: Trace, frames: Frames, can_wait: bool = False
    ) -> Future[tuple[float, ...]]:
        """Return the log-probability of each node behind its parent, for a tree behind exactly these frames.

        The tree begins with what is asked, whose first tokens get 0. Frames are prefilled first if it
        `can_wait`.
        """
        ...

    def cancel(self, window: Any) -> None:
        """Drop what the window was asked; a pass in flight goes on."""
        ...

    def traffic(self, window: Any) -> tuple[int, int]:
        """Return the bytes that went to the target's host and came from there for this window."""
        ...

    def drop(self, window: Any) -> Future[None]:
        """Give the window's buffers back; a second time does nothing."""
        ...

    def close(self) -> None:
        """End the threads, and fail what is in work."""
        ...
