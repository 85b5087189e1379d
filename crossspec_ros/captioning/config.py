"""Reads the parameter file of a replay and refuses what the nodes would refuse, before any of them starts."""

from __future__ import annotations

from pathlib import Path

from crossspec_ros.captioning.params import Value, nearest
from crossspec_ros.captioning.settings import NODES
from crossspec_ros.errors import InputError
from crossspec_ros.yaml_files import read_yaml

_FORM = "write `NODE: {ros__parameters: {NAME: VALUE}}`"


def read_config(path: Path) -> dict[str, dict[str, Value]]:
    """The parameters that the file sets, by node; raises InputError with the file and the remedy."""
    try:
        content = read_yaml(path)
    except OSError as error:
        raise InputError(
            f"the configuration '{path}' cannot be read ({error.strerror or error}): name a YAML file of the "
            f"nodes' parameters"
        ) from None
    except ValueError as error:
        raise InputError(f"the configuration {path} is not YAML that is read: {error}") from None
    if content is None:
        return {node: {} for node in NODES}
    if not isinstance(content, dict):
        raise InputError(f"the configuration {path} names no nodes: {_FORM}")
    values = {}
    for node in NODES:
        section = content.pop(node, None)
        if section in (None, {}):
            section = {"ros__parameters": {}}
        given = section.get("ros__parameters") if isinstance(section, dict) else None
        if not isinstance(given, dict) or len(section) > 1:
            raise InputError(
                f"the configuration {path} has no parameters for {node} as ROS reads them: {_FORM}"
            )
        try:
            checked = NODES[node].check(given)
        except InputError as error:
            raise InputError(f"the configuration {path} does not fit: {error}") from None
        values[node] = {name: checked[name] for name in given}
    for unknown in content:
        raise InputError(
            f"the configuration {path} names no node with {unknown}: {nearest(str(unknown), list(NODES))}"
        )
    return values
