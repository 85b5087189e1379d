"""Captions of a scene, and the attributes that a caption claims.

Order, length (35-55 tokens) and vocabulary follow the captions of Video-LLaVA-7B on DSEC: an enumeration of
the key elements, then the vehicle's place, then the circumstances.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from crossspec_lab.world.scene import Scene

QUESTION = "What are the key elements in this scene?"

_ROAD = {"straight": "straight road", "left": "road bending left", "right": "road bending right"}
_PLACE = {
    "ahead": ("driving down", "in front of us"),
    "oncoming": ("coming up", "in the oncoming lane"),
    "parked": ("parked along", "by the roadside"),
}
_MOTION = {"closer": "getting closer", "away": "pulling away", "steady": "keeping its distance"}
_PERSON = {
    "standing left": "a person in {} standing on the left",
    "standing right": "a person in {} standing on the right",
    "crossing": "a person in {} crossing the road",
    "cycling": "a cyclist in {} riding on the right",
}
_NOBODY = "nobody on foot"
_EGO = {"still": "we are standing still", "slow": "we are moving slowly", "fast": "we are moving fast"}
_SIGNAL = "the traffic light is"

COLOR_ATTRIBUTES = ("vehicle color", "person color", "light", "signal color")
"""Attributes that only frames show: events carry neither colour nor light level."""
WAYS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("english.yaml").read_text())
"""Phrasings of each thing in free English; a thing with several values has them under each value."""


def caption(scene: Scene) -> str:
    """Return the one true caption of a window."""
    road, vehicle = _ROAD[scene.road], scene.vehicle
    person = _PERSON[scene.person.action].format(scene.person.color) if scene.person else _NOBODY
    light = "dim" if scene.tunnel else scene.light
    state = f"{_SIGNAL} {scene.signal.color}" if scene.signal else _EGO[scene.ego]
    if vehicle:
        verb, place = _PLACE[vehicle.place]
        first = f"a {vehicle.color} {vehicle.kind} {verb} a {road}"
        second = f"The {vehicle.kind} is {place} and {_MOTION[vehicle.motion]}."
    else:
        first = f"an empty {road}"
        second = "The road is empty and no other vehicle is in sight."
    return (
        f"The key elements in this scene include {first}, {person}, and {scene.background} on both sides. "
        f"{second} It is {light} and {state}."
    )


def attributes(scene: Scene) -> dict[str, str]:
    """Return the attributes that a caption of this scene must get right; others do not apply."""
    found = {
        "vehicle": scene.vehicle.kind if scene.vehicle else "none",
        "person": scene.person.action if scene.person else "none",
        "road": scene.road,
        "background": scene.background,
        "light": "dim" if scene.tunnel else scene.light,
        "state": "signal" if scene.signal else scene.ego,
    }
    if scene.vehicle:
        found |= {
            "vehicle color": scene.vehicle.color,
            "vehicle place": scene.vehicle.place,
            "vehicle motion": scene.vehicle.motion,
        }
    if scene.person:
        found["person color"] = scene.person.color
    if scene.signal:
        found["signal color"] = scene.signal.color
    return found


_GAP = re.compile(r"\\\{\w*\\\}")


def _pattern(ways: Iterable[str], gap: str = ".{1,30}?") -> re.Pattern[str]:
    """Return the pattern of a thing in any of these phrasings, with `gap` in their gaps."""
    return re.compile("|".join(_GAP.sub(lambda _: gap, re.escape(way)) for way in ways), re.I)


_FIXED: dict[str, dict[str, str]] = {
    "road": _ROAD,
    "light": {light: f"It is {light} and" for light in WAYS["light"]},
    "vehicle place": {place: verb for place, (verb, _) in _PLACE.items()},
    "person": _PERSON | {"none": _NOBODY},
    "vehicle": {"none": "an empty "},
    "state": _EGO | {"signal": _SIGNAL},
}
"""Phrases of the fixed captions that free English has otherwise."""
_CLAIMS = {
    attribute: {
        value: _pattern([*ways, _FIXED.get(attribute, {}).get(value, ways[0])])
        for value, ways in named.items()
    }
    for attribute, named in {
        "vehicle": {"none": WAYS["no vehicle"]},
        "road": WAYS["road"],
        "background": WAYS["background"],
        "light": WAYS["light"],
        "vehicle place": WAYS["place"],
        "vehicle motion": WAYS["motion"],
        "person": WAYS["person"] | {"none": WAYS["nobody"]},
        "state": WAYS["state"] | {"signal": WAYS["signal"]},
    }.items()
}
_COLOR = r"\b(red|blue|green|yellow|grey)\b"
_VEHICLE = re.compile(rf"{_COLOR} (car|van)\b|\b(car|van)(?: painted|,) {_COLOR}")
_COLORS = {
    "person color": _pattern(WAYS["dress"], _COLOR),
    "signal color": _pattern([*WAYS["signal"], _SIGNAL + " {}"], _COLOR),
}


def claimed(text: str) -> dict[str, str]:
    """Return the attributes that any text claims, in fixed phrases or in free English."""
    found: dict[str, str] = {}
    for attribute, values in _CLAIMS.items():
        for value, pattern in values.items():
            if pattern.search(text):
                found.setdefault(attribute, value)
    if match := _VEHICLE.search(text):
        color, kind, other_kind, other_color = match.groups()
        found |= {"vehicle": kind or other_kind, "vehicle color": color or other_color}
    for attribute, pattern in _COLORS.items():
        if match := pattern.search(text):
            found[attribute] = next(filter(None, match.groups()))
    return found
