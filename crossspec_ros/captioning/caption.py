"""Caption of a window, and how it came about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crossspec_ros.errors import InputError

if TYPE_CHECKING:
    from crossspec_ros.captioning.standing import Choices
    from crossspec_ros.engine.json_grammar import GrammarState
    from crossspec_ros.engine.sampling import Sampling
    from crossspec_ros.models.base import VideoTarget

MOST_QUESTION = 10_000
"""Characters of a question."""
MOST_TEXT = 4096
"""Tokens of a question: emojis make four of a character, and what each token of a pass sees takes memory and
time by the square of their number. The longest question in words has 2,500."""
_ANSWER_ROOM = 64
"""Tokens of an answer."""
RESTS_ON = {
    "target": "frames",
    "event_draft": "events",
    "none": "nothing",
    "unchanged": "nothing",
}
"""Input that a caption rests on, by its source."""


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
    was asked for, and the text is whole JSON of it.
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
        """Readiness for questions: the target has read its window."""
        return self.source == "target"

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens per target pass, the target's own one included."""
        return len(self.token_ids) / self.target_passes if self.target_passes else 0.0


def check_length(question: str) -> None:
    """Raise InputError for megabytes, before they wait or are made tokens of."""
    if len(question) > MOST_QUESTION:
        raise InputError(
            f"the question has {len(question)} characters, but at most {MOST_QUESTION} are taken: shorten it"
        )


def check_question(target: VideoTarget, question: str) -> None:
    """Raise InputError where it is empty or leaves no room beside the frames for an answer."""
    if not question.strip():
        raise InputError("the question is empty: ask in words")
    check_length(question)
    spec = target.spec
    used = sum(map(len, target.prompt_ids(question)))
    room = min(spec.most_tokens - spec.frame_tokens - _ANSWER_ROOM, MOST_TEXT)
    if used > room:
        raise InputError(
            f"the question makes a prompt of {used} tokens, but the target takes {room} beside the "
            f"frames and an answer: shorten it"
        )
