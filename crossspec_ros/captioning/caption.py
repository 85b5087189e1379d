"""Caption of a window, how it came about, and who hears of it."""

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
"""Maximum tokens of a question: emojis make four of a character, and what each token of a pass sees takes
memory and time by the square of their number. The longest question in words has 2,500."""
_ANSWER_ROOM = 64
"""Tokens of an answer."""
RESTS_ON = {"target": "frames", "event_draft": "events", "none": "nothing", "unchanged": "nothing"}
"""Input that a caption rests on, by its source."""
OnText = Callable[[str], None] | None
"""Gets a text, if anybody wants it."""
UNREACHED = "target_unreached"
"""Beside the faults of inputs: the target's server did not answer in time."""
NO_JSON = "no_json"
"""Fault of a caption itself: it is no complete JSON of the schema."""


@dataclass(frozen=True)
class Options:
    """The `question` about a window, and how the target answers it.

    The answer follows the `grammar`. The standing questions `first` come before it, those `later` after it.
    """

    question: str
    max_new_tokens: int = 64
    sampling: Sampling | None = None
    grammar: GrammarState | None = None
    first: tuple[Choices, ...] = ()
    later: tuple[Choices, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Rehearsal:
    """What the target wrote before the last frames of its window came.

    All rehearsals of the window together took so many `passes` and `seconds`. `is_complete` says that the
    last one came to its end.
    """

    token_ids: tuple[int, ...] = ()
    passes: int = 0
    seconds: float = 0.0
    is_complete: bool = False


@dataclass(frozen=True)
class Caption:
    """Words about a window.

    `source` is "target", or "event_draft" where there were no frames (then no target verified it), or "none"
    where there was nothing to see; "rehearsal" is the target's text before its last frames came. Of a
    recording in code it is "unchanged" where a window shows nothing new and the words are those of an earlier
    one. `token_ids` include the end-of-sequence token, unless the caption was cut; those of an event draft
    are of its own vocabulary.
    `target_passes` counts the passes that gave tokens, and `accept_lengths` has how many each gave. `drafted`
    tokens of each proposer were put to the target, which took `accepted` of them; a token that two proposed
    counts for both. Of a target on another host, `traffic` is the bytes that went there and came from there,
    and `round_trip_s` the link's time; `unreached` says why it was not heard, where the event draft's words
    had to do. `rehearsal` is what the target wrote before the last frames came. `is_json` says that a schema
    was asked for, and the text is complete JSON of it.
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
        """Whether the target has read its window, so that it can be asked about."""
        return self.source == "target"

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens per target pass, the target's own one included."""
        return len(self.token_ids) / self.target_passes if self.target_passes else 0.0


class Holding(NamedTuple):
    """Caption that holds still, and the window that it is about, without images."""

    caption: Caption
    window: Window


@dataclass(frozen=True)
class Outcome:
    """Outcome of one window: the caption by these `options`, or the reason why there is none.

    `flags` are the faults of its inputs (windows/quality.py), and behind them those of the caption itself. A
    window is `skipped` for this reason. Of a window that shows nothing new, `holds` has the caption that
    holds still. No question has come about a window that has none of all these. Once `cancel` is set nobody
    waits for what is made of it.
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
        """Return the outcome with its caption, whose own faults follow those of its inputs."""
        is_cut = self.options.grammar is not None and not caption.is_json
        own = (UNREACHED,) * bool(caption.unreached) + (NO_JSON,) * is_cut
        return replace(self, caption=caption, flags=(*faults, *own))

    @property
    def holding(self) -> Holding | None:
        """Its caption, where that may hold for windows that show nothing new: it is complete, and the
        target's server was reached."""
        if self.caption is None or self.caption.late or {UNREACHED, NO_JSON} & set(self.flags):
            return None
        return Holding(self.caption, without_images(self.window))


class Listener:
    """Hears of windows, in the captioner's thread and those of its decoder; this one makes nothing of it."""

    def drafted(self, index: int, text: str, source: str) -> None:
        """Take an unverified text about the window `index`, and its source."""

    def words(self, index: int, text: str) -> None:
        """Take the verified text so far of the window `index`, which is in work."""

    def outcome(self, outcome: Outcome) -> None:
        """Take what became of a window."""

    def standing(self, standing: Standing, answer: Answered | Exception, window: Window) -> None:
        """Take the answer to a standing question about a window, or why there is none: a CancelledError once
        the window was dropped."""


def without_images(window: Window) -> Window:
    """Return the window without its pixels: times and counts, and images of no size in their number."""
    frames, event_images = (
        np.zeros((len(images), 0, 0, 3), np.uint8) for images in (window.frames, window.event_images)
    )
    return replace(window, event_images=event_images, frames=frames)


def check_length(question: str) -> None:
    """Raise InputError for megabytes, before they wait or are made tokens of."""
    if len(question) > MAX_QUESTION:
        raise InputError(
            f"the question has {len(question)} characters, but at most {MAX_QUESTION} are taken: shorten it"
        )


def check_question(target: VideoTarget, question: str) -> None:
    """Raise InputError where it is empty or leaves no room beside the frames for an answer."""
    if not question.strip():
        raise InputError("the question is empty: ask in words")
    check_length(question)
    spec = target.spec
    used = sum(map(len, target.prompt_ids(question)))
    room = min(spec.most_tokens - spec.frame_tokens - _ANSWER_ROOM, MAX_QUESTION_TOKENS)
    if used > room:
        raise InputError(
            f"the question makes a prompt of {used} tokens, but the target takes {room} beside the "
            f"frames and an answer: shorten it"
        )
