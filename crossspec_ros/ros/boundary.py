"""The boundary between messages and a node: whatever a callback raises, the node goes on."""

from __future__ import annotations

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

from crossspec_ros import errors
from crossspec_ros.errors import InputError, as_exception, described, one_line, plain_text
from crossspec_ros.ros.log_handler import log_to_ros
from crossspec_ros.ros.run import NodeError
from crossspec_ros.telemetry.pulse import Pulse

LOG_S = 5.0
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


class GuardedNode(Node):
    """A node whose subscriptions, timers and services are inside a `Boundary`, also those that ROS makes."""

    def __init__(self, name: str, **options: Any) -> None:
        self.boundary = Boundary(self)
        self.at_end: list[Callable[[], None]] = []
        """Called before the node is destroyed."""
        super().__init__(name, **options)
        self.at_end.append(log_to_ros(self.get_logger()))
        # Those of the lifecycle, which may load models, and of type descriptions are made past this class.
        for service in self.services:
            if not is_guarded(service.callback):
                what = f"a request to {service.srv_name}"
                service.callback = self.boundary.guarded(service.callback, what, is_watched=False)

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
        """As rclpy has it."""
        take = self.boundary.guarded(callback, f"a message on {topic}")
        make = partial(super().create_subscription, msg_type, topic, take, **options)
        return self._with_overrides(make, "subscription", topic, qos_profile)

    def create_timer(self, timer_period_sec: float, callback: Any, *args: Any, **options: Any) -> Any:
        """As rclpy has it."""
        callback = self.boundary.guarded(callback, "a timer")
        return super().create_timer(timer_period_sec, callback, *args, **options)

    def create_service(self, srv_type: Any, srv_name: str, callback: Any, *args: Any, **options: Any) -> Any:
        """As rclpy has it."""
        serve = self.boundary.guarded(callback, f"a request to {srv_name}")
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
