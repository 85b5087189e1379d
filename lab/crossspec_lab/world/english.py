"""Captions of a scene in free English, and the attributes that any text claims.

There are six phrasings of each thing. The other things in the picture decide most of them, as people choose
words. A share is drawn, so that a model that learns these captions is not sure of every word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import yaml

from crossspec_lab.world.phrases import attributes
from crossspec_lab.world.scene import Scene

_DRAWN_SHARE = 0.25
"""Share of the phrasings that are drawn."""

Ways = Sequence[str]

_WAYS: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
"""Phrasings of each thing; a thing with several values has them under each value."""
_ORDERS = tuple(permutations(range(4)))


def caption(scene: Scene, rng: np.random.Generator | None = None) -> str:
    """Return the caption of a window; with `rng` a share of the phrasings is drawn."""
    truth = attributes(scene)
    road, background, light = truth["road"], truth["background"], truth["light"]

    def phrase(ways: Ways, thing: str, *seen: str) -> str:
        return ways[_index(len(ways), rng, thing, *seen)]

    light_words = phrase(_WAYS["light"][light], "light", road, scene.ego)
    road_words = phrase(_WAYS["road"][road], "road", background, light)
    setting = phrase(_WAYS["setting"], "setting", light, scene.ego).format(
        light=light_words,
        Light=_capital(light_words),
        road=road_words,
        Road=_capital(road_words),
        background=phrase(_WAYS["background"][background], "background", road, scene.ego),
    )
    if v := scene.vehicle:
        vehicle = phrase(_WAYS["vehicle"], "vehicle", v.kind, background).format(
            color=v.color,
            kind=v.kind,
            place=phrase(_WAYS["place"][v.place], "place", v.color, background),
            motion=phrase(_WAYS["motion"][v.motion], "motion", v.color, v.place),
        )
    else:
        vehicle = phrase(_WAYS["no vehicle"], "no vehicle", road, background)
    if p := scene.person:
        dress = phrase(_WAYS["dress"], "dress", p.color, road).format(p.color)
        person = phrase(_WAYS["person"][p.action], "person", p.color, background).format(dress)
    else:
        person = phrase(_WAYS["nobody"], "nobody", road, light)
    if s := scene.signal:
        state = phrase(_WAYS["signal"], "signal", light, s.color).format(s.color)
    else:
        state = phrase(_WAYS["state"][scene.ego], "state", background, road)
    sentences = setting, vehicle, person, state
    return " ".join(sentences[i] for i in _ORDERS[_index(len(_ORDERS), rng, "order", truth["person"], light)])


def _index(count: int, rng: np.random.Generator | None, thing: str, *seen: str) -> int:
    """Return the index of a thing's phrasing; the other things that are seen decide it."""
    if rng is not None and rng.random() < _DRAWN_SHARE:
        return int(rng.integers(count))
    return crc32(" ".join((thing, *seen)).encode()) % count


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def _pattern(ways: Ways) -> re.Pattern[str]:
    """Return the pattern of a thing in any of these phrasings, with anything in their gaps."""
    return re.compile("|".join(re.sub(r"\\\{\w*\\\}", ".{1,30}?", re.escape(way)) for way in ways), re.I)


_CLAIMS: dict[str, dict[str, re.Pattern[str]]] = {
    attribute: {value: _pattern(ways) for value, ways in named.items()}
    for attribute, named in (
        ("road", _WAYS["road"]),
        ("background", _WAYS["background"]),
        ("light", _WAYS["light"]),
        ("vehicle place", _WAYS["place"]),
        ("vehicle motion", _WAYS["motion"]),
        ("person", _WAYS["person"] | {"none": _WAYS["nobody"]}),
        ("state", _WAYS["state"] | {"signal": _WAYS["signal"]}),
    )
}
_COLOR = "(red|blue|green|yellow|grey)"
_KIND = re.compile(rf"\b{_COLOR} (car|van)\b|\b(car|van)(?: painted|,) {_COLOR}\b")
_DRESSED = re.compile(_pattern(_WAYS["dress"]).pattern.replace(".{1,30}?", rf"\b{_COLOR}\b"))
_SHOWN = re.compile(_pattern(_WAYS["signal"]).pattern.replace(".{1,30}?", "(red|green)"), re.I)


def claimed(text: str) -> dict[str, str]:
    """Return the attributes that any text claims in these phrasings."""
    found: dict[str, str] = {}
    for attribute, values in _CLAIMS.items():
        for value, pattern in values.items():
            if pattern.search(text):
                found.setdefault(attribute, value)
    if match := _KIND.search(text):
        color, kind, other_kind, other_color = match.groups()
        found |= {"vehicle": kind or other_kind, "vehicle color": color or other_color}
    elif _pattern(_WAYS["no vehicle"]).search(text):
        found["vehicle"] = "none"
    for attribute, shown in (("person color", _DRESSED), ("signal color", _SHOWN)):
        if match := shown.search(text):
            found[attribute] = next(filter(None, match.groups()))
    return found
