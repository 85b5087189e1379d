"""Captions, outcomes of windows, and the listener that receives them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

if TYPE_CHECKING:
    from crossspec_ros.captioning.standing import Answered, Choices, Standing
    from crossspec_ros.engine.json_grammar import GrammarState
    from crossspec_ros.engine.sampling import Sampling
    from crossspec_ros.models.base import VideoTarget

MAX_QUESTION = 10_000
"""Maximum characters of a question."""
MAX_QUESTION_TOKENS = 4096
"""Maximum tokens of a question. An emoji has four tokens, and the cost of attention is quadratic. The longest
question in words has 2,500."""
_ANSWER_ROOM = 64
"""Tokens reserved for an answer."""
RESTS_ON = {"target": "frames", "event_draft": "events", "none": "nothing", "unchanged": "nothing"}
"""Input that a caption is based on, by its source."""
OnText = Callable[[str], None] | None
"""Callback for a text."""
UNREACHED = "target_unreached"
"""Fault of a caption: the target's server did not answer in time."""
NO_JSON = "no_json"
"""Fault of a caption: it is not complete JSON of the schema."""


@dataclass(frozen=True)
class Options:
    """The `question` about a window, and how the target answers it.

    The `grammar` constrains the answer. The target answers the standing questions `first` before it, and
    `later` after it.
    """

    question: str
    max_new_tokens: int = 64
    sampling: Sampling | None = None
    grammar: GrammarState | None = None
    first: tuple[Choices, ...] = ()
    later: tuple[Choices, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Rehearsal:
    """A caption that the target wrote before the last frames of the window arrived.

    `passes` and `seconds` are sums over all rehearsals of the window. `is_complete` is whether the last one
    reached its end.
    """

    token_ids: tuple[int, ...] = ()
    passes: int = 0
    seconds: float = 0.0
    is_complete: bool = False


@dataclass(frozen=True)
class Caption:
    """Text about a window.

    Args:
        source: "target" if the target verified the text. "event_draft" if the window had no usable frames,
            and "none" if it had no usable images at all. "rehearsal": written before the last frames arrived.
            "unchanged", in code only: the text of an earlier window, because this one shows nothing new.
        token_ids: include the end-of-sequence token, unless the caption was cut. An event draft has token ids
            of its own vocabulary.
        target_passes: number of passes that gave tokens; `accept_lengths` has the tokens of each.
        drafted: draft tokens of each proposer in verified trees; the target accepted `accepted` of them. A
            token of two proposers counts for both.
        traffic: bytes sent to, and received from, a target on another host.
        round_trip_s: time of the link to that host.
        unreached: reason why that host did not answer, so that the event draft replaces the caption.
        is_json: whether a schema was set, and the text is complete JSON of it.
    """

    text: str
    token_ids: tuple[int, ...]
    source: str
    target_passes: int = 0
    drafted: Mapping[str, int] = field(default_factory=dict)
    accepted: Mapping[str, int] = field(default_factory=dict)
    late: bool = False
    traffic: tuple[int, int] = (0, 0)
    round_trip_s: float = 0.0
    unreached: str = ""
    accept_lengths: tuple[int, ...] = ()
    is_json: bool = False
    rehearsal: Rehearsal = Rehearsal()

    @property
    def askable(self) -> bool:
        """Whether the target has read the window, and can answer further questions about it."""
        return self.source == "target"

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens per target pass, including the bonus token."""
        return len(self.token_ids) / self.target_passes if self.target_passes else 0.0


class Holding(NamedTuple):
    """Caption that is still valid, and its window without images."""

    caption: Caption
    window: Window


@dataclass(frozen=True)
class Outcome:
    """Outcome of one window: its caption, or the reason why it has no caption.

    `flags` are the faults of the inputs (windows/quality.py), followed by those of the caption. `skipped` is
    the reason of a skipped window. `holds` is the valid caption for a window that shows nothing new. A window
    without caption, `skipped`, `holds` and `error` still waits for a question. Listeners drop their work on
    the outcome once `cancel` is set.
    """

    window: Window
    options: Options
    trace: Trace = field(default_factory=Trace)
    caption: Caption | None = None
    flags: tuple[str, ...] = ()
    skipped: str = ""
    holds: Holding | None = None
    error: Exception | None = None
    cancel: threading.Event = field(default_factory=threading.Event)

    def captioned(self, caption: Caption, faults: Sequence[str]) -> Outcome:
        """Return the outcome with its caption. The caption's faults follow the faults of its inputs."""
        is_cut = self.options.grammar is not None and not caption.is_json
        own = (UNREACHED,) * bool(caption.unreached) + (NO_JSON,) * is_cut
        return replace(self, caption=caption, flags=(*faults, *own))

    @property
    def holding(self) -> Holding | None:
        """The caption, if it is complete and may stand for later windows that show nothing new."""
        if self.caption is None or self.caption.late or {UNREACHED, NO_JSON} & set(self.flags):
            return None
        return Holding(self.caption, without_images(self.window))


class Listener:
    """Callbacks about windows. The threads of the captioner and its decoder call them; these do nothing."""

    def drafted(self, index: int, text: str, source: str) -> None:
        """Handle an unverified text about the window `index`, and its source."""

    def words(self, index: int, text: str) -> None:
        """Handle the verified text so far of the window `index`, which is in work."""

    def outcome(self, outcome: Outcome) -> None:
        """Handle the outcome of a window."""

    def standing(self, standing: Standing, answer: Answered | Exception, window: Window) -> None:
        """Handle the answer to a standing question, or its error: a CancelledError for a dropped window."""


def without_images(window: Window) -> Window:
    """Return the window with images of no size: its times and counts stay."""
    frames, event_images = (
        np.zeros((len(images), 0, 0, 3), np.uint8) for images in (window.frames, window.event_images)
    )
    return replace(window, event_images=event_images, frames=frames)


def check_length(question: str) -> None:
    """Raise InputError if the question is too long to be queued and tokenized."""
    if len(question) > MAX_QUESTION:
        raise InputError(
            f"the question has {len(question)} characters, but the maximum is {MAX_QUESTION}: shorten it"
        )


def check_question(target: VideoTarget, question: str) -> None:
    """Raise InputError if the question is empty, or leaves no room for an answer."""
    if not question.strip():
        raise InputError("the question is empty: ask in words")
    check_length(question)
    spec = target.spec
    used = sum(map(len, target.prompt_ids(question)))
    room = min(spec.most_tokens - spec.frame_tokens - _ANSWER_ROOM, MAX_QUESTION_TOKENS)
    if used > room:
        raise InputError(
            f"the prompt of the question has {used} tokens, but frames and answer leave room for {room}: "
            f"shorten it"
        )
