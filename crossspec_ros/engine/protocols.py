"""Contracts between a captioner and an engine: the target in this process, or on another host.

Frames go in, token ids and seconds come out, and no logits leave the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.telemetry.trace import Trace

if TYPE_CHECKING:
    # A robot whose target is elsewhere needs no torch.
    import numpy as np
    import torch

    from crossspec_ros.engine.pass_cost import PassCost
    from crossspec_ros.engine.request import Frames
    from crossspec_ros.engine.sampling import Sampling


@dataclass(frozen=True)
class Step:
    """Result of a pass.

    `path` are the accepted nodes of the tree, from the root down. `tokens` are those of the path and the
    bonus token, cut behind an end of sequence; then the response has `ended`. The pass read `tokens_read`
    tokens, the tree's included, in `seconds` of the device's time, and up to `most_read` for each of the
    `rows` windows that shared it.

    `hidden` returns the last hidden states (n, width) of each token before the tree, which is the question in
    a first pass and else the last token, and of each node on the path, and the inputs (n, layers * width) of
    these tapped layers at the same tokens. They are on the target's device, and good until the runner's next
    pass.

    From another host several `passes` may come as one step, with the `text` so far, the nodes that were
    `drafted` and `accepted` by proposer, the link's time `round_trip_s`, and the bytes of the window's
    `traffic`, which went there and came from there so far.
    """

    path: tuple[int, ...]
    tokens: tuple[int, ...]
    ended: bool
    tokens_read: int
    seconds: float = 0.0
    hidden: Callable[[Sequence[int]], tuple[torch.Tensor, torch.Tensor | None]] | None = None
    rows: int = 1
    most_read: int = 0
    drafted: Mapping[str, int] = field(default_factory=dict)
    accepted: Mapping[str, int] = field(default_factory=dict)
    round_trip_s: float = 0.0
    traffic: tuple[int, int] = (0, 0)
    passes: int = 1
    text: str | None = None


class Answering(Protocol):
    """An answer as an engine sees it: it proposes trees and takes steps, in the engine's thread."""

    question: str
    max_new_tokens: int
    sampling: Sampling | None
    trace: Trace
    future: Future[None]
    """Done with the last pass."""

    @property
    def hint(self) -> str:
        """Text from which an engine with proposers of its own may draft."""

    @property
    def rehearses(self) -> bool:
        """Whether it may be rehearsed."""

    def prepare(self, frames: tuple[torch.Tensor, ...]) -> bool:
        """Look up in idle time what `propose` will need; return whether there is more to do."""

    def propose(self, frames: tuple[torch.Tensor, ...], unread: int, branches: bool) -> DraftTree:
        """Return the tree for a pass that also reads `unread` tokens. It is a single path unless the runner
        `branches`; `frames` are the embeddings (n, width) of each unit of frames."""

    def accept(self, tree: DraftTree, logits: Any) -> tuple[tuple[int, ...], int]:
        """Return the accepted nodes and the token behind them, see `accept.accepted`."""

    def take(self, tree: DraftTree, step: Step) -> bool:
        """Take the result of a pass; return whether another one is to follow."""

    def learn(self) -> None:
        """Learn from the last pass."""

    def rest(self, error: BaseException) -> None:
        """Rehearse no more for some windows: this rehearsal failed."""


class Engine(Protocol):
    """Owns a target's weights, its KV pool, and the thread that uses them. No method waits, unless it says
    so. `open` returns the engine's own handle on a window."""

    pulses: tuple[Pulse, ...]
    """Pulses of its threads."""
    masks: bool
    """Whether answers may follow a grammar."""
    scores: bool
    """Whether trees can be scored."""

    def tap(self, layers: Sequence[int]) -> None:
        """Let hidden states have the inputs of these decoder layers from now on; before `warm_up`. Waits."""

    def warm_up(self, windows: int) -> None:
        """Take the buffers of so many windows of each robot, and do what is slow the first time. Waits."""

    def measure(self) -> PassCost | None:
        """Return what passes cost, from some 60 passes over noise; None from another host. Waits."""

    def open(
        self,
        window: int,
        trace: Trace,
        robot: str = "",
        plan: Callable[[], Answering | None] = lambda: None,
    ) -> Any:
        """Return a handle on the window of this index of this robot, whose spans go to `trace`.

        `plan` returns the answer that is rehearsed in idle time; it is called after the first frame.
        """

    def add_frame(self, window: Any, frame: np.ndarray, stamp_ns: int) -> Future[None]:
        """Prefill the next (H, W, 3) uint8 RGB frame when there is time; the future is done with that."""

    def ask(self, window: Any, answer: Answering, frames: Frames) -> Future[None]:
        """Let the target answer about exactly these frames.

        What was not prefilled is read with the question. Returns the answer's future.
        """

    def score(
        self, window: Any, tree: DraftTree, trace: Trace, frames: Frames, can_wait: bool = False
    ) -> Future[tuple[float, ...]]:
        """Return the log-probability of each node behind its parent, for a tree behind exactly these frames.

        The tree begins with what is asked, whose first tokens get 0. Frames are prefilled first if it
        `can_wait`.
        """

    def cancel(self, window: Any) -> None:
        """Drop what the window was asked; a pass in flight goes on."""

    def drop(self, window: Any) -> None:
        """Give the window's buffers back; a second time does nothing."""

    def close(self) -> None:
        """End the threads, and fail what is in work."""
