"""Contracts between a captioner and its engine, which runs the target in this process or on another host.

Frames go in; token ids and seconds come out. Logits never leave the engine.
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
    # A robot whose target runs on a server needs no torch.
    import numpy as np
    import torch

    from crossspec_ros.engine.pass_cost import PassCost
    from crossspec_ros.engine.request import Frames
    from crossspec_ros.engine.sampling import Sampling


@dataclass(frozen=True)
class Step:
    """Result of a pass, or of several `passes` of a server.

    Attributes:
        path: accepted nodes of the tree, from the root down.
        tokens: accepted tokens and the bonus token, truncated after an end of sequence.
        ended: whether the response has ended.
        tokens_read: tokens of this window in the pass, with the tree.
        seconds: device time of the pass.
        hidden: for tapped layers, returns the last hidden states (n, width) and the layers' inputs
            (n, layers * width). The n tokens are the unread tokens before the tree (the question or the last
            token) and the path. Valid until the runner's next pass.
        rows: windows that shared the pass.
        most_read: tokens of the longest of them.
        drafted: draft tokens by proposer, from a server.
        accepted: accepted tokens by proposer, from a server.
        round_trip_s: time on the link to the server.
        traffic: bytes of the window that were sent to the server and received from it.
        text: the response so far, from a server.
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
    """An answer in progress: it proposes draft trees and takes results, in the engine's thread."""

    question: str
    max_new_tokens: int
    sampling: Sampling | None
    trace: Trace
    future: Future[None]
    """Done with the last pass."""

    @property
    def hint(self) -> str:
        """Text from which a server may draft."""

    @property
    def rehearses(self) -> bool:
        """Whether it may be rehearsed."""

    def prepare(self, frames: tuple[torch.Tensor, ...]) -> bool:
        """Prepare for `propose` while the engine is idle; return whether there is more to do."""

    def propose(self, frames: tuple[torch.Tensor, ...], unread: int, branches: bool) -> DraftTree:
        """Return the tree for a pass that also reads `unread` tokens.

        The tree is a single path unless the runner `branches`. `frames` are the embeddings (n, width) of each
        unit of frames.
        """

    def accept(self, tree: DraftTree, logits: Any) -> tuple[tuple[int, ...], int]:
        """Return the accepted nodes and the bonus token, see `accept.accept_tokens`."""

    def take(self, tree: DraftTree, step: Step) -> bool:
        """Take the result of a pass; return whether the answer needs another pass."""

    def learn(self) -> None:
        """Learn from the last pass."""

    def rest(self, error: BaseException) -> None:
        """Disable rehearsals for some windows, after an error."""


class Engine(Protocol):
    """Owns a target's weights, its KV pool, and the thread that uses them.

    `tap`, `warm_up`, `measure` and `close` block; other methods return at once.
    """

    pulses: tuple[Pulse, ...]
    """Pulses of the engine's threads."""
    supports_grammar: bool
    """Whether answers may follow a grammar."""
    supports_scores: bool
    """Whether the engine can score trees."""

    def tap(self, layers: Sequence[int]) -> None:
        """Return the inputs of these decoder layers with hidden states; call it before `warm_up`."""

    def warm_up(self, windows: int) -> None:
        """Allocate the buffers for `windows` windows of each robot, and run the slow first passes."""

    def measure(self) -> PassCost | None:
        """Measure the cost of passes, with some 60 passes over noise; None from a server."""

    def open(
        self, window: int, trace: Trace, robot: str = "", plan: Callable[[], Answering | None] = lambda: None
    ) -> Any:
        """Return a handle on the window with index `window` of this robot; its spans go to `trace`.

        After the first frame, the engine calls `plan` for the answer to rehearse when idle.
        """

    def add_frame(self, window: Any, frame: np.ndarray, stamp_ns: int) -> Future[None]:
        """Queue the next (H, W, 3) uint8 RGB frame for prefill; the future is done once it is prefilled."""

    def ask(self, window: Any, answer: Answering, frames: Frames) -> Future[None]:
        """Queue an answer about exactly these frames, and return its future.

        The pass with the question also reads the frames that were not prefilled.
        """

    def score(
        self, window: Any, tree: DraftTree, trace: Trace, frames: Frames, can_wait: bool = False
    ) -> Future[tuple[float, ...]]:
        """Queue the scoring of a tree after exactly these frames.

        The tree starts with the question. The future returns the log-probability of each node after its
        parent, 0 for children of the root. Queued frames are prefilled first if it `can_wait`.
        """

    def cancel(self, window: Any) -> None:
        """Cancel the window's answers and scores; a running pass continues."""

    def drop(self, window: Any) -> None:
        """Free the window's buffers; a second call does nothing."""

    def close(self) -> None:
        """End the threads, and cancel all work."""
