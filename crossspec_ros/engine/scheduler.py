"""Scheduler: the engine's next batch, as a pure function of the requests.

Answers go first, then the prefill of frames, then tasks that can wait, then rehearsals and other idle work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from crossspec_ros.engine.request import Request


@dataclass(frozen=True)
class Batch:
    """Requests whose first task runs next, requests whose frames are prefilled, and one for idle work."""

    answering: list[Request] = field(default_factory=list)
    ahead: list[Request] = field(default_factory=list)
    idle: Request | None = None

    def __bool__(self) -> bool:
        return bool(self.answering or self.ahead or self.idle)


def schedule(requests: Sequence[Request]) -> Batch:
    """Return the next batch for `requests` in the order of their opening.

    While answers are running, frames of another robot are prefilled only if several are queued. Before that,
    every answer finishes its first pass. The answering robot's own frames wait: together they cost less, and
    they cost nothing if their window is skipped. While the engine is idle, a rehearsal continues until a
    frame of its window ends it.
    """
    robots: dict[str, list[Request]] = {}
    for request in requests:
        robots.setdefault(request.robot, []).append(request)
    urgent = [_first(mine, can_wait=False) for mine in robots.values()]
    answering = [request for request in urgent if request is not None]
    # The newest window is captioned next.
    idle = next((request for request in reversed(requests) if request.has_more), None)
    busy = {request.robot for request in answering}
    has_begun = all(request.tasks[0].has_begun for request in answering)
    ahead: list[Request] = []
    # Frames wait only for a rehearsal that runs in this turn.
    held = idle if idle is not None and not answering and idle.holds_frames else None
    if has_begun:
        for robot, mine in robots.items():
            waiting = next((one for one in mine if one.frames and one is not held), None)
            if waiting is None or robot in busy:
                continue
            is_piled_up = len(waiting.frames) > 1
            if is_piled_up or not (answering or _closes_soon(mine[: mine.index(waiting)])):
                ahead.append(waiting)
    if answering or ahead:
        return Batch(answering, ahead)
    for mine in robots.values():
        if (patient := _first(mine, can_wait=True)) is not None:
            return Batch([patient])
    return Batch(idle=idle)


def _first(requests: Sequence[Request], can_wait: bool) -> Request | None:
    """Return a robot's request whose next task has this urgency.

    A task that has begun goes first. Otherwise the newest window goes first, because a question about an
    older window must not delay its caption.
    """
    due = [one for one in reversed(requests) if one.tasks and one.tasks[0].can_wait == can_wait]
    return next((one for one in due if one.tasks[0].has_begun), due[0] if due else None)


def _closes_soon(earlier: Sequence[Request]) -> bool:
    """Return whether the preceding window will close soon, so that a prefill would delay its caption.

    The caller does not wait if the next window has a second frame already.
    """
    return bool(earlier) and earlier[-1].sequence is not None and not earlier[-1].is_requested
