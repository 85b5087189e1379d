"""Captions of a scene in free English, and the attributes that any text claims.

Each thing can be said in six ways. Which one is said follows mostly from what else is in the picture, as
people choose words; a share is drawn, so that a model that learns these captions is not sure of every word.
"""

from __future__ import annotations

import re
from itertools import permutations
from zlib import crc32

import numpy as np

from crossspec_lab.world.phrases import attributes
from crossspec_lab.world.scene import Scene

_DRAWN_SHARE = 0.25
"""Share of the ways to say a thing that are drawn, whatever the picture shows."""

Ways = tuple[str, str, str, str, str, str]

_ROAD: dict[str, Ways] = {
    "straight": (
        "a straight road",
        "a road that runs straight on",
        "a straight stretch of road",
        "a road without a bend",
        "a straight street",
        "a road leading straight ahead",
    ),
    "left": (
        "a road bending left",
        "a road that curves to the left",
        "a left-hand bend",
        "a road turning left",
        "a curve to the left",
        "a road that swings left",
    ),
    "right": (
        "a road bending right",
        "a road that curves to the right",
        "a right-hand bend",
        "a road turning right",
        "a curve to the right",
        "a road that swings right",
    ),
}
_BACKGROUND: dict[str, Ways] = {
    "trees": (
        "trees on both sides",
        "trees left and right",
        "rows of trees along it",
        "woods to either side",
        "a line of trees on each side",
        "trees all the way along",
    ),
    "buildings": (
        "buildings on both sides",
        "houses left and right",
        "rows of buildings along it",
        "tall buildings to either side",
        "city blocks on each side",
        "house fronts all the way along",
    ),
    "open fields": (
        "open fields on both sides",
        "fields left and right",
        "farmland along it",
        "meadows to either side",
        "open country on each side",
        "wide fields all the way along",
    ),
    "tunnel walls": (
        "tunnel walls on both sides",
        "bare tunnel walls left and right",
        "the walls of a tunnel along it",
        "a concrete tunnel to either side",
        "a tunnel wall on each side",
        "tunnel lining all the way along",
    ),
}
_LIGHT: dict[str, Ways] = {
    "sunny": (
        "in bright sunshine",
        "on a sunny day",
        "under a clear sunny sky",
        "with the sun out",
        "in full sunlight",
        "on a bright sunny day",
    ),
    "cloudy": (
        "under a cloudy sky",
        "on an overcast day",
        "beneath heavy clouds",
        "with clouds overhead",
        "in flat cloudy light",
        "under thick cloud",
    ),
    "dusk": (
        "at dusk",
        "in the evening light",
        "as evening falls",
        "in the twilight",
        "in the last daylight",
        "as daylight fades",
    ),
    "night": (
        "at night",
        "in the dark of night",
        "after dark",
        "in darkness",
        "late at night",
        "under a night sky",
    ),
    "dim": (
        "in dim light",
        "under dim lamps",
        "in the half-light",
        "in poor light",
        "by weak lamps",
        "where little light gets in",
    ),
}
_SETTING: Ways = (
    "{Light}, we see {road} with {background}.",
    "The camera looks down {road}, {background}, {light}.",
    "This is {road} {light}, with {background}.",
    "There is {road} ahead, with {background}, {light}.",
    "{Road} lies before us {light}, with {background}.",
    "We are on {road} with {background} {light}.",
)
_PLACE: dict[str, Ways] = {
    "ahead": (
        "drives in front of us",
        "is travelling ahead of us",
        "goes ahead in our lane",
        "is on the road ahead",
        "leads us down the lane",
        "drives before us",
    ),
    "oncoming": (
        "comes towards us",
        "approaches in the other lane",
        "is in the oncoming lane",
        "meets us in the opposite lane",
        "is on its way towards us",
        "comes the other way",
    ),
    "parked": (
        "is parked at the roadside",
        "stands parked by the kerb",
        "has been left at the edge of the road",
        "waits empty at the kerb",
        "is parked beside the lane",
        "stands at the side of the road",
    ),
}
_MOTION: dict[str, Ways] = {
    "closer": (
        "getting closer",
        "and the gap shrinks",
        "nearer by the moment",
        "drawing nearer",
        "looming larger",
        "and we close in on it",
    ),
    "away": (
        "pulling away",
        "and the gap grows",
        "moving further off",
        "leaving us behind",
        "getting smaller",
        "drawing away",
    ),
    "steady": (
        "keeping its distance",
        "and the gap stays the same",
        "at a constant distance",
        "neither nearer nor further",
        "holding its distance",
        "as far off as before",
    ),
}
_VEHICLE: Ways = (
    "A {color} {kind} {place}, {motion}.",
    "We see a {color} {kind} that {place}, {motion}.",
    "There is a {color} {kind}; it {place}, {motion}.",
    "One {color} {kind} {place}, {motion}.",
    "A {kind} painted {color} {place}, {motion}.",
    "A {kind}, {color} all over, {place}, {motion}.",
)
_NO_VEHICLE: Ways = (
    "No other vehicle is in sight.",
    "The road is empty of traffic.",
    "There is no traffic.",
    "Nothing else is driving here.",
    "We have the road to ourselves.",
    "No vehicle is near.",
)
_DRESS: Ways = (
    "in {}",
    "wearing {}",
    "dressed in {}",
    "in a {} jacket",
    "with a {} top",
    "in {} clothes",
)
_PERSON: dict[str, Ways] = {
    "standing left": (
        "A person {} stands on the left.",
        "Someone {} is standing at the left kerb.",
        "A pedestrian {} waits on the left side.",
        "On the left stands a person {}.",
        "Someone {} looks on from the left.",
        "A pedestrian {} is at the left edge of the road.",
    ),
    "standing right": (
        "A person {} stands on the right.",
        "Someone {} is standing at the right kerb.",
        "A pedestrian {} waits on the right side.",
        "On the right stands a person {}.",
        "Someone {} looks on from the right.",
        "A pedestrian {} is at the right edge of the road.",
    ),
    "crossing": (
        "A person {} is crossing the road.",
        "Someone {} walks across in front of us.",
        "A pedestrian {} crosses the street.",
        "Crossing before us is a person {}.",
        "Someone {} steps across the road.",
        "A pedestrian {} goes across on foot.",
    ),
    "cycling": (
        "A cyclist {} rides on the right.",
        "Someone {} pedals along at the right.",
        "A cyclist {} keeps to the right edge.",
        "On the right rides a cyclist {}.",
        "Someone {} is on a bicycle at the right.",
        "A cyclist {} is riding beside the lane.",
    ),
}
_NOBODY: Ways = (
    "Nobody is on foot.",
    "There are no people about.",
    "No pedestrian is in view.",
    "We see no one walking.",
    "The pavements are empty.",
    "There is no one near the road.",
)
_STATE: dict[str, Ways] = {
    "still": (
        "We are standing still.",
        "We have stopped.",
        "We are not moving.",
        "We wait where we are.",
        "We are at a standstill.",
        "Our own speed is zero.",
    ),
    "slow": (
        "We are moving slowly.",
        "We roll on at low speed.",
        "We go along slowly.",
        "We are driving at a crawl.",
        "Our own speed is low.",
        "We advance at walking pace.",
    ),
    "fast": (
        "We are moving fast.",
        "We are driving at high speed.",
        "We go along quickly.",
        "Our own speed is high.",
        "We are travelling fast.",
        "We rush along.",
    ),
}
_SIGNAL: Ways = (
    "The traffic light is {}.",
    "The signal shows {}.",
    "The traffic light has turned {}.",
    "Traffic lights show {}.",
    "We face a signal that is {}.",
    "The traffic signal stands at {}.",
)
_ORDERS = tuple(permutations(range(4)))


