"""Standing questions whose turn is still to come: those about the window captioned last, pass by pass."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from crossspec_ros.captioning.outcome import Outcome, without_images
from crossspec_ros.captioning.standing import StandingQuestions, paired
from crossspec_ros.errors import failures_logged
from crossspec_ros.windows.window import Window

if TYPE_CHECKING:
    from crossspec_ros.captioning.standing import Answered, Choices, Standing, Told

_LOG = logging.getLogger(__name__)

OnStanding = Callable[["Standing", "Answered | Exception", Window], None]
"""Takes the answer to a standing question about a window, or why there is none."""


class StandingTurns:
    """For one thread; `on_standing` gets each answer."""

    def __init__(self, on_standing: OnStanding) -> None:
        self._on_standing = on_standing
        self._left: deque[tuple[Choices, Window]] = deque()
        self.unanswered = 0
        """Standing questions that were dropped."""

    def __bool__(self) -> bool:
        return bool(self._left)

    def begin(self, outcome: Outcome, standing: StandingQuestions) -> None:
        """Ask about this window next. Questions about earlier ones come too late, unless their caption holds
        still."""
        if outcome.holds is not None:
            return
        self.unanswered += sum(len(choices.standing) for choices, _ in self._left)
        self._left.clear()
        if standing.later and outcome.caption is not None and outcome.caption.askable:
            window = without_images(outcome.window)
            self._left.extend((choices, window) for choices in standing.later)

    def take(self) -> tuple[Choices, Window]:
        """The questions of the next pass, and their window."""
        return self._left.popleft()

    def tell(self, window: Window, choices: Choices, answers: Told) -> None:
        """Hand out the answers of a pass."""
        for standing, answer in paired(choices, answers):
            self.unanswered += isinstance(answer, Exception)
            with failures_logged(_LOG, logging.ERROR, "an answer could not be published"):
                self._on_standing(standing, answer, window)
