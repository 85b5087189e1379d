"""Parameter of a node, and the sentence for a value that it does not take; `settings` has them all.

Nothing here needs more than Python, so that launch files can use it.
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

Value = bool | int | float | str
_MOST_TEXT = 10_000
"""Characters of a text."""
_NEAR = 0.7
"""Share of letters that a name has in common with the one that was meant; "verbose" has 0.5 with "error"."""

ROS_PARAMS = ("use_sim_time", "start_type_description_service", "qos_overrides")
"""Beginnings of the names of parameters that ROS itself gives every node."""

Default = TypeVar("Default", bool, int, float, str)


@dataclass(frozen=True)
class Param:
    """One parameter; its type is the default's, `attribute` its name in Python.

    `low` and `high` bound numbers, `choices` lists strings. `several` of them may be named with commas
    between, or none. Text must match `pattern`, which `choices` then put into words. `live` ones may be
    changed while the node runs.
    """

    name: str
    attribute: str
    default: Value
    description: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    several: bool = False
    pattern: str = ""
    live: bool = False

    def check(self, value: object) -> Value:
        """The value in the parameter's type; raises InputError for another type or out of range."""
        kind = type(self.default)
        if kind is float and type(value) is int and abs(value) <= sys.float_info.max:
            value = float(value)
        if type(value) is not kind:
            raise InputError(
                f"parameter {self.name} is {value!r}, but it must be a {kind.__name__}: {self.description}"
            )
        assert isinstance(value, (bool, int, float, str))
        # Before megabytes are read again for each window.
        if isinstance(value, str) and len(value) > _MOST_TEXT:
            raise InputError(
                f"parameter {self.name} has {len(value)} characters, but at most {_MOST_TEXT} are taken: "
                f"shorten it"
            )
        named = read_names(value) if self.several else (value,)
        if self.pattern:
            fits = re.fullmatch(self.pattern, str(value)) is not None
        else:
            fits = not self.choices or set(named) <= set(self.choices)
        if not fits:
            raise InputError(f"parameter {self.name} is {value!r}, but it must be {self.allowed}")
        # Not as a float, which whole numbers may be too large for.
        number = value if isinstance(value, (int, float)) else 0
        if self.low is not None and self.high is not None and not self.low <= number <= self.high:
            raise InputError(
                f"parameter {self.name} is {value}, but it must be from {self.low:g} to {self.high:g}: "
                f"{self.description}"
            )
        return value

    @property
    def allowed(self) -> str:
        """Its choices in words."""
        return f"{'any' if self.several else 'one'} of {', '.join(self.choices)}"


def param(
    default: Default,
    description: str,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    several: bool = False,
    pattern: str = "",
    live: bool = False,
    name: str = "",
) -> Default:
    """A field of settings that is a `Param`; `name` is ROS's where that has a dot."""
    described = Param(name, "", default, description, low, high, choices, several, pattern, live)
    made: Any = field(default=default, metadata={"param": described})
    return made


@dataclass(frozen=True)
class Settings:
    """The values of a node's parameters; each field is made by `param`."""

    node: ClassVar[str]

    @classmethod
    def params(cls) -> tuple[Param, ...]:
        """The parameters in order."""
        described = ((field.name, field.metadata["param"]) for field in fields(cls))
        return tuple(replace(one, name=one.name or name, attribute=name) for name, one in described)

    @classmethod
    def check(cls, values: Mapping[Any, object]) -> dict[str, Value]:
        """`values` over the defaults, by the parameters' names; InputError for a bad value or name."""
        params = {param.name: param for param in cls.params()}
        checked = {name: param.default for name, param in params.items()}
        for name, value in values.items():
            if name not in params:
                raise InputError(f"{cls.node} has no parameter {name}: {nearest(str(name), list(params))}")
            try:
                checked[name] = params[name].check(value)
            except InputError as error:
                raise InputError(f"{cls.node}: {error}") from None
        return checked

    @classmethod
    def of(cls, values: Mapping[Any, object]) -> Self:
        """The settings that `values` over the defaults make; raises InputError as `check` does."""
        checked = cls.check(values)
        given: dict[str, Any] = {param.attribute: checked[param.name] for param in cls.params()}
        return cls(**given)


def read_names(text: object) -> tuple[str, ...]:
    """The names in a text that has commas between them."""
    return tuple(name for part in str(text).split(",") if (name := part.strip()))


def read_number(name: str, text: str) -> float:
    """The number that an argument is given as text; raises InputError where it is none."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{name} is '{text}', but it must be a number: give one like {name}:=0.5") from None


def read_flag(name: str, text: str) -> bool:
    """The truth value that an argument is given as text; raises InputError where it is none."""
    if text.lower() not in ("true", "false"):
        raise InputError(f"{name} is '{text}', but it must be true or false: give one like {name}:=true")
    return text.lower() == "true"


def read_choice(name: str, text: str, choices: Sequence[str]) -> str:
    """One of `choices` that an argument is given as text; raises InputError for any other."""
    if text not in choices:
        raise InputError(f"{name} is '{text}', which is none: {nearest(text, choices)}")
    return text


def nearest(name: str, known: Sequence[str]) -> str:
    """The hint that ends a sentence about an unknown name."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
    return f"did you mean {close[0]}?" if close else f"it must be one of {', '.join(known)}"
