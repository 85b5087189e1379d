"""Reads a ROS parameter file for our nodes and refuses what they would refuse, before any of them starts."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.parameter import ROS_PARAMS, Value, nearest
from crossspec_ros.settings import NODES
from crossspec_ros.yaml_files import read_yaml

_FORM = "write `NODE: {ros__parameters: {NAME: VALUE}}`"
_VALUES = "ros__parameters"


def read_config(path: Path, namespace: str = "") -> dict[str, dict[str, Value]]:
    """The parameters that the file sets for our nodes in a namespace, by node.

    As in ROS a later entry wins, `*` stands for a part of a node's name and `**` for any number of them. An
    entry without a namespace is for ours in whichever they are. Entries of other nodes are theirs; from a
    wildcard we take what we know. Raises InputError with the file and the remedy.
    """
    try:
        content = read_yaml(path)
    except OSError as error:
        raise InputError(
            f"the configuration '{path}' cannot be read ({error.strerror or error}): name a YAML file of the "
            f"nodes' parameters"
        ) from None
    except ValueError as error:
        raise InputError(f"the configuration {path} is not YAML that is read: {error}") from None
    if not isinstance(content, dict | None):
        raise InputError(f"the configuration {path} names no nodes: {_FORM}")
    entries = list(_entries(content or {}, "", path))
    values: dict[str, dict[str, Value]] = {node: {} for node in NODES}
    is_ours = not entries
    for pattern, given in entries:
        for node, settings in NODES.items():
            # A name without a slash is ours in whichever namespace we are.
            if pattern != node and not _matches(pattern, f"{namespace}/{node}"):
                continue
            is_ours = True
            known = {param.name for param in settings.params()}
            own = {
                name: value
                for name, value in given.items()
                if not name.startswith(ROS_PARAMS) and ("*" not in pattern or name in known)
            }
            try:
                checked = settings.check(own)
            except InputError as error:
                raise InputError(f"the configuration {path} does not fit: {error}") from None
            values[node] |= {name: checked[name] for name in own}
    if not is_ours:
        names = ", ".join(pattern for pattern, _ in entries)
        inner, _, name = entries[0][0].rpartition("/")
        there = f"launch them with namespace:=/{inner.strip('/')}" if inner else "leave out the slash"
        hint = there if name in NODES else nearest(name, list(NODES))
        where = f"in the namespace {namespace}" if namespace else "without a namespace"
        print(
            f"crossspec: the configuration {path} is for {names}, and sets nothing for our nodes {where}: "
            f"{hint}",
            file=sys.stderr,
        )
    return values


def _entries(content: Mapping[Any, Any], name: str, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The nodes' names and parameters, from names that may be nested."""
    for key, section in content.items():
        node = f"{name}/{str(key).strip('/')}" if name else str(key)
        if section in (None, {}):
            continue
        if not isinstance(section, dict) or not all(
            isinstance(inner, dict | None) for inner in section.values()
        ):
            raise InputError(
                f"the configuration {path} has no parameters for {node} as ROS reads them: {_FORM}"
            )
        yield from ((node, _flat(given or {})) for part, given in section.items() if part == _VALUES)
        yield from _entries({part: more for part, more in section.items() if part != _VALUES}, node, path)


def _flat(given: Mapping[Any, Any]) -> dict[str, Any]:
    """Parameters by their whole names: ROS joins nested ones with dots."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        inner = _flat(value) if isinstance(value, dict) else {"": value}
        values |= {f"{name}.{rest}" if rest else str(name): one for rest, one in inner.items()}
    return values


def _matches(pattern: str, node: str) -> bool:
    parts = {"**": ".*", "*": "[^/]+"}
    expression = "/".join(parts.get(part, re.escape(part)) for part in pattern.strip("/").split("/"))
    return re.fullmatch(expression.replace(".*/", "(.*/)?"), node.strip("/")) is not None
