"""Names of t, x, y and p as people write them, and units as names and comments state them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from crossspec_ros.recordings.options import UNITS

ROLES = ("t", "x", "y", "p")
_NAMES = {
    "t": ("t", "ts", "time", "times", "timestamp", "timestamps", "time_stamp", "time_stamps"),
    "x": ("x", "xs", "col", "column"),
    "y": ("y", "ys", "row"),
    "p": ("p", "ps", "pol", "polarity", "polarities", "on", "sign"),
}
_SECONDS = ("sec", "secs", "second", "seconds")
_UNITS = {
    name: unit
    for unit, long in zip(UNITS, ("", "milli", "micro", "nano"), strict=True)
    for name in (unit, *(f"{prefix}{rest}" for prefix in (unit[:-1], long) for rest in _SECONDS))
    # With micro sign, with the Greek letter, and with either where the text is not UTF-8.
} | dict.fromkeys(("\u00b5s", "\u03bcs", "\ufffds"), "us")
_ANY_UNIT = "|".join(_UNITS)
_WITH_UNIT = re.compile(rf"(.*?)(?:[\s_/.-]+(?:in[\s_]+)?|[\s_]*[\[(](?:.*\s)?)({_ANY_UNIT})[\])]?")
_MULTIPLE = re.compile(rf"(.*?)[\s_]*(?:[\[(].*?|[\s_])\d[\d.]*\s*({_ANY_UNIT})[\])]?")
# Another time, as that of an exposure, has its word before it.
_BEFORE = r"(?:\b(?:the|all|events?|sensor|and|with|of)\s+|(?<![a-z]\s))(?<!-)\b"
_TIMES = rf"{_BEFORE}(?:times?|timestamps?)\b"
_SENTENCE = re.compile(
    rf"(?:{_TIMES}|{_BEFORE}ts?\b)"
    rf"(?:[\s:=\[(]|\b(?:are|is|in|given|stored|as|units?)\b)+({_ANY_UNIT})\b"
)
_STATED = re.compile(rf"[\s\[(]*(?:in\s+|1\s*)?({_ANY_UNIT})\b(?!\s*[\d*/^]).*", re.DOTALL)
"""Unit that an attribute states, with words behind it but without a factor."""
_SENTENCE_OF_MULTIPLE = re.compile(
    rf"{_TIMES}[\s\w:=]{{0,30}}\b(?:in|units?)\b(?:[\s:=]|\bof\b)+(?!1\s)\d[\d.]*\s*({_ANY_UNIT})\b"
)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_OF_EVENTS = re.compile(
    r"(?:(?:pixels?|events?|ev|coord|pos)_)?(.+?)(?:_(?:pixels?|px|coords?|coordinate|pos|position|addr))?"
)
"""Words around a name that do not make it another, as in `pixel_x`."""
_COMMENT = "#%/!"
_OF_TIMES = tuple(f"{time}_{word}" for time in ("time", "t", "timestamp", "ts") for word in ("unit", "units"))
UNIT_NAMES = ("unit", "units", *_OF_TIMES)
OFFSET_NAMES = ("t_offset", "time_offset", "timestamp_offset")
COLUMN_NAMES = ("columns", "column_names", "fields", "field_names", "names", "header")
"""Names under which arrays and HDF5 state the unit of t, what belongs to each t, and a table's columns."""
_LONGEST_NAME = 100
_MOST_NAMES = 16
MOST_COLUMNS = 8
"""Columns of a table of events at most."""


class Named(NamedTuple):
    """Columns as a header names them."""

    roles: dict[str, int]
    """Index of each of t, x, y and p that it names."""
    unit: str | None = None
    """Unit in the name of t."""
    names: Sequence[str] = ()
    """Names of all columns, or of those that hold something else."""


def find_roles(names: Sequence[str]) -> tuple[dict[str, int], str | None]:
    """Which of `names` are t, x, y and p, by index, and the unit in the name of t, as in `t_ns`.

    Raises ValueError where two names are parts of t, and where its unit is a multiple, as in `t (100 ns)`.
    """
    roles: dict[str, int] = {}
    units: dict[str, str | None] = {}
    several: list[str] = []
    bare: list[tuple[int, str, str]] = []
    for index, name in enumerate(names):
        plain, named_unit = _CAMEL.sub("_", name.strip("\"' #%")).lower(), None
        # In a name without bound, the search for a unit would take without bound too.
        if len(plain) <= _LONGEST_NAME and (multiple := _MULTIPLE.fullmatch(plain)):
            plain = multiple[1]
            several += [name.strip()] if plain in _NAMES["t"] else []
        elif len(plain) <= _LONGEST_NAME and (with_unit := _WITH_UNIT.fullmatch(plain)):
            plain, named_unit = with_unit[1], _UNITS[with_unit[2]]
        elif len(plain) > 2 and plain in _UNITS:
            bare.append((index, name.strip(), _UNITS[plain]))
        # What stands in brackets explains a name; before it may stand words, as in `Format is time`.
        plain = (re.split(r"[\[(]", plain)[0].split() or [""])[-1]
        of_events = _OF_EVENTS.fullmatch(plain[:_LONGEST_NAME])
        plain = of_events[1] if of_events else plain
        for role, known in _NAMES.items():
            if plain in known:
                roles.setdefault(role, index)
                if role == "t":
                    units[name.strip()] = named_unit
    # A name that is only a unit is t where nothing else is.
    if "t" not in roles and bare:
        roles["t"] = bare[0][0]
        units = {name: unit for _, name, unit in bare}
    if len(roles) == len(ROLES):
        stated = dict.fromkeys(unit for unit in units.values() if unit)
        if len(units) > 1 and "s" in stated and len(stated) > 1:
            raise ValueError(f"{' and '.join(units)} are parts of one time: store their sum as one t_ns")
        if several:
            raise ValueError(f"'{several[0]}' counts several of a unit: store times in us, as one t_us")
    return roles, next(iter(units.values()), None)


