"""The world is deterministic, its captions are true and of the recorded length, and its events carry no
colour."""

from __future__ import annotations

import itertools
import json

import cv2
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
def test_a_longer_drive_begins_with_the_shorter_one(seed: int) -> None:
    assert drive(seed, 6)[:4] == drive(seed, 4)


@given(SEEDS)
@settings(max_examples=300)
def test_a_caption_claims_exactly_its_scenes_attributes(seed: int) -> None:
    for scene in drive(seed, 4):
        assert claimed(caption(scene)) == attributes(scene)


@pytest.mark.parametrize(
    ("word", "other"),
    [("straight", "long"), ("bending left", "bending right"), ("sunny", "night"), ("van", "car")],
)
def test_a_caption_with_one_word_changed_claims_something_else(word: str, other: str) -> None:
    text = next(text for seed in range(200) if word in (text := caption(drive(seed, 1)[0])))
    assert claimed(text.replace(word, other)) != claimed(text)


@given(SEEDS, st.integers(0, 300))
def test_a_caption_cut_anywhere_claims_nothing_false_but_the_cut_word(seed: int, length: int) -> None:
    scene = drive(seed, 1)[0]
    told = claimed(caption(scene)[:length])
    assert sum(attributes(scene).get(key) != value for key, value in told.items()) <= 1


def test_an_unfinished_caption_claims_what_it_has() -> None:
    assert claimed("") == {}
    assert claimed("The key elements in this scene include a red car driving")["vehicle color"] == "red"


def test_captions_are_35_to_55_tokens_long() -> None:
    tokenizer = Tokenizer.from_file(str(tiny_models() / "target" / "tokenizer.json"))
    lengths = [
        len(tokenizer.encode(" " + caption(scene), add_special_tokens=False).ids)
        for seed in range(400)
        for scene in drive(seed, 3)
    ]
    assert min(lengths) >= 35 and max(lengths) <= 55


def test_neighbouring_captions_share_words_that_distant_ones_do_not() -> None:
    def overlap(a: str, b: str) -> float:
        first, second = set(a.split()), set(b.split())
        return len(first & second) / len(first | second)

    drives = [[caption(scene) for scene in drive(seed, 2)] for seed in range(200)]
    near = np.mean([overlap(*pair) for pair in drives])
    far = np.mean([overlap(a[0], b[0]) for a, b in itertools.pairwise(drives)])
    assert near > far + 0.1


@given(SEEDS)
@settings(max_examples=100)
def test_things_move_continuously_and_stay_in_front_of_the_camera(seed: int) -> None:
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


def test_what_the_event_camera_sees_does_not_depend_on_the_light() -> None:
    from dataclasses import replace

    scenes = drive(3, 2)
    bright, dark = (
        [replace(s, background="trees", light=light) for s in scenes] for light in ("cloudy", "night")
    )
    assert np.array_equal(draw(bright, 3, 1.4, 80, 60, False), draw(dark, 3, 1.4, 80, 60, False))
    assert not np.array_equal(draw(bright, 3, 1.4, 80, 60, True), draw(dark, 3, 1.4, 80, 60, True))
    assert "light" in COLOR_ATTRIBUTES


def _gray(level: int) -> np.ndarray:
    return np.full((12, 16, 3), level, np.uint8)


def test_a_still_picture_makes_noise_only_and_a_change_makes_events_of_its_sign() -> None:
    sensor = DvsSensor(_gray(80), 0, seed=1, noise_hz=0)
    assert len(sensor.step(_gray(80), 5_000)) == 0
    brighter = sensor.step(_gray(160), 10_000)
    assert not np.any(brighter.t % 125)
    assert len(brighter) >= 12 * 16 and brighter.p.all()
    darker = sensor.step(_gray(80), 20_000)
    assert len(darker) >= 12 * 16 and not darker.p.any()
    assert np.all(np.diff(brighter.t) >= 0) and brighter.t[0] >= 5_000 and brighter.t[-1] <= 10_000


def test_the_number_of_events_follows_the_contrast() -> None:
    rise = np.log(172.0) - np.log(92.0)
    sensor = DvsSensor(_gray(80), 0, seed=1, noise_hz=0, mismatch=0, refractory_us=0)
    assert len(sensor.step(_gray(160), 100_000)) / (12 * 16) == pytest.approx(rise / 0.21, abs=0.6)


def test_a_pixel_rests_for_its_refractory_period() -> None:
    sensor = DvsSensor(_gray(20), 0, seed=1, noise_hz=0, refractory_us=3_000, readout_us=1)
    batch = sensor.step(_gray(250), 10_000)
    pixel = batch.y.astype(int) * 16 + batch.x
    for p in range(12 * 16):
        assert np.all(np.diff(batch.t[pixel == p]) >= 3_000)


def test_background_noise_has_its_rate() -> None:
    sensor = DvsSensor(_gray(80), 0, seed=1, noise_hz=5)
    assert len(sensor.step(_gray(80), 10_000_000)) == pytest.approx(5 * 10 * 12 * 16, rel=0.05)


def test_the_sample_bag_was_made_by_this_world() -> None:
    truth = json.loads((share_dir() / "rosbags" / "synthetic_drive" / "ground_truth.json").read_text())
    scenes = drive(truth["seed"], len(truth["windows"]))
    assert [window["caption"] for window in truth["windows"]] == [caption(scene) for scene in scenes]


def test_light_changes_the_frames_brightness() -> None:
    from dataclasses import replace

    scenes = [replace(s, background="trees") for s in drive(3, 1)]
    day, night = ([replace(s, light=light) for s in scenes] for light in ("sunny", "night"))
    gray = [cv2.cvtColor(draw(s, 3, 0.5, 80, 60, True), cv2.COLOR_RGB2GRAY).mean() for s in (day, night)]
    assert gray[0] > 2 * gray[1]
