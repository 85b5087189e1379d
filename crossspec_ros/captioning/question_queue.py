"""Questions that wait for the thread that captions: their form, and how many of which length may wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossspec_ros.captioning.caption import MOST_QUESTION
from crossspec_ros.engine.json_grammar import checked_schema
from crossspec_ros.errors import InputError

if TYPE_CHECKING:
    from crossspec_ros.captioning.answer import Cancel
    from crossspec_ros.captioning.caption import Caption

MOST_WAITING = 16
"""Questions that may wait, one in work among them: at more, whoever asks is faster than the target."""

OnAnswer = Callable[["Caption | Exception", "int | None"], None]
"""Takes an answer, or why there is none, and the index of the window that was asked about."""


@dataclass(frozen=True)
class Question:
    """A question that waits. Its answer is JSON of the `schema`, if there is one; `on_words` gets the
    verified text so far after each pass; once `cancel` is set, the answer is cut short."""

    text: str
    on_answer: OnAnswer
    schema: str
    on_words: Callable[[str], None] | None
    cancel: Cancel


def check_asked(question: str, schema: str, waiting: int) -> None:
    """Raise InputError for a question that is far too long, a schema that is none, or where so many wait
    already."""
    # Before megabytes wait, or are made tokens of.
    if len(question) > MOST_QUESTION:
        raise InputError(
            f"the question has {len(question)} characters, but at most {MOST_QUESTION} are taken: shorten it"
        )
    if schema:
        checked_schema(schema)
    if waiting >= MOST_WAITING:
        raise InputError(f"{MOST_WAITING} questions wait already: ask again when some are answered")


def deactivated() -> InputError:
    """Reason why a question has no answer whose captioner was deactivated."""
    return InputError("the captioner was deactivated: ask again once it is active")


def cancelled() -> InputError:
    """Reason why a question has no answer whose asker has gone before its turn."""
    return InputError("the question was cancelled: ask it again")
