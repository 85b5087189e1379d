"""Rehearsals on the server: while the engine is idle, the target writes the captions of open windows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future

from crossspec_ros.captioning.answer import Answer
from crossspec_ros.drafting.proposer import REHEARSAL
from crossspec_ros.engine.local import LocalSession
from crossspec_ros.errors import described, forget_frames
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.serving.fleet import SESSIONS, Robot
from crossspec_ros.serving.robot_asks import asked_context
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.wire import captions_pb2 as wire

_LOG = logging.getLogger(__name__)

_TURN_S = 0.05
"""Time after which a rehearsal that holds the policy is stopped again."""


class IdleRehearsals:
    """Rehearsals of one robot's windows, which use its policy as long as no answer needs it.

    They answer the question `asked` about the robot's last window. `written` has the tokens of those of the
    newest windows. The engine's thread calls `begin`, the robot's thread all else. An answer waits for the
    pass in flight at most.
    """

    def __init__(self, target: VideoTarget, robot: Robot) -> None:
        self._target, self._robot = target, robot
        self.asked: wire.Ask | None = None
        self.written: dict[int, tuple[int, ...]] = {}
        self._session: LocalSession | None = None
        self._is_stopped = False

    def begin(self, index: int, session: LocalSession, more: Callable[[], bool]) -> None:
        """Write the caption of a window's frames so far, as long as `more()` is true.

        Do nothing if an answer has the policy, or unless half of the frames are encoded and some are missing.
        """
        robot, asked, spec = self._robot, self.asked, self._target.spec
        self.stop()
        is_due = (
            spec.is_half(len(session.frames)) and spec.frames_per_unit * len(session.frames) < spec.frames
        )
        if asked is None or not is_due or not robot.policy.has(REHEARSAL) or self._is_stopped or not more():
            return
        if not robot.turn.acquire(blocking=False):
            return
        try:
            robot.start_policy(index)
            context = asked_context(asked, self._target, self.written.get(index, ()))
            ours = session, robot.policy, None, context, Trace(), asked.max_new_tokens, None
            answer = Answer(*ours, is_rehearsal=True)
            self._session = session
            over = answer.go_on(lambda: more() and not self._is_stopped)
        except BaseException as failure:  # a panic, too: the engine's thread is that of all robots
            robot.turn.release()
            _LOG.error("robot %s: a rehearsal could not begin: %s", robot.name, described(failure))
            return
        over.add_done_callback(lambda over: self._end(index, answer, over))

    def stop(self) -> None:
        """Cancel a rehearsal that waits for idle time; one whose pass runs goes on."""
        if self._session is not None:
            self._session.stop_rehearsal()

    def take_turn(self, wait: Callable[[], bool]) -> bool:
        """Take the policy for an answer; return False once `wait()` is false."""
        self._is_stopped = True
        self.stop()
        while not (has_turn := self._robot.turn.acquire(timeout=_TURN_S)) and wait():
            self.stop()
        self._is_stopped = False
        return has_turn

    def _end(self, index: int, answer: Answer, over: Future[None]) -> None:
        self.written[index] = answer.rehearsed(self.written.get(index, ()))
        while len(self.written) > SESSIONS:
            del self.written[min(self.written)]
        if not over.cancelled() and (error := over.exception()) is not None:
            forget_frames(error)
        self._robot.turn.release()