def read_columns(text: str) -> tuple[dict[str, int], str | None]:
    """Roles that `--columns` names, as `find_roles`; raises ValueError where one of the four lacks."""
    roles, unit = find_roles(text.split(","))
    if len(roles) < len(ROLES):
        raise ValueError(f"--columns is '{text}', and it must name t, x, y and p, as in --columns x,y,p,t")
    return roles, unit


def header_of(comments: Sequence[str], width: int, is_said: bool = False) -> Named:
    """Columns as the last of these lines that names `width` of them has them; none where none does.

    One that names all four goes before one that names some in a known way: of that one the rest stays open.
    Raises ValueError for a header of more or fewer columns, whose names would be lost, unless the user has
    said them.
    """
    found, bare = [], None
    for line in comments:
        found += [named_roles(line.lstrip(_COMMENT + " "), width)]
        if line[:1] not in _COMMENT and not found[-1].roles:
            names = _split(line)
            bare = names if len(find_roles(names)[0]) == len(ROLES) else bare
    best = max(
        reversed(found), key=lambda one: len(one.roles) // len(ROLES) + bool(one.roles), default=Named({})
    )
    if bare and not best.roles and not is_said:
        raise ValueError(
            f"its header names {len(bare)} columns ({', '.join(bare)[:200]}), and its lines have {width}: "
            f"write as many names as numbers, and no commas or blanks within these, or say --columns"
        )
    return best


def named_roles(line: str, width: int) -> Named:
    """Names that a header or comment gives `width` columns; nothing unless it is sure."""
    names = _split(line)
    windows = [names[i : i + width] for i in range(len(names) - width + 1)]
    found = [Named(*find_roles(window), window) for window in windows]
    whole = [one for one in found if len(one.roles) == len(ROLES)]
    # Single words with commas between are names even where some are unknown.
    are_words = re.search("[,;\t]", line) and not any(len(name.split()) > 1 for name in names)
    if are_words and len(names) == width and len(found[0].roles) >= len(ROLES) // 2:
        whole = whole or found
    return whole[0] if len(whole) == 1 else Named({})


def _split(line: str) -> list[str]:
    """The names in a header, none in a line that is too long for one."""
    # The search would take without bound too.
    if len(line) > _MOST_NAMES * _LONGEST_NAME:
        return []
    # Commas between brackets part no names, and a unit in brackets belongs to its name.
    line = re.sub(r"\s*([\[(])([^\])]*)", lambda found: found[1] + found[2].replace(",", " "), line)
    for separator in ",;\t":
        if separator in line:
            return [name.strip("\"' ") for name in line.split(separator)]
    return re.findall(r"(?:[^\s\[(]|[\[(][^\])]*[\])]?)+", line)


def stated_unit(line: str) -> str | None:
    """The unit that a comment states in words, as in `timestamps are in ms`; ValueError for a multiple."""
    line = line[: _MOST_NAMES * _LONGEST_NAME].lower()
    if several := _SENTENCE_OF_MULTIPLE.search(line):
        raise ValueError(f"'{several[0].strip()}' counts several of a unit: store times in us")
    found = _SENTENCE.search(line)
    return _UNITS[found[1]] if found else None


def texts_of(value: object) -> list[str]:
    """The texts that an attribute or array is or has; none for anything else."""
    values = value.reshape(-1).tolist() if isinstance(value, np.ndarray) else [value]
    texts = [one.decode(errors="replace") if isinstance(one, bytes) else one for one in values]
    return [str(one) for one in texts if isinstance(one, str)]


def unit_of(stated: Callable[[str], object], is_of_times: bool = False) -> str | None:
    """The unit of t by what is `stated` under each of `UNIT_NAMES`; the very words where these are none.

    Unless it `is_of_times`, a mere `unit` that is none of a time may be of something else, and is left.
    """
    for name in UNIT_NAMES:
        for text in texts_of(stated(name))[:1]:
            if known := _STATED.fullmatch(text.lower()):
                return _UNITS[known[1]]
            if is_of_times or name in _OF_TIMES:
                return text[:_LONGEST_NAME]
    return None
