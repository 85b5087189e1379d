"""The boundary between messages and a node: whatever a callback raises, the node goes on."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from functools import partial, wraps
from typing import Any

from rclpy.action import ActionServer
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.node import Node
from rclpy.qos import QoSPolicyKind
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.serialization import deserialize_message

from crossspec_ros import errors
from crossspec_ros.errors import InputError, as_exception, described, one_line
from crossspec_ros.image_bounds import MOST_PIXELS
from crossspec_ros.plain_text import plain_text
from crossspec_ros.ros.run import NodeError
from crossspec_ros.telemetry.pulse import Pulse

LOG_S = 5.0
_HEADER = 4
"""Bytes in front of every message, which say how it is encoded."""
MOST_NAME = 256
"""Characters of a state, a type or its hash, by which ROS knows them; none of its own is as long."""
MOST_BYTES = 1 << 20
"""Bytes of a message beside its `uint8[]`: as Python objects it takes up to a hundred times as much. A whole
robot's diagnostics have some 100 kB."""
MOST_DATA = 3 * MOST_PIXELS + MOST_BYTES
"""Bytes of a message with a `uint8[]`: the largest image that is taken, in colour. Beside it as it
comes, DDS and ROS hold three copies."""
_DATA = "sequence<uint8>"
_PLAIN_CDR = (b"\0\0", b"\0\1")
"""First bytes of a message in CDR, big and little endian."""
_SIZES = {"uint8": 1, "boolean": 1, "int32": 4, "uint32": 4, "uint64": 8}
"""Bytes of what images and events have beside texts."""
MOST_ITEMS = 1000
"""Items of each list in a request."""
ENDS = (NodeError, *errors.ENDS)
"""Exceptions of a callback that end the node."""


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
        """Pulse of the thread that spins the node: busy while a callback is."""
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


def _brief(error: BaseException) -> str:
    try:
        return plain_text(str(InputError(as_exception(error))))
    except Exception:  # it cannot even be told
        return type(error).__name__


def is_guarded(callback: Any) -> bool:
    """Whether a callback is inside a boundary."""
    return getattr(callback, "is_guarded", False)


