"""Scheduler: what the engine does next, as a pure function of the requests.

Answers go first, then frames that are prefilled ahead, then questions that can wait, then idle work. A
rehearsal is not ended by each frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from crossspec_ros.engine.request import Request


@dataclass(frozen=True)
class Batch:
    """Requests whose first task is next, those whose frames are prefilled ahead, and the one that uses idle
    time."""

    asked: list[Request] = field(default_factory=list)
    ahead: list[Request] = field(default_factory=list)
    idle: Request | None = None

    def __bool__(self) -> bool:
        return bool(self.asked or self.ahead or self.idle)


def schedule(requests: Sequence[Request]) -> Batch:
    """Return the next batch; `requests` come in the order in which they were opened.

    While answers are in work, frames of other robots are prefilled only if several wait, and only once each
    answer has made its first pass. Frames of the same robot cost less together afterwards, and nothing if
    their window is skipped. While the engine is idle, a rehearsal goes on until a frame of its window is a
    reason to end it.
    """
    robots: dict[str, list[Request]] = {}
    for request in requests:
        robots.setdefault(request.robot, []).append(request)
    urgent = [_first(mine, can_wait=False) for mine in robots.values()]
    asked = [request for request in urgent if request is not None]
    # The newest window is the one that will be captioned next.
    idle = next((request for request in reversed(requests) if request.has_more), None)
    answering = {request.robot for request in asked}
    has_begun = all(request.tasks[0].has_begun for request in asked)
    ahead: list[Request] = []
    # Only the rehearsal that goes on now is a reason to wait.
    held = idle if idle is not None and not asked and idle.holds_frames else None
    if has_begun:
        for robot, mine in robots.items():
            waiting = next((one for one in mine if one.frames and one is not held), None)
            if waiting is None or robot in answering:
                continue
            is_piled_up = len(waiting.frames) > 1
            if is_piled_up or not (asked or _closes_soon(mine[: mine.index(waiting)])):
                ahead.append(waiting)
    if asked or ahead:
        return Batch(asked, ahead)
    for mine in robots.values():
        if (patient := _first(mine, can_wait=True)) is not None:
            return Batch([patient])
    return Batch(idle=idle)


def _first(requests: Sequence[Request], can_wait: bool) -> Request | None:
    """Return the request of a robot whose task of this urgency is next: the one that has begun, or else that
    of the newest window, which a question about an older one must not delay."""
    due = [one for one in reversed(requests) if one.tasks and one.tasks[0].can_wait == can_wait]
    return next((one for one in due if one.tasks[0].has_begun), due[0] if due else None)


def _closes_soon(earlier: Sequence[Request]) -> bool:
    """Test whether the window before is about to close: its caption would begin later.

    A window that is still open when a second frame of the next one has come does not close soon.
    """
    return bool(earlier) and earlier[-1].sequence is not None and not earlier[-1].was_asked
