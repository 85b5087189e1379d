"""Base of all nodes: callbacks that cannot end a node, declared parameters, and one log."""

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

from crossspec_ros import errors
from crossspec_ros.errors import InputError, as_exception, described, one_line, plain_text
from crossspec_ros.parameter import ROS_PARAMS, Param, Settings, ros_value
from crossspec_ros.ros.run import NodeError, interrupted
from crossspec_ros.telemetry.pulse import Pulse

LOG_S = 5.0
"""Minimum time between two log lines about the same problem."""
FATAL_EXCEPTIONS = (NodeError, *errors.ENDS)
"""Exceptions of a callback that end the node."""
_LOG = logging.getLogger("crossspec_ros")
Kind = TypeVar("Kind", bound=Settings)


class Boundary:
    """Guards the callbacks of a node: what they raise is logged, counted and kept for the diagnostics.

    Only `FATAL_EXCEPTIONS` pass, and everything once ROS shuts down. Callbacks are functions, not coroutines.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.failed_callbacks = 0
        self.last_failure = ""
        self.running: list[str] = []
        """Callbacks that have not returned yet."""
        self.pulse = Pulse("callbacks")
        """Pulse of the watched callbacks: those of messages."""
        self._logged_s: dict[str, float] = {}

    def guarded(
        self, callback: Callable[..., Any], what: str, is_watched: bool = False
    ) -> Callable[..., Any]:
        """Return the callback inside the boundary; of the watched ones, one may run at a time.

        A failed callback returns its last argument: for a service the response, as far as it was filled.
        """

        @wraps(callback)
        def guarded(*args: Any) -> Any:
            busy: AbstractContextManager[None] = self.pulse.busy() if is_watched else nullcontext()
            self.running.append(what)
            try:
                with busy:
                    return callback(*args)
            except FATAL_EXCEPTIONS:
                raise
            except BaseException as error:  # libraries in Rust raise no Exception
                # ROS fails in everything that is under way once it shuts down.
                if not self._node.context.ok():
                    raise
                self.note(what, error)
                return args[-1] if args else None
            finally:
                self.running.remove(what)

        return guarded

    def note(self, what: str, error: BaseException) -> None:
        """Count an exception, and log it, but at most every five seconds for each callback."""
        text = described(error)
        self.failed_callbacks += 1
        self.last_failure = f"{what}: {text.rpartition(chr(10))[2].strip()}"
        now_s = time.monotonic()
        # rclpy's own throttle goes by the line of code, and would let one callback hide another.
        if now_s - self._logged_s.get(what, -LOG_S) >= LOG_S:
            self._logged_s[what] = now_s
            self._node.get_logger().error(f"{what} could not be handled: {text}")


class GuardedNode(Node):
    """A node whose subscriptions, timers and services are inside a `Boundary`, also those that ROS makes."""

    def __init__(self, name: str, **options: Any) -> None:
        self.boundary = Boundary(self)
        self.at_end: list[Callable[[], None]] = []
        """Called before the node is destroyed."""
        # A parameter that does not exist is refused in `declare`, by its name.
        options["allow_undeclared_parameters"] = True
        super().__init__(name, automatically_declare_parameters_from_overrides=True, **options)
        if not any(isinstance(handler, _RosHandler) for handler in _LOG.handlers):
            handler = _RosHandler(self)
            _LOG.addHandler(handler)
            _LOG.setLevel(logging.INFO)
            self.at_end.append(partial(_LOG.removeHandler, handler))
        # rclpy makes those of the lifecycle and of type descriptions past this class.
        for service in self.services:
            if not hasattr(service.callback, "__wrapped__"):
                what = f"a request to {service.srv_name}"
                service.callback = self.boundary.guarded(service.callback, what)

    @property
    def fixed(self) -> str:
        """Return the reason why a setting that is not live cannot change now, or an empty text."""
        return "it is read when the node starts: restart the node with another value"

    def declare(
        self,
        kind: type[Kind],
        check: Callable[[Kind], object] = lambda settings: None,
        apply: Callable[[], None] = lambda: None,
    ) -> Kind:
        """Declare the parameters of these settings, and return their values.

        A change that `check` refuses with an InputError is not made; after any other one `apply` is called.
        Overrides of unknown names are dropped with a warning, because launch files and wildcards give every
        node the parameters of a whole robot. Raises InputError for an invalid override.
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
                    f"the parameter {plain_text(name)} is none of {kind.node}'s and is not used: ros2 param "
                    f"list has those that are"
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
            """Take integers for floats, as YAML files do."""
            whole = [one.name for one in parameters if one.name in floats and type(one.value) is int]
            return [Parameter(p.name, value=float(p.value)) if p.name in whole else p for p in parameters]

        self.add_pre_set_parameters_callback(as_declared)
        self.add_on_set_parameters_callback(validate)
        self.add_post_set_parameters_callback(lambda parameters: apply())
        return settings

    def settings(self, kind: type[Kind]) -> Kind:
        """Return the values of declared parameters as they are now."""
        return kind.of({param.name: self.get_parameter(param.name).value for param in kind.params()})

    def _with_overrides(self, make: Callable[..., Any], entity: str, topic: str, qos: Any) -> Any:
        """Make an endpoint with the policies of the parameters `qos_overrides.TOPIC.ENTITY.POLICY`.

        Only policies that are overridden become parameters, or each topic would have three of them. rclpy
        writes into the profile that it gets, which other topics share.
        """
        prefix = f"qos_overrides.{self.resolve_topic_name(topic)}.{entity}"
        overrides: Any = self.get_parameters_by_prefix(prefix)
        try:
            kinds = [QoSPolicyKind[name.upper()] for name in overrides]
            return make(qos_profile=copy(qos), qos_overriding_options=QoSOverridingOptions(kinds))
        except Exception as error:  # of several types, assertions among them
            if not overrides:
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
        take = self.boundary.guarded(callback, f"a message on {topic}", is_watched=True)
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

    def destroy_node(self) -> None:
        """As rclpy has it."""
        while self.at_end:
            self.at_end.pop()()
        super().destroy_node()


def guarded_transition(
    transition: Callable[[Any, LifecycleState], TransitionCallbackReturn],
) -> Callable[[Any, LifecycleState], TransitionCallbackReturn]:
    """Return a transition that gives what it raises to the node's `fail`; ROS then calls `on_error`.

    rclpy would keep an Exception to itself, and end with anything else.
    """

    @wraps(transition)
    def guarded(node: Any, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            return transition(node, state)
        except BaseException as error:  # libraries in Rust raise no Exception
            # ROS fails in everything that is under way once it shuts down, at times before the node knows.
            if node.context.ok() and not interrupted():
                node.fail(transition.__name__.removeprefix("on_"), as_exception(error))
            return TransitionCallbackReturn.ERROR

    return guarded


def _descriptor(param: Param) -> ParameterDescriptor:
    """Describe a parameter for ROS; its type is not fixed, because rclpy's refusal would not name it."""
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
    """Passes Python's log records to the logger of a node, and so to /rosout."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._logger = node.get_logger()

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record on one line."""
        text = plain_text(record.getMessage())
        # rclpy allows one severity for each line of code.
        if record.levelno >= logging.ERROR:
            self._logger.error(text)
        elif record.levelno >= logging.WARNING:
            self._logger.warning(text)
        else:
            self._logger.info(text)
