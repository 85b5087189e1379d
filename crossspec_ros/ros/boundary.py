"""The boundary between messages and a node: whatever a callback raises, the node goes on."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from typing import Any

from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.node import Node
from rclpy.serialization import deserialize_message

from crossspec_ros.errors import InputError, as_exception
from crossspec_ros.plain_text import plain_text
from crossspec_ros.ros.run import NodeError
from crossspec_ros.telemetry.pulse import Pulse

LOG_S = 5.0
_HEADER = 4
"""Bytes in front of every message, which say how it is encoded."""
ENDS = (NodeError, KeyboardInterrupt, SystemExit)
"""Of all that a callback may raise, what ends the node."""


class Boundary:
    """Guards the callbacks of a node; what they raise is logged, of each at most every five seconds, counted
    and kept for the diagnostics.

    Only `ENDS` pass, and anything once ROS has been told to end. Callbacks are functions, not coroutines.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.failed_callbacks = 0
        self.last_failure = ""
        self.pulse = Pulse("callbacks")
        """Of the thread that spins the node: busy while a callback is."""
        self._logged_s: dict[str, float] = {}

    def guarded(self, callback: Callable[..., Any], what: str, is_watched: bool = True) -> Callable[..., Any]:
        """The callback inside the boundary; one that may take for ever is not watched.

        Where it fails it returns its last argument: of a service the response, as far as it was filled.
        """

        @wraps(callback)
        def guarded(*args: Any) -> Any:
            busy: AbstractContextManager[None] = self.pulse.busy() if is_watched else nullcontext()
            try:
                with busy:
                    return callback(*args)
            except ENDS:
                raise
            except BaseException as error:
                # Told to end, ROS fails in whatever is under way.
                if not self._node.context.ok():
                    raise
                self.note(what, error)
                return args[-1] if args else None

        guarded.is_guarded = True  # type: ignore[attr-defined]
        return guarded

    def note(self, what: str, error: BaseException) -> None:
        """Log and count what was raised while this was handled."""
        self.failed_callbacks += 1
        self.last_failure = f"{what}: {_brief(error)}"
        now_s = time.monotonic()
        # rclpy's own throttle goes by the line of code, and would let one callback hide another.
        if now_s - self._logged_s.get(what, -LOG_S) < LOG_S:
            return
        self._logged_s[what] = now_s
        self._node.get_logger().error(f"{what} could not be handled: {described(error)}")


def described(error: BaseException) -> str:
    """For a log: the sentence about a bad input, of all else where it was raised."""
    known = isinstance(error, InputError)
    return plain_text(str(error) if known else "".join(traceback.format_exception(error)), keep="\n")


def _brief(error: BaseException) -> str:
    try:
        return plain_text(str(InputError(as_exception(error))))
    except Exception:  # it cannot even be told
        return type(error).__name__


def is_guarded(callback: Any) -> bool:
    """Whether a callback is inside a boundary."""
    return getattr(callback, "is_guarded", False)


class GuardedNode(Node):
    """A node whose subscriptions, timers and services are inside a `Boundary`, also those that ROS makes."""

    def __init__(self, name: str, **options: Any) -> None:
        self.boundary = Boundary(self)
        self.at_end: list[Callable[[], None]] = []
        """Called before the node is destroyed."""
        super().__init__(name, **options)
        # Those of the lifecycle, which may load models, and of type descriptions are made past this class.
        for service in self.services:
            if not is_guarded(service.callback):
                what = f"a request to {service.srv_name}"
                service.callback = self.boundary.guarded(service.callback, what, is_watched=False)

    def create_subscription(
        self, msg_type: Any, topic: str, callback: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        """As rclpy has it, but that a callback cannot ask for the MessageInfo."""
        # Taken as bytes by ROS: Fast DDS reads beyond the end of some damaged messages and ends the process.
        read = bytes if options.pop("raw", False) else partial(read_message, msg_type, topic)
        take = self.boundary.guarded(lambda data: callback(read(data)), f"a message on {topic}")
        return super().create_subscription(msg_type, topic, take, *args, raw=True, **options)

    def create_timer(self, timer_period_sec: float, callback: Any, *args: Any, **options: Any) -> Any:
        """As rclpy has it."""
        callback = self.boundary.guarded(callback, "a timer")
        return super().create_timer(timer_period_sec, callback, *args, **options)

    def create_service(self, srv_type: Any, srv_name: str, callback: Any, *args: Any, **options: Any) -> Any:
        """As rclpy has it."""
        callback = self.boundary.guarded(callback, f"a request to {srv_name}")
        return super().create_service(srv_type, srv_name, callback, *args, **options)

    def destroy_node(self) -> None:
        """As rclpy has it."""
        while self.at_end:
            self.at_end.pop()()
        super().destroy_node()


def read_message(kind: Any, topic: str, data: bytes) -> Any:
    """The message of class `kind` that came on a topic; raises InputError where the bytes are none."""
    # How many bytes of padding follow is said in the header, and Fast CDR believes it.
    if len(data) >= _HEADER and len(data) >= _HEADER + (data[_HEADER - 1] & 3):
        try:
            return deserialize_message(data, kind)
        except RuntimeError:
            pass
    raise InputError(
        f"a message on {topic} has {len(data)} bytes, which are no {kind.__name__}: check who publishes it"
    )


Transition = Callable[[Any, Any], TransitionCallbackReturn]


def guarded_transition(transition: Transition) -> Transition:
    """A callback of a managed GuardedNode: where it raises, that is told, and ROS goes on with `on_error`.

    rclpy itself would say nothing of an Exception, and end with anything else. All are watched but
    `on_configure`, which may load models for minutes.
    """
    is_watched = transition.__name__ != "on_configure"

    @wraps(transition)
    def guarded(node: Any, state: Any) -> TransitionCallbackReturn:
        busy: AbstractContextManager[None] = node.boundary.pulse.busy() if is_watched else nullcontext()
        try:
            with busy:
                return transition(node, state)
        except ENDS:
            raise
        except BaseException as error:
            node.boundary.note(f"the transition {transition.__name__}", error)
            return TransitionCallbackReturn.ERROR

    return guarded
