"""A node's parameters in ROS: declared with what they mean, and followed where they may change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.node import Node
from rclpy.parameter import Parameter

from crossspec_ros.errors import InputError
from crossspec_ros.parameter import ROS_PARAMS, Param, Settings, ros_value
from crossspec_ros.plain_text import plain_text

Kind = TypeVar("Kind", bound=Settings)


def declare(node: Node, kind: type[Kind], on_change: Callable[[Kind], None] = lambda settings: None) -> Kind:
    """Declare the parameters of a node that was made with `automatically_declare_parameters_from_overrides`.

    Returns their values. All but the live ones are read-only from then on; when live ones are set,
    `on_change` gets the new values, and its InputError refuses them. An override of an unknown name is taken
    back with a warning: launch and wildcards give every node all that a robot has. Raises InputError for one
    of the wrong type or out of range.
    """
    # Any, because rclpy of Jazzy declares values and returns parameters.
    overrides: Mapping[str, Any] = node.get_parameters_by_prefix("")
    given = {name: parameter.value for name, parameter in overrides.items()}
    known = [param.name for param in kind.params()]
    own = {name: value for name, value in given.items() if name in known}
    for name in given:
        if name not in known and not name.startswith(ROS_PARAMS):
            node.undeclare_parameter(name)
            node.get_logger().warning(
                f"the parameter {plain_text(name)} is none of {kind.node}'s and is not used: ros2 param list "
                f"has those that are"
            )
    settings = kind.of(own)
    for param in kind.params():
        if param.name in own:
            node.undeclare_parameter(param.name)
        value = ros_value(getattr(settings, param.attribute))
        node.declare_parameter(param.name, value, descriptor(param), ignore_override=True)
    live = {param.name: param for param in kind.params() if param.live}
    now = settings

    def set_live(parameters: Sequence[Parameter]) -> SetParametersResult:
        nonlocal now
        try:
            news: dict[str, Any] = {
                live[p.name].attribute: live[p.name].check(p.value) for p in parameters if p.name in live
            }
            if news:
                changed = replace(now, **news)
                on_change(changed)
                now = changed
        except InputError as error:
            return SetParametersResult(successful=False, reason=f"{kind.node}: {error}")
        return SetParametersResult(successful=True)

    node.add_on_set_parameters_callback(set_live)
    return settings


def descriptor(param: Param) -> ParameterDescriptor:
    """The description of a parameter that ROS shows."""
    told = ParameterDescriptor(description=param.help, read_only=not param.live)
    if param.choices:
        told.additional_constraints = param.allowed
    if param.low is not None and param.high is not None:
        if isinstance(param.default, float):
            bounds = FloatingPointRange(from_value=float(param.low), to_value=float(param.high))
            told.floating_point_range = [bounds]
        else:
            told.integer_range = [IntegerRange(from_value=int(param.low), to_value=int(param.high))]
    return told
