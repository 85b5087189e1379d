"""YAML from anybody: looked at before it is built, because a few lines may stand for anything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from crossspec_ros.errors import one_line
from crossspec_ros.files import NoSmallFileError, read_small

_MOST_BYTES, _MOST_DEPTH, _MOST_VALUES = 1 << 20, 50, 100_000
_MOST_DIGITS = 1000
"""Numbers to the base 60, such as 1:30:00, take time as the square of their length."""
_LONG_DIGITS = 18
"""Digits above which any number of integers may have the same hash in Python."""
_MOST_LONG = 1000
"""Integers of more digits than `_LONG_DIGITS`."""
_NUMBER = re.compile(r"[-+]?(0[bx][\da-fA-F_]+|[\W\d_]+)")
"""No letter is in them, or it is a digit."""
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TooMuchYaml(ValueError):
    """YAML that is too large or too deep to be built, or no file at all."""


def read_yaml(path: Path) -> Any:
    """Read a YAML file into plain types.

    Raises OSError where there is nothing to read, TooMuchYaml where it is too large or too deep or no file,
    and ValueError where it is no YAML.
    """
    text = _checked_text(path)
    try:
        return yaml.load(text, _Loader)
    # A number of 5,000 digits is a ValueError, a date of the month 13 too.
    except yaml.YAMLError as error:
        raise ValueError(one_line(error)) from None
    # What the loader makes of values that are not of the type they are said to have.
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _checked_text(path: Path) -> str:
    """The text of a YAML file that can be built without harm; raises as `read_yaml` does."""
    try:
        text = read_small(path, _MOST_BYTES).decode()
    except NoSmallFileError as error:
        raise TooMuchYaml(str(error)) from None
    try:
        _check(text)
    except yaml.YAMLError as error:
        raise ValueError(one_line(error)) from None
    return text


def _check(text: str) -> None:
    """Count values as if each alias were written out."""
    counts, long = [0], 0
    anchors: list[str | None] = [None]
    sizes: dict[str, int] = {}
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in anchors:
                raise TooMuchYaml(f"its part '{event.anchor:.80}' contains itself")
            counts[-1] += sizes.get(str(event.anchor), 1)
        elif isinstance(event, yaml.ScalarEvent):
            if len(event.value) > _LONG_DIGITS and _NUMBER.fullmatch(event.value):
                if len(event.value) > _MOST_DIGITS:
                    raise TooMuchYaml(f"it has a number of more than {_MOST_DIGITS} characters")
                long += "." not in event.value
                if long > _MOST_LONG:
                    raise TooMuchYaml(
                        f"it has more than {_MOST_LONG} integers of more than {_LONG_DIGITS} characters"
                    )
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
