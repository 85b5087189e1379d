"""The world is continuous, and its events carry no colour."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from crossspec_lab.world.dvs_sensor import DvsSensor
from crossspec_lab.world.render import _PAINT, draw
from crossspec_lab.world.scene import EGO_SPEED, drive
from hypothesis import given, settings
from hypothesis import strategies as st


@given(st.integers(0, 2**31))
@settings(max_examples=100)
def test_things_move_continuously_in_front_of_the_camera(seed: int) -> None:
    for before, scene in itertools.pairwise(drive(seed, 8)):
        assert scene.travelled == pytest.approx(before.travelled + EGO_SPEED[before.ego])
        for name in ("vehicle", "person", "signal"):
            thing, last = getattr(scene, name), getattr(before, name)
            if thing is not None:
                assert min(thing.z0, thing.z1) > 4
                if last is not None and last.identity == thing.identity and name != "person":
                    assert thing.z0 == pytest.approx(last.z1)


def test_event_picture_shows_neither_paint_nor_light() -> None:
    lumas = [np.dot(color, (0.299, 0.587, 0.114)) for color in _PAINT.values()]
    assert max(lumas) - min(lumas) < 2
    bright, dark = (
        [replace(scene, background="trees", light=light) for scene in drive(3, 2)]
        for light in ("cloudy", "night")
    )
    assert np.array_equal(draw(bright, 3, 1.4, 80, 60, False), draw(dark, 3, 1.4, 80, 60, False))
    assert not np.array_equal(draw(bright, 3, 1.4, 80, 60, True), draw(dark, 3, 1.4, 80, 60, True))


def test_changes_make_events_of_their_sign() -> None:
    dim, light = (np.full((12, 16, 3), level, np.uint8) for level in (80, 160))
    sensor = DvsSensor(dim, 0, seed=1, noise_hz=0)
    assert len(sensor.step(dim, 5_000)) == 0
    brighter, darker = sensor.step(light, 10_000), sensor.step(dim, 20_000)
    assert not np.any(brighter.t % 125) and brighter.p.all() and not darker.p.any()
    assert min(len(brighter), len(darker)) >= 12 * 16
    assert np.all(np.diff(brighter.t) >= 0) and brighter.t[0] >= 5_000 and brighter.t[-1] <= 10_000
