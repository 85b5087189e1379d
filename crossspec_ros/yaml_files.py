"""YAML from anybody: looked at before it is built, because a few lines may stand for anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_MOST_BYTES, _MOST_DEPTH, _MOST_VALUES = 1 << 20, 50, 100_000
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TooMuchYaml(ValueError):
    """It is too large or too deep to be built."""


def read_yaml(path: Path) -> Any:
    """What a YAML file says, in plain types.

    Raises OSError where it cannot be read, TooMuchYaml where it is too large or too deep, and ValueError
    where it is no YAML.
    """
    text = read_yaml_events(path)
    try:
        return yaml.load(text, _Loader)
    # A number of 5,000 digits is a ValueError, a date of the month 13 too.
    except yaml.YAMLError as error:
        raise ValueError(_one_line(error)) from None


def read_yaml_events(path: Path) -> str:
    """The text of a YAML file that can be built without harm; raises as `read_yaml` does."""
    if path.stat().st_size > _MOST_BYTES:
        raise TooMuchYaml(f"it has more than {_MOST_BYTES >> 20} MB")
    text = path.read_text()
    try:
        _check(text)
    except yaml.YAMLError as error:
        raise ValueError(_one_line(error)) from None
    return text


def _check(text: str) -> None:
    """Count values as if each alias were written out."""
    counts = [0]
    anchors: list[str | None] = [None]
    sizes: dict[str, int] = {}
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            counts[-1] += sizes.get(str(event.anchor), 1)
        elif isinstance(event, yaml.ScalarEvent):
            counts[-1] += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            counts.append(1)
            anchors.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            count, anchor = counts.pop(), anchors.pop()
            counts[-1] += count
            if anchor:
                sizes[anchor] = count
        if len(counts) > _MOST_DEPTH:
            raise TooMuchYaml(f"it is nested more than {_MOST_DEPTH} deep")
        if counts[-1] > _MOST_VALUES:
            raise TooMuchYaml(f"it stands for more than {_MOST_VALUES} values")


def _one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())
