"""Read the YAML file of the nodes' parameters for commands that run without ROS."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import yaml

from crossspec_ros.errors import InputError, one_line, plain_text
from crossspec_ros.files import read_small
from crossspec_ros.parameter import ROS_PARAMS, Value, nearest
from crossspec_ros.settings import NODES

_LOG = logging.getLogger(__name__)
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_config(path: Path) -> dict[str, dict[str, Value]]:
    """Return the file's parameters by node, as ROS takes them for nodes without a namespace.

    Logs names under `/**` that no node has. Raises InputError for an invalid file, name or value.
    """
    try:
        content = yaml.load(read_small(path).decode(), _Loader) or {}
        filled = {str(name).strip("/"): section for name, section in content.items() if section}
        sections = {name: _flat(section["ros__parameters"]) for name, section in filled.items()}
    except OSError as error:
        raise InputError(
            f"the configuration '{path}' cannot be read ({error.strerror or error}): name a YAML file"
        ) from None
    # PyYAML raises other errors for values that do not fit their tag.
    except Exception as error:
        reason = f" ({one_line(error)})" if isinstance(error, yaml.YAMLError | ValueError) else ""
        form = "write `NODE: {ros__parameters: {NAME: VALUE}}`"
        raise InputError(f"the configuration '{path}' has no parameters of nodes{reason}: {form}") from None
    values: dict[str, dict[str, Value]] = {node: {} for node in NODES}
    is_ours = not sections
    names = {param.name for kind in NODES.values() for param in kind.params()}
    for name in sections.get("**", {}):
        if name not in names and not name.startswith(ROS_PARAMS):
            what = f"'{path}' sets {plain_text(name)} for all nodes, but none here has it"
            _LOG.warning("%s: correct the name, unless it is for other packages", what)
    for name, section in sections.items():
        for node, kind in NODES.items():
            if name not in (node, "**", f"**/{node}"):
                continue
            is_ours, known = True, {param.name for param in kind.params()}
            is_named = name.rpartition("/")[2] == node
            own = {key: value for key, value in section.items() if is_named or key in known}
            own = {key: value for key, value in own.items() if not key.startswith(ROS_PARAMS)}
            try:
                checked = kind.check(own)
            except InputError as error:
                raise InputError(f"the configuration '{path}' is invalid: {error}") from None
            values[node] |= {key: checked[key] for key in own}
    if not is_ours:
        hint = nearest(next(iter(sections)), list(NODES))
        raise InputError(f"the configuration '{path}' sets nothing for nodes of this package: {hint}")
    return values


def _flat(section: Any) -> dict[str, Any]:
    """Return parameters by their whole names: ROS joins nested ones with dots."""
    values: dict[str, Any] = {}
    for name, value in section.items():
        inner = _flat(value) if isinstance(value, dict) else {"": value}
        values |= {f"{name}.{rest}".rstrip("."): one for rest, one in inner.items()}
    return values
