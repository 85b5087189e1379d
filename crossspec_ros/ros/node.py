"""Base class of all nodes: guarded callbacks, declared parameters, and logging to ROS."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from functools import partial, wraps
from typing import Any, TypeVar

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import QoSPolicyKind
from rclpy.qos_overriding_options import QoSOverridingOptions

from crossspec_ros.errors import FATAL_EXCEPTIONS, InputError, as_exception, described, one_line, plain_text
from crossspec_ros.parameter import ROS_PARAMS, Param, Settings, ros_value
from crossspec_ros.ros.run import NodeError, interrupted
from crossspec_ros.telemetry.pulse import Pulse

LOG_S = 5.0
"""Minimum time between two log lines about the same problem."""
_LOG = logging.getLogger("crossspec_ros")
Kind = TypeVar("Kind", bound=Settings)


class Boundary:
    """Guards the callbacks of a node. It logs and counts their exceptions, so that the node goes on.

    A NodeError and `FATAL_EXCEPTIONS` end the node, and so do all exceptions once ROS shuts down. Callbacks
    must not be coroutines.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.failed_callbacks = 0
        self.last_failure = ""
        self.running: list[str] = []
        """Callbacks in work."""
        self.pulse = Pulse("callbacks")
        """Pulse of the watched callbacks, which are those of messages."""
        self._logged_s: dict[str, float] = {}

    def guarded(
        self, callback: Callable[..., Any], what: str, is_watched: bool = False
    ) -> Callable[..., Any]:
        """Return the guarded callback. Only one watched callback may run at a time.

        A failed callback returns its last argument, which for a service is the response.
        """

        @wraps(callback)
        def guarded(*args: Any) -> Any:
            busy: AbstractContextManager[None] = self.pulse.busy() if is_watched else nullcontext()
            self.running.append(what)
            try:
                with busy:
                    return callback(*args)
            except (NodeError, *FATAL_EXCEPTIONS):
                raise
            except BaseException as error:  # panics of Rust libraries are no Exception
                # All calls of ROS fail while it shuts down.
                if not self._node.context.ok():
                    raise
                self.record_failure(what, error)
                return args[-1] if args else None
            finally:
                self.running.remove(what)

        return guarded

    def record_failure(self, what: str, error: BaseException) -> None:
        """Count an exception, and log it at most every five seconds per callback."""
        text = described(error)
        self.failed_callbacks += 1
        self.last_failure = f"{what}: {text.rpartition(chr(10))[2].strip()}"
        now_s = time.monotonic()
        # rclpy throttles by the line of code, so one callback would hide another.
        if now_s - self._logged_s.get(what, -LOG_S) >= LOG_S:
            self._logged_s[what] = now_s
            self._node.get_logger().error(f"failed to handle {what}: {text}")


