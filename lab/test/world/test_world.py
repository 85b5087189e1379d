"""The world is deterministic, its captions are true and of the recorded length, and its events carry no
colour."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from crossspec_lab.world.dvs_sensor import DvsSensor
from crossspec_lab.world.phrases import COLOR_ATTRIBUTES, attributes, caption, claimed
from crossspec_lab.world.render import _PAINT, draw
from crossspec_lab.world.scene import EGO_SPEED, drive
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from crossspec_ros.paths import share_dir, tiny_models

SEEDS = st.integers(0, 2**31)


@given(SEEDS)
@settings(max_examples=300)
def test_fixed_caption_claims_its_scenes_attributes(seed: int) -> None:
    for scene in drive(seed, 4):
        assert claimed(caption(scene)) == attributes(scene)


def test_captions_are_35_to_55_tokens_long() -> None:
    tokenizer = Tokenizer.from_file(str(tiny_models() / "target" / "tokenizer.json"))
    lengths = [
        len(tokenizer.encode(" " + caption(scene), add_special_tokens=False).ids)
        for seed in range(400)
        for scene in drive(seed, 3)
    ]
    assert min(lengths) >= 35 and max(lengths) <= 55


@given(SEEDS)
@settings(max_examples=100)
def test_things_move_continuously_in_front_of_the_camera(seed: int) -> None:
    scenes = drive(seed, 8)
    for before, scene in itertools.pairwise(scenes):
        assert scene.travelled == pytest.approx(before.travelled + EGO_SPEED[before.ego])
        for name in ("vehicle", "person", "signal"):
            thing, last = getattr(scene, name), getattr(before, name)
            if thing is not None:
                assert min(thing.z0, thing.z1) > 4
                if last is not None and last.identity == thing.identity and name != "person":
                    assert thing.z0 == pytest.approx(last.z1)


def test_every_paint_has_the_same_luma() -> None:
    lumas = [np.dot(color, (0.299, 0.587, 0.114)) for color in _PAINT.values()]
    assert max(lumas) - min(lumas) < 2


def test_event_picture_does_not_depend_on_light() -> None:
    scenes = drive(3, 2)
    bright, dark = (
        [replace(s, background="trees", light=light) for s in scenes] for light in ("cloudy", "night")
    )
    assert np.array_equal(draw(bright, 3, 1.4, 80, 60, False), draw(dark, 3, 1.4, 80, 60, False))
    assert not np.array_equal(draw(bright, 3, 1.4, 80, 60, True), draw(dark, 3, 1.4, 80, 60, True))
    assert "light" in COLOR_ATTRIBUTES


def _gray(level: int) -> np.ndarray:
    return np.full((12, 16, 3), level, np.uint8)


def test_changes_make_events_of_their_sign() -> None:
    sensor = DvsSensor(_gray(80), 0, seed=1, noise_hz=0)
    assert len(sensor.step(_gray(80), 5_000)) == 0
    brighter = sensor.step(_gray(160), 10_000)
    assert not np.any(brighter.t % 125)
    assert len(brighter) >= 12 * 16 and brighter.p.all()
    darker = sensor.step(_gray(80), 20_000)
    assert len(darker) >= 12 * 16 and not darker.p.any()
    assert np.all(np.diff(brighter.t) >= 0) and brighter.t[0] >= 5_000 and brighter.t[-1] <= 10_000


def test_the_sample_bag_was_made_by_this_world() -> None:
    truth = json.loads((share_dir() / "rosbags" / "synthetic_drive" / "ground_truth.json").read_text())
    scenes = drive(truth["seed"], len(truth["windows"]))
    assert [window["caption"] for window in truth["windows"]] == [caption(scene) for scene in scenes]
