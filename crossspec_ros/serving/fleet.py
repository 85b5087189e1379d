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
"""Maximum windows of a robot: two open ones, and the last captioned one."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
COUNTS = {
    "admitted": "streams of admitted robots",
    "refused": "refused robots",
    "let_go": "disconnected silent robots",
    "replaced": "streams whose robot connected again",
    "refused_messages": "refused messages",
    "answers": "completed answers",
    "failed_answers": "failed answers",
}
MAX_MESSAGES = 400
"""Maximum messages of a robot per second, eight times the messages of eight frames and their questions."""
MAX_BYTES = 128 << 20
"""Maximum bytes of a robot per second, eight times the bytes of eight frames of 1440x1080."""
_PHASES = 64
"""Number of phases in a period at which windows may end."""
_SHARED_CAPTIONS = 2048
"""Maximum captions per question in the shared memory of all robots."""


@dataclass(eq=False)
class Robot:
    """A robot with an open stream. Its `policy` has its own proposers, and runs in the engine's thread.

    `on_gone` is called with the reason when the fleet disconnects the robot.
    """

    name: str
    policy: Policy
    period_ns: int
    phase_ns: int
    keep: MemoryFile | None
    on_gone: Callable[[str], None]
    last_message_s: float = field(default_factory=time.monotonic)
    _closing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def pulses(self) -> tuple[Pulse, ...]:
        """Pulse of the thread that saves the caption memory."""
        keep = self.keep
        return (keep.pulse,) if keep is not None else ()

    def close(self) -> None:
        """Save the caption memory, or wait while another thread saves it."""
        with self._closing:
            keep, self.keep = self.keep, None
            if keep is not None:
                keep.close()


class Rate:
    """Messages and bytes of each robot in the current second. Not thread-safe."""

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
                f"more than {MAX_MESSAGES} messages or {MAX_BYTES >> 20} MB arrived in a second: send frames "
                f"at the camera's rate"
            )


class Fleet:
    """An engine and the robots that share it. Thread-safe."""

    def __init__(self, target: VideoTarget, settings: ServeSettings, runner: Runner | None = None) -> None:
        """Create the engine. Without a `runner`, it runs the target with torch."""
        self.target, self.settings = target, settings
        self.engine = LocalEngine(target, None, settings.robots, runner)
        self._shared = CaptionMemory(_SHARED_CAPTIONS, "fleet_memory") if settings.fleet_memory else None
        self._robots: dict[str, Robot] = {}
        self._lock = threading.Lock()
        self.counts = dict.fromkeys(COUNTS, 0)
        self.on_answer: Callable[[float], None] = lambda seconds: None
        """Called with the seconds from each question to the last word of its answer."""
        self.cost: PassCost | None = None
        self.threads = ThreadWatch(self._pulses)
        """Watchdog. Call `look` once a second."""
        self.pulses: set[Pulse] = set()
        """Pulses of the threads of open streams."""
        self.rate = Rate()

    def warm_up(self) -> None:
        """Allocate all buffers and measure the cost of passes, for one sequence and for several."""
        began_s = time.monotonic()
        self.engine.warm_up(MAX_WINDOWS)
        self.cost = self.engine.measure(self.settings.shared_passes)
        # This includes many passes, so a single pass is never as slow.
        self.threads.patience_s = PATIENCE_S + round(3 * (time.monotonic() - began_s))

    @property
    def robots(self) -> int:
        """Number of robots with a stream."""
        return len(self._robots)

    def admit(self, name: str, period_ns: int, phase_ns: int, on_gone: Callable[[str], None]) -> Robot:
        """Return the robot of a new stream, and end its earlier stream.

        Raises:
            InputError: the server is full, or the name or the period is invalid.
        """
        if not _NAME.fullmatch(name):
            raise InputError(
                f"the robot's name '{name[:80]}' is invalid: use at most 64 letters, digits, '.', '_' or '-'"
            )
        if not 10_000_000 <= period_ns <= 3_600_000_000_000:
            raise InputError(f"the period of {period_ns} ns is invalid: use 10 ms to an hour")
        reason = "another stream with this name has begun: give each robot its own name (link.robot)"
        self.disconnect(name, reason, "replaced")
        with self._lock:
            if name in self._robots:
                raise InputError(f"another stream of the robot '{name}' is beginning: connect again")
            if len(self._robots) >= self.settings.robots:
                self.counts["refused"] += 1
                raise InputError(
                    f"the server already has {self.settings.robots} robots: wait until one leaves, or start "
                    f"the server with more --robots"
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
            # After saving its memory. By now, the name may belong to its next stream.
            if self._robots.get(robot.name) is robot:
                del self._robots[robot.name]

    def disconnect(self, name: str, reason: str, count: str = "let_go") -> None:
        """End the stream of this robot, if it has one, with a reason."""
        with self._lock:
            robot = self._robots.get(name)
        if robot is not None:
            self.counts[count] += 1
            robot.on_gone(reason)
            self.leave(robot)

    def disconnect_idle(self) -> None:
        """Disconnect robots that have been silent for `idle_s`."""
        late_s = time.monotonic() - self.settings.idle_s
        with self._lock:
            idle = [robot.name for robot in self._robots.values() if robot.last_message_s < late_s]
        for name in idle:
            self.disconnect(name, f"the robot sent no message for {self.settings.idle_s:g} s")

    def emptiest_phase(self, period_ns: int, robot: Robot | None = None) -> int:
        """Return the phase of the period with the largest distance to the windows of other robots."""
        with self._lock:
            used_ns = [one.phase_ns % period_ns for one in self._robots.values() if one is not robot]
        phases_ns = [i * period_ns // _PHASES for i in range(_PHASES)]

        def distance(phase_ns: int) -> int:
            apart_ns = [abs(phase_ns - other) for other in used_ns]
            return min((min(one, period_ns - one) for one in apart_ns), default=0)

        return max(phases_ns, key=distance)

    def close(self) -> None:
        """Disconnect all robots and close the engine."""
        for name in list(self._robots):
            self.disconnect(name, "the server ends")
        self.engine.close()

    def _pulses(self) -> list[Pulse]:
        pulses = [*self.engine.pulses, *list(self.pulses)]
        return [*pulses, *(pulse for robot in list(self._robots.values()) for pulse in robot.pulses)]

    def _policy(self, name: str) -> tuple[Policy, MemoryFile | None]:
        """Return a robot's policy, and the file of its caption memory, if it has one."""
        proposers = make_proposers(self.settings.proposers)
        memory = next((one for one in proposers if isinstance(one, CaptionMemory)), None)
        if self._shared is not None:
            # Captions of other robots are safe drafts, because the target verifies them.
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
            # Without a memory, a robot is slower, but its captions are the same.
            _LOG.warning("the caption memory of robot %s is not stored: %s", name, error)
            return None