class GuardedNode(Node):
    """A node with guarded subscriptions, timers and services, including those that rclpy creates."""

    def __init__(self, name: str, **options: Any) -> None:
        self.boundary = Boundary(self)
        self.at_end: list[Callable[[], None]] = []
        """Functions to call before the node is destroyed."""
        # `declare` refuses unknown parameters with their names.
        options["allow_undeclared_parameters"] = True
        super().__init__(name, automatically_declare_parameters_from_overrides=True, **options)
        if not any(isinstance(handler, _RosHandler) for handler in _LOG.handlers):
            handler = _RosHandler(self)
            _LOG.addHandler(handler)
            _LOG.setLevel(logging.INFO)
            self.at_end.append(partial(_LOG.removeHandler, handler))
        # rclpy creates the services of the lifecycle and of type descriptions without `create_service`.
        for service in self.services:
            if not hasattr(service.callback, "__wrapped__"):
                what = f"a request to {service.srv_name}"
                service.callback = self.boundary.guarded(service.callback, what)

    @property
    def fixed(self) -> str:
        """The reason why settings that are not live cannot change now, or an empty text."""
        return "it is read when the node starts: restart the node with the new value"

    def declare(
        self,
        kind: type[Kind],
        check: Callable[[Kind], object] = lambda settings: None,
        apply: Callable[[], None] = lambda: None,
    ) -> Kind:
        """Declare the parameters of these settings, and return their values.

        `check` refuses a change by an InputError. `apply` is called after each change. Overrides of unknown
        names are dropped with a warning, because launch files and wildcards give every node the parameters of
        all nodes. Raises InputError for an invalid override.
        """
        # Any, because rclpy of Jazzy declares values and returns parameters.
        overrides: Mapping[str, Any] = self.get_parameters_by_prefix("")
        values = {name: one.value for name, one in overrides.items() if not name.startswith(ROS_PARAMS)}
        params = {param.name: param for param in kind.params()}
        for name in [*values]:
            self.undeclare_parameter(name)
            if name not in params:
                del values[name]
                self.get_logger().warning(
                    f"{kind.node} has no parameter {plain_text(name)}, and ignores it: ros2 param list shows "
                    f"its parameters"
                )
        settings = kind.of(values)
        for name, param in params.items():
            value = ros_value(getattr(settings, param.attribute))
            self.declare_parameter(name, value, _descriptor(param), ignore_override=True)

        def validate(parameters: Sequence[Parameter]) -> SetParametersResult:
            news = {one.name: one.value for one in parameters if not one.name.startswith(ROS_PARAMS)}
            before = self.settings(kind).values()
            try:
                changed = kind.of(before | news)
                for name, value in changed.values().items():
                    if value != before[name] and self.fixed and not params[name].live:
                        raise InputError(f"{kind.node}: parameter {name} cannot change now, {self.fixed}")
                check(changed)
            except InputError as error:
                return SetParametersResult(successful=False, reason=str(error))
            return SetParametersResult(successful=True)

        floats = {name for name, param in params.items() if isinstance(param.default, float)}

        def as_declared(parameters: Sequence[Parameter]) -> list[Parameter]:
            """Convert integers to floats for float settings, as YAML files allow."""
            return [
                Parameter(one.name, value=float(one.value))
                if one.name in floats and type(one.value) is int
                else one
                for one in parameters
            ]

        self.add_pre_set_parameters_callback(as_declared)
        self.add_on_set_parameters_callback(validate)
        self.add_post_set_parameters_callback(lambda parameters: apply())
        return settings

    def settings(self, kind: type[Kind]) -> Kind:
        """Return the current values of declared parameters."""
        return kind.of({param.name: self.get_parameter(param.name).value for param in kind.params()})

    def _with_overrides(self, make: Callable[..., Any], entity: str, topic: str, qos: Any) -> Any:
        """Create an endpoint with the policies of the parameters `qos_overrides.TOPIC.ENTITY.POLICY`.

        Only overridden policies become parameters; otherwise each topic would have three. `qos` is copied,
        because topics share it and rclpy changes it.
        """
        prefix = f"qos_overrides.{self.resolve_topic_name(topic)}.{entity}"
        overrides: Any = self.get_parameters_by_prefix(prefix)
        try:
            kinds = [QoSPolicyKind[name.upper()] for name in overrides]
            return make(qos_profile=copy(qos), qos_overriding_options=QoSOverridingOptions(kinds))
        except Exception as error:  # of various types, including assertions
            if not overrides:
                raise
            raise InputError(
                f"the parameters {prefix}.* are invalid ({one_line(error)}): use the names and values of ROS"
            ) from None

    def create_publisher(self, msg_type: Any, topic: str, qos_profile: Any, **options: Any) -> Any:
        """See rclpy."""
        make = partial(super().create_publisher, msg_type, topic, **options)
        return self._with_overrides(make, "publisher", topic, qos_profile)

    def create_subscription(
        self, msg_type: Any, topic: str, callback: Callable[..., Any], qos_profile: Any, **options: Any
    ) -> Any:
        """See rclpy."""
        take = self.boundary.guarded(callback, f"a message on {topic}", is_watched=True)
        make = partial(super().create_subscription, msg_type, topic, take, **options)
        return self._with_overrides(make, "subscription", topic, qos_profile)

    def create_timer(self, timer_period_sec: float, callback: Any, *args: Any, **options: Any) -> Any:
        """See rclpy."""
        callback = self.boundary.guarded(callback, "a timer")
        return super().create_timer(timer_period_sec, callback, *args, **options)

    def create_service(self, srv_type: Any, srv_name: str, callback: Any, *args: Any, **options: Any) -> Any:
        """See rclpy."""
        serve = self.boundary.guarded(callback, f"a request to {srv_name}")
        return super().create_service(srv_type, srv_name, serve, *args, **options)

    def destroy_node(self) -> None:
        """See rclpy."""
        while self.at_end:
            self.at_end.pop()()
        super().destroy_node()


def guarded_transition(
    transition: Callable[[Any, LifecycleState], TransitionCallbackReturn],
) -> Callable[[Any, LifecycleState], TransitionCallbackReturn]:
    """Return a transition that passes exceptions to the node's `fail`. ROS then calls `on_error`.

    rclpy would hide an Exception, and end the node with any other BaseException.
    """

    @wraps(transition)
    def guarded(node: Any, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return transition(node, state)
        except BaseException as error:  # panics of Rust libraries are no Exception
            # All calls of ROS fail while it shuts down, at times before the context is invalid.
            if node.context.ok() and not interrupted():
                node.fail(transition.__name__.removeprefix("on_"), as_exception(error))
            return TransitionCallbackReturn.ERROR

    return guarded


def _descriptor(param: Param) -> ParameterDescriptor:
    """Describe a parameter for ROS. Its type is dynamic, because rclpy's own error would not name it."""
    descriptor = ParameterDescriptor(description=param.help, dynamic_typing=True)
    if param.choices:
        descriptor.additional_constraints = param.allowed
    if param.low is not None and param.high is not None:
        if isinstance(param.default, float):
            span = FloatingPointRange(from_value=float(param.low), to_value=float(param.high))
            descriptor.floating_point_range = [span]
        else:
            descriptor.integer_range = [IntegerRange(from_value=int(param.low), to_value=int(param.high))]
    return descriptor


class _RosHandler(logging.Handler):
    """Passes Python's log records to the logger of a node, and thus to /rosout."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._logger = node.get_logger()

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record on one line."""
        text = plain_text(record.getMessage())
        # rclpy allows a single severity per line of code.
        if record.levelno >= logging.ERROR:
            self._logger.error(text)
        elif record.levelno >= logging.WARNING:
            self._logger.warning(text)
        else:
            self._logger.info(text)
