"""Declare settings: `setting` makes a field of a `Settings` class, which validates values.

The file needs the standard library only, because launch files import it.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from crossspec_ros.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import Self

Value = bool | int | float | str | tuple[str, ...]
Default = TypeVar("Default", bool, int, float, str, tuple[str, ...])
MAX_TEXT = 10_000
"""Maximum number of characters of a text."""
ROS_PARAMS = ("use_sim_time", "start_type_description_service", "qos_overrides")
"""Prefixes of the parameters that every ROS node has."""
_KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "text", tuple: "a list of texts"}
_PREFIXES = ("models", "link")
_NEAR = 0.7
"""Minimum similarity of a suggested name. "verbose" and "error" have 0.5."""


@dataclass(frozen=True)
class Param:
    """One setting. Its type is the default's. `Settings` adds the `attribute`, its name in Python.

    `low` and `high` bound numbers. `choices` lists the valid texts. A `pattern`, if set, decides in their
    place, and `choices` is for readers. The default is always valid. A `live` setting may change while the
    node runs. A setting with a `group` is also a command-line flag and a launch argument, named by `flag`.
    """

    default: Value
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    live: bool = False
    group: str = ""
    flag: str = ""
    attribute: str = ""

    @property
    def name(self) -> str:
        """The name in ROS: `models_dtype` is models.dtype."""
        prefix, _, rest = self.attribute.partition("_")
        return f"{prefix}.{rest}" if prefix in _PREFIXES else self.attribute

    @property
    def argument(self) -> str:
        """The name of the command-line flag and of the launch argument."""
        return self.flag or self.name.rpartition(".")[2]

    def check(self, value: Any) -> Value:
        """Return the value in the setting's type. Raises InputError if it is invalid."""
        kind = type(self.default)
        if kind is float and type(value) is int and abs(value) <= sys.float_info.max:
            value = float(value)
        if kind is tuple and isinstance(value, Sequence) and not isinstance(value, str):
            # A ROS parameter file cannot hold an empty list, so [""] means the same.
            value = tuple(one for one in value if one != "")
        texts = value if isinstance(value, tuple) else (value,)
        if type(value) is not kind or (kind is tuple and not all(isinstance(one, str) for one in texts)):
            raise InputError(f"{self.name} is {value!r}, but it must be {_KINDS[kind]}{self._quoting(value)}")
        # The captioner reads a schema again for each window.
        if (length := sum(len(one) for one in texts if isinstance(one, str))) > MAX_TEXT:
            raise InputError(
                f"{self.name} has {length} characters, but the maximum is {MAX_TEXT}: shorten it"
            )
        pattern = self.pattern or "|".join(map(re.escape, self.choices))
        is_chosen = not pattern or all(re.fullmatch(pattern, str(one)) for one in texts)
        # An integer may be too large to become a float.
        number: Any = value
        is_within = self.low is None or self.high is None or self.low <= number <= self.high
        if value != self.default and not (is_chosen and is_within):
            raise InputError(f"{self.name} is {value!r}, but it must be {self.allowed}")
        return value

    @property
    def allowed(self) -> str:
        """The choices or the range in words; empty if there are none."""
        if self.choices:
            return f"{'any' if isinstance(self.default, tuple) else 'one'} of {', '.join(self.choices)}"
        has_range = self.low is not None and self.high is not None
        return f"from {self.low:.15g} to {self.high:.15g}" if has_range else ""

    @property
    def meaning(self) -> str:
        """The description with the valid values."""
        return f"{self.help} {self.allowed[0].upper()}{self.allowed[1:]}." if self.allowed else self.help

    @property
    def default_text(self) -> str:
        """The default as in YAML."""
        if isinstance(self.default, tuple):
            return f"[{', '.join(self.default)}]"
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)

    def _quoting(self, value: object) -> str:
        if isinstance(self.default, tuple):
            return f": write {self.name}:=\"['one', 'another']\""
        if isinstance(self.default, str) and isinstance(value, bool | int | float):
            text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
            quoted = f"{self.name}:=\"'{text}'\", in a file {self.name}: '{text}'"
            return f": YAML does not read yes, no, on, off and digits as text, so write {quoted}"
        return ""


def setting(default: Default, help: str, *bounds: Any, **more: Any) -> Default:
    """Return a dataclass field with a `Param` of these values."""
    made: Any = field(default=default, metadata={"param": Param(default, help, *bounds, **more)})
    return made


@dataclass(frozen=True)
class Settings:
    """The values of a node's settings. `setting` makes each field."""

    node: ClassVar[str]

    @classmethod
    def params(cls) -> tuple[Param, ...]:
        """Return the settings in order."""
        return tuple(replace(one.metadata["param"], attribute=one.name) for one in fields(cls))

    @classmethod
    def check(cls, values: Mapping[Any, object]) -> dict[str, Value]:
        """Return `values` over the defaults, by name. Raises InputError for an invalid value or name."""
        params = {param.name: param for param in cls.params()}
        checked = {name: param.default for name, param in params.items()}
        for name, value in values.items():
            if name not in params:
                raise InputError(f"{cls.node} has no parameter {name}: {nearest(str(name), list(params))}")
            try:
                checked[name] = params[name].check(value)
            except InputError as error:
                raise InputError(f"{cls.node}: parameter {error}") from None
        return checked

    @classmethod
    def of(cls, values: Mapping[Any, object]) -> Self:
        """Return the settings with `values` over the defaults. Raises InputError as `check` does."""
        checked = cls.check(values)
        attributes: dict[str, Any] = {param.attribute: checked[param.name] for param in cls.params()}
        return cls(**attributes)

    def values(self) -> dict[str, Value]:
        """Return the values by the settings' names."""
        return {param.name: getattr(self, param.attribute) for param in self.params()}


def ros_value(value: Value) -> Any:
    """Return the value for ROS, which has no empty list of texts."""
    return (list(value) or [""]) if isinstance(value, tuple) else value


def nearest(name: str, names: Sequence[str]) -> str:
    """Return the remedy for an unknown name: the most similar name, or all names."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=_NEAR)
    return f"did you mean {close[0]}?" if close else f"it must be one of {', '.join(names)}"