def caption(scene: Scene, rng: np.random.Generator | None = None) -> str:
    """The caption of a window; with `rng` a share of the ways to say things is drawn."""
    told = attributes(scene)
    road, background, light = told["road"], told["background"], told["light"]

    def said(ways: Ways, thing: str, *seen: str) -> str:
        return ways[_index(len(ways), rng, thing, *seen)]

    light_words = said(_LIGHT[light], "light", road, scene.ego)
    road_words = said(_ROAD[road], "road", background, light)
    setting = said(_SETTING, "setting", light, scene.ego).format(
        light=light_words,
        Light=_capital(light_words),
        road=road_words,
        Road=_capital(road_words),
        background=said(_BACKGROUND[background], "background", road, scene.ego),
    )
    if v := scene.vehicle:
        vehicle = said(_VEHICLE, "vehicle", v.kind, background).format(
            color=v.color,
            kind=v.kind,
            place=said(_PLACE[v.place], "place", v.color, background),
            motion=said(_MOTION[v.motion], "motion", v.color, v.place),
        )
    else:
        vehicle = said(_NO_VEHICLE, "no vehicle", road, background)
    if p := scene.person:
        dress = said(_DRESS, "dress", p.color, road).format(p.color)
        person = said(_PERSON[p.action], "person", p.color, background).format(dress)
    else:
        person = said(_NOBODY, "nobody", road, light)
    if s := scene.signal:
        state = said(_SIGNAL, "signal", light, s.color).format(s.color)
    else:
        state = said(_STATE[scene.ego], "state", background, road)
    sentences = setting, vehicle, person, state
    return " ".join(sentences[i] for i in _ORDERS[_index(len(_ORDERS), rng, "order", told["person"], light)])


