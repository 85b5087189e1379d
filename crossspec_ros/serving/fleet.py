"""The robots that share a target: admission, phases of their windows, and caption memories."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from crossspec_ros.drafting.memory_file import MemoryFile
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import make_proposers
from crossspec_ros.drafting.proposers.memory import CaptionMemory
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.pass_cost import PassCost
from crossspec_ros.engine.runner import Runner
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.models.text_tokenizer import tokenizer_digest
from crossspec_ros.settings import ServeSettings
from crossspec_ros.telemetry.pulse import PATIENCE_S, Pulse, ThreadWatch

_LOG = logging.getLogger(__name__)

MAX_WINDOWS = 3
"""Windows of a robot that may be held at a time: two that are open, and the one captioned last."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
COUNTS = {
    "admitted": "streams of robots that began",
    "refused": "refused robots",
    "let_go": "disconnected silent robots",
    "replaced": "streams whose robot connected again",
    "refused_messages": "refused messages",
    "answers": "completed answers",
    "failed_answers": "failed answers",
}
MAX_MESSAGES = 400
"""Messages of a robot in a second: eight times what eight camera frames and their questions need."""
MAX_BYTES = 128 << 20
"""Bytes of a robot in a second: eight times what eight frames of 1440x1080 need."""
_PHASES = 64
"""Places in a period where windows may end."""
_SHARED_CAPTIONS = 2048
"""Captions to a question that robots learn from one another."""


@dataclass(eq=False)
class Robot:
    """A robot with an open stream. The engine's thread uses its `policy`, with proposers of its own.

    `on_gone` is called with the reason if the fleet disconnects the robot.
    """

    name: str
    policy: Policy
    period_ns: int
    phase_ns: int
    keep: MemoryFile | None
    on_gone: Callable[[str], None]
    heard_s: float = field(default_factory=time.monotonic)
    _closing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def pulses(self) -> tuple[Pulse, ...]:
        """Pulse of the thread that saves the caption memory."""
        keep = self.keep
        return (keep.pulse,) if keep is not None else ()

    def close(self) -> None:
        """Save the caption memory, or wait until another thread has saved it."""
        with self._closing:
            keep, self.keep = self.keep, None
            if keep is not None:
                keep.close()


class Rate:
    """Messages and bytes of each robot in the current second. One thread uses it."""

    def __init__(self) -> None:
        self._second = 0
        self._messages, self._bytes = Counter[str](), Counter[str]()

    def check(self, robot: str, size: int, now_s: float | None = None) -> None:
        """Count a message of `size` bytes. Raises InputError for too many messages or bytes."""
        second = int(time.monotonic() if now_s is None else now_s)
        if second != self._second:
            self._second, self._messages, self._bytes = second, Counter(), Counter()
        self._messages[robot] += 1
        self._bytes[robot] += size
        if self._messages[robot] > MAX_MESSAGES or self._bytes[robot] > MAX_BYTES:
            raise InputError(
                f"more than {MAX_MESSAGES} messages or {MAX_BYTES >> 20} MB came in a second: send frames at "
                f"the camera's rate"
            )


