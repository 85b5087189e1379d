"""Captions of a scene in free English.

There are six phrasings of each thing. The other things in the picture decide most of them, as people choose
words. A share is drawn, so that a model that learns these captions is not sure of every word.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from zlib import crc32

import numpy as np

from crossspec_lab.world.phrases import WAYS, attributes
from crossspec_lab.world.scene import Scene

_DRAWN_SHARE = 0.25
"""Share of the phrasings that are drawn."""
_ORDERS = tuple(permutations(range(4)))


def caption(scene: Scene, rng: np.random.Generator | None = None) -> str:
    """Return the caption of a window; with `rng` a share of the phrasings is drawn."""
    truth = attributes(scene)
    road, background, light = truth["road"], truth["background"], truth["light"]

    def phrase(ways: Sequence[str], thing: str, *seen: str) -> str:
        return ways[_index(len(ways), rng, thing, *seen)]

    light_words = phrase(WAYS["light"][light], "light", road, scene.ego)
    road_words = phrase(WAYS["road"][road], "road", background, light)
    setting = phrase(WAYS["setting"], "setting", light, scene.ego).format(
        light=light_words,
        Light=_capital(light_words),
        road=road_words,
        Road=_capital(road_words),
        background=phrase(WAYS["background"][background], "background", road, scene.ego),
    )
    if v := scene.vehicle:
        vehicle = phrase(WAYS["vehicle"], "vehicle", v.kind, background).format(
            color=v.color,
            kind=v.kind,
            place=phrase(WAYS["place"][v.place], "place", v.color, background),
            motion=phrase(WAYS["motion"][v.motion], "motion", v.color, v.place),
        )
    else:
        vehicle = phrase(WAYS["no vehicle"], "no vehicle", road, background)
    if p := scene.person:
        dress = phrase(WAYS["dress"], "dress", p.color, road).format(p.color)
        person = phrase(WAYS["person"][p.action], "person", p.color, background).format(dress)
    else:
        person = phrase(WAYS["nobody"], "nobody", road, light)
    if s := scene.signal:
        state = phrase(WAYS["signal"], "signal", light, s.color).format(s.color)
    else:
        state = phrase(WAYS["state"][scene.ego], "state", background, road)
    sentences = setting, vehicle, person, state
    return " ".join(sentences[i] for i in _ORDERS[_index(len(_ORDERS), rng, "order", truth["person"], light)])


def _index(count: int, rng: np.random.Generator | None, thing: str, *seen: str) -> int:
    """Return the index of a thing's phrasing; the other things that are seen decide it."""
    if rng is not None and rng.random() < _DRAWN_SHARE:
        return int(rng.integers(count))
    return crc32(" ".join((thing, *seen)).encode()) % count


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]