def _index(count: int, rng: np.random.Generator | None, thing: str, *seen: str) -> int:
    """Index of the way in which a thing is said, given what else is seen."""
    if rng is not None and rng.random() < _DRAWN_SHARE:
        return int(rng.integers(count))
    return crc32(" ".join((thing, *seen)).encode()) % count


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def _pattern(ways: Ways) -> re.Pattern[str]:
    """Pattern of a thing said in any of these ways, whatever stands in their gaps."""
    return re.compile("|".join(re.sub(r"\\\{\w*\\\}", ".{1,30}?", re.escape(way)) for way in ways), re.I)


_CLAIMS: dict[str, dict[str, re.Pattern[str]]] = {
    "road": {value: _pattern(ways) for value, ways in _ROAD.items()},
    "background": {value: _pattern(ways) for value, ways in _BACKGROUND.items()},
    "light": {value: _pattern(ways) for value, ways in _LIGHT.items()},
    "vehicle place": {value: _pattern(ways) for value, ways in _PLACE.items()},
    "vehicle motion": {value: _pattern(ways) for value, ways in _MOTION.items()},
    "person": {value: _pattern(ways) for value, ways in (_PERSON | {"none": _NOBODY}).items()},
    "state": {value: _pattern(ways) for value, ways in (_STATE | {"signal": _SIGNAL}).items()},
}
_COLOR = "(red|blue|green|yellow|grey)"
_KIND = re.compile(rf"\b{_COLOR} (car|van)\b|\b(car|van)(?: painted|,) {_COLOR}\b")
_DRESSED = re.compile(_pattern(_DRESS).pattern.replace(".{1,30}?", rf"\b{_COLOR}\b"))
_SHOWN = re.compile(_pattern(_SIGNAL).pattern.replace(".{1,30}?", "(red|green)"), re.I)


def claimed(text: str) -> dict[str, str]:
    """The attributes that any text claims, by the ways above; what it does not claim is absent."""
    found: dict[str, str] = {}
    for attribute, values in _CLAIMS.items():
        for value, pattern in values.items():
            if pattern.search(text):
                found.setdefault(attribute, value)
    if match := _KIND.search(text):
        color, kind, other_kind, other_color = match.groups()
        found |= {"vehicle": kind or other_kind, "vehicle color": color or other_color}
    elif _pattern(_NO_VEHICLE).search(text):
        found["vehicle"] = "none"
    for attribute, shown in (("person color", _DRESSED), ("signal color", _SHOWN)):
        if match := shown.search(text):
            found[attribute] = next(filter(None, match.groups()))
    return found