def _with_plain_texts(serve: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The callback of a service of ROS itself, which logs texts of requests as they are."""

    @wraps(serve)
    def with_plain_texts(request: Any, response: Any) -> Any:
        _make_plain(request)
        return serve(request, response)

    return with_plain_texts


def _make_plain(message: Any) -> None:
    for name in message.get_fields_and_field_types():
        value = getattr(message, name)
        if isinstance(value, str):
            setattr(message, name, plain_text(value[:MOST_NAME]))
        elif hasattr(value, "get_fields_and_field_types"):
            _make_plain(value)


def _with_short_lists(serve: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @wraps(serve)
    def with_short_lists(request: Any, response: Any) -> Any:
        for name in request.get_fields_and_field_types():
            value = getattr(request, name)
            if isinstance(value, list) and len(value) > MOST_ITEMS:
                raise InputError(f"it has {len(value)} {name}, more than {MOST_ITEMS}: send several")
        return serve(request, response)

    return with_short_lists


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
                callback = _with_plain_texts(service.callback)
                service.callback = self.boundary.guarded(callback, what, is_watched=False)

    def _with_overrides(self, make: Callable[..., Any], entity: str, topic: str, qos: Any) -> Any:
        """Endpoint by `make`, of a profile with what the parameters `qos_overrides.TOPIC.ENTITY.POLICY` say.

        Only policies that are overridden become parameters, or each topic would have three of them. rclpy
        writes into the profile that it is given, which others share.
        """
        prefix = f"qos_overrides.{self.resolve_topic_name(topic)}.{entity}"
        given: Any = self.get_parameters_by_prefix(prefix)
        try:
            kinds = [QoSPolicyKind[name.upper()] for name in given]
            return make(qos_profile=copy(qos), qos_overriding_options=QoSOverridingOptions(kinds))
        except Exception as error:  # of several types, assertions among them
            if not given:
                raise
            raise InputError(
                f"the parameters {prefix}.* do not fit ({one_line(error)}): give policies as ROS names them"
            ) from None

    def create_publisher(self, msg_type: Any, topic: str, qos_profile: Any, **options: Any) -> Any:
        """As rclpy has it."""
        make = partial(super().create_publisher, msg_type, topic, **options)
        return self._with_overrides(make, "publisher", topic, qos_profile)

    def create_subscription(
        self, msg_type: Any, topic: str, callback: Callable[..., Any], qos_profile: Any, **options: Any
    ) -> Any:
        """As rclpy has it, but that a callback cannot ask for the MessageInfo."""
        # Taken as bytes by ROS: Fast DDS reads beyond the end of some damaged messages and ends the process.
        read = bytes if options.pop("raw", False) else partial(read_message, msg_type, topic)
        take = self.boundary.guarded(lambda data: callback(read(data)), f"a message on {topic}")
        make = partial(super().create_subscription, msg_type, topic, take, raw=True, **options)
        return self._with_overrides(make, "subscription", topic, qos_profile)

    def create_timer(self, timer_period_sec: float, callback: Any, *args: Any, **options: Any) -> Any:
        """As rclpy has it."""
        callback = self.boundary.guarded(callback, "a timer")
        return super().create_timer(timer_period_sec, callback, *args, **options)

    def create_service(self, srv_type: Any, srv_name: str, callback: Any, *args: Any, **options: Any) -> Any:
        """As rclpy has it."""
        serve = self.boundary.guarded(_with_short_lists(callback), f"a request to {srv_name}")
        return super().create_service(srv_type, srv_name, serve, *args, **options)

    def create_action_server(
        self,
        action_type: Any,
        name: str,
        qos_profile: Any,
        admit: Callable[[Any], Any],
        accept: Callable[[Any], None],
        cancel: Callable[[Any], Any],
        execute: Callable[[Any], Any],
        **options: Any,
    ) -> Any:
        """An `ActionServer` of rclpy, with its callbacks of a goal by name, and services of this profile."""
        services = ("goal_service", "result_service", "cancel_service")
        return ActionServer(
            self,
            action_type,
            name,
            goal_callback=self.boundary.guarded(admit, f"a goal of {name}"),
            handle_accepted_callback=self.boundary.guarded(accept, f"an accepted goal of {name}"),
            cancel_callback=self.boundary.guarded(cancel, f"a cancellation of {name}"),
            execute_callback=self.boundary.guarded(execute, f"a result of {name}"),
            **{f"{service}_qos_profile": qos_profile for service in services},
            **options,
        )

    def destroy_node(self) -> None:
        """As rclpy has it."""
        while self.at_end:
            self.at_end.pop()()
        super().destroy_node()


def read_message(kind: Any, topic: str, data: bytes) -> Any:
    """The message of class `kind` that came on a topic; raises InputError where the bytes are none, or
    too many."""
    most = MOST_DATA if _DATA in kind.get_fields_and_field_types().values() else MOST_BYTES
    if len(data) > most:
        raise InputError(
            f"a message on {topic} has {len(data)} bytes, more than the {most} that a {kind.__name__} may "
            f"have: check who publishes it"
        )
    # How many bytes of padding follow is said in the header, and Fast CDR believes it.
    if len(data) >= _HEADER and len(data) >= _HEADER + (data[_HEADER - 1] & 3):
        try:
            if (beside := _beside_data(kind, data)) > MOST_BYTES:
                raise InputError(
                    f"a message on {topic} has {beside} bytes beside its data, more than the {MOST_BYTES} "
                    f"that a {kind.__name__} may have: check who publishes it"
                )
            return deserialize_message(data, kind)
        except (RuntimeError, struct.error):
            pass
    raise InputError(
        f"a message on {topic} has {len(data)} bytes, which are no {kind.__name__}: check who publishes it"
    )


def _beside_data(kind: Any, data: bytes) -> int:
    """Bytes of a message that are not in its `uint8[]`; of a text, Python takes up to twelve for each.

    Raises struct.error where the message is torn, or is large and not in plain CDR.
    """
    if len(data) <= MOST_BYTES:
        return len(data)
    if data[:2] not in _PLAIN_CDR:
        raise struct.error("not plain CDR")
    return len(data) - _walk(kind(), memoryview(data)[_HEADER:], "><"[data[1]], 0)[1]


def _walk(message: Any, data: memoryview, order: str, at: int) -> tuple[int, int]:
    """The end of a message that starts at a byte of CDR, and the number of bytes in its `uint8[]`."""
    held = 0
    for name, kind in message.get_fields_and_field_types().items():
        value = getattr(message, name)
        if hasattr(value, "get_fields_and_field_types"):
            at, more = _walk(value, data, order, at)
            held += more
        elif kind in ("string", _DATA):
            at += -at % 4
            (size,) = struct.unpack_from(order + "I", data, at)
            at += 4 + size
            held += size if kind == _DATA else 0
        else:
            size = _SIZES[kind]
            at += -at % size + size
    return at, held


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