class Fleet:
    """One engine and the robots that share it; safe for any thread."""

    def __init__(self, target: VideoTarget, settings: ServeSettings, runner: Runner | None = None) -> None:
        """Run the target's own body if there is no `runner`."""
        self.target, self.settings = target, settings
        self.engine = LocalEngine(target, None, settings.robots, runner)
        self._shared = CaptionMemory(_SHARED_CAPTIONS, "fleet_memory") if settings.fleet_memory else None
        self._robots: dict[str, Robot] = {}
        self._lock = threading.Lock()
        self.counts = dict.fromkeys(COUNTS, 0)
        self.on_answer: Callable[[float], None] = lambda seconds: None
        """Called with the seconds of each answer, from its question to its last word."""
        self.cost: PassCost | None = None
        self.threads = ThreadWatch(self._pulses)
        """Needs a look each second. A dead or stuck thread ends the server."""
        self.pulses: set[Pulse] = set()
        """Pulses of the threads of open streams."""
        self.rate = Rate()

    def warm_up(self) -> None:
        """Allocate all buffers and measure the cost of passes, for one sequence and for several."""
        began_s = time.monotonic()
        self.engine.warm_up(MAX_WINDOWS)
        self.cost = self.engine.measure(self.settings.shared_passes)
        # That included many passes: none takes as long.
        self.threads.patience_s = PATIENCE_S + round(3 * (time.monotonic() - began_s))

    @property
    def robots(self) -> int:
        """Number of robots that have a stream."""
        return len(self._robots)

    def admit(self, name: str, period_ns: int, phase_ns: int, on_gone: Callable[[str], None]) -> Robot:
        """Return the robot of this name, whose stream has begun. This ends an earlier stream of it.

        Raises:
            InputError: there is no room, or the name or the period is invalid.
        """
        if not _NAME.fullmatch(name):
            raise InputError(
                f"the robot's name is '{name[:80]}': give it letters, digits, '.', '_' or '-', at most 64"
            )
        if not 10_000_000 <= period_ns <= 3_600_000_000_000:
            raise InputError(f"windows of {period_ns} ns are none: give a period of 10 ms to an hour")
        reason = "another stream of this name has begun: give each robot a name of its own (link.robot)"
        self.let_go(name, reason, "replaced")
        with self._lock:
            if name in self._robots:
                raise InputError(f"another stream of the robot '{name}' begins just now: connect again")
            if len(self._robots) >= self.settings.robots:
                self.counts["refused"] += 1
                raise InputError(
                    f"the server has room for {self.settings.robots} robots and has as many: wait until one "
                    f"has gone, or start it with more --robots"
                )
            policy, keep = self._policy(name)
            robot = Robot(name, policy, period_ns, phase_ns % period_ns, keep, on_gone)
            self._robots[name] = robot
            self.counts["admitted"] += 1
        return robot

    def leave(self, robot: Robot) -> None:
        """Remove a robot whose stream has ended."""
        robot.close()
        with self._lock:
            # Not before its memory is saved; and the name may be that of its next stream by now.
            if self._robots.get(robot.name) is robot:
                del self._robots[robot.name]

    def let_go(self, name: str, reason: str, count: str = "let_go") -> None:
        """End the stream of this robot, if there is one, with a reason."""
        with self._lock:
            robot = self._robots.get(name)
        if robot is not None:
            self.counts[count] += 1
            robot.on_gone(reason)
            self.leave(robot)

    def let_idle_go(self) -> None:
        """End the streams of robots that have been silent for `idle_s`."""
        late_s = time.monotonic() - self.settings.idle_s
        with self._lock:
            idle = [robot.name for robot in self._robots.values() if robot.heard_s < late_s]
        for name in idle:
            self.let_go(name, f"nothing was heard of it for {self.settings.idle_s:g} s")

    def emptiest_phase(self, period_ns: int, beside: Robot | None = None) -> int:
        """Return the phase of the period at which windows are farthest from those of other robots."""
        with self._lock:
            taken = [r.phase_ns % period_ns for r in self._robots.values() if r is not beside]
        places = [i * period_ns // _PHASES for i in range(_PHASES)]

        def distance(place: int) -> int:
            apart = [abs(place - other) for other in taken]
            return min((min(one, period_ns - one) for one in apart), default=0)

        return max(places, key=distance)

    def close(self) -> None:
        """Disconnect all robots and close the engine."""
        for name in list(self._robots):
            self.let_go(name, "the server ends")
        self.engine.close()

    def _pulses(self) -> list[Pulse]:
        pulses = [*self.engine.pulses, *list(self.pulses)]
        return [*pulses, *(pulse for robot in list(self._robots.values()) for pulse in robot.pulses)]

    def _policy(self, name: str) -> tuple[Policy, MemoryFile | None]:
        """Return a robot's policy, and the file of its captions, if they are kept."""
        proposers = make_proposers(self.settings.proposers)
        memory = next((one for one in proposers if isinstance(one, CaptionMemory)), None)
        if self._shared is not None:
            # It drafts from the captions of others like from one's own: the target decides by its frames.
            proposers = *proposers, self._shared
        keep = None
        if memory is not None and self.settings.memories:
            keep = self._memory_file(name, memory)
        return Policy(proposers, self.cost), keep

    def _memory_file(self, name: str, memory: CaptionMemory) -> MemoryFile | None:
        ids = self.target.vocabulary
        file = Path(self.settings.memories) / f"{name}.json"
        try:
            return MemoryFile(memory, file, tokenizer_digest(self.target.tokenizer), ids)
        except InputError as error:
            # A robot without a memory is slower, and no less right.
            _LOG.warning("the captions of robot %s are not kept: %s", name, error)
            return None
