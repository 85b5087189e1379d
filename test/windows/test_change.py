"""The gate: what has changed is let through at once, what has not is held back, and nothing is lost."""

from __future__ import annotations

from sys import getrefcount
from weakref import WeakKeyDictionary

import numpy as np
import pytest

from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.windows.change import ChangeGate
from crossspec_ros.windows.window import EVENTS, FRAMES, Window

GREY, WHITE = np.full((32, 48, 3), 100, np.uint8), np.full((32, 48, 3), 255, np.uint8)


HOLDS = WeakKeyDictionary()
"""Windows captioned last, by gate."""


def spotted(image=GREY, levels=60, at=(8, 8), size=4):
    """Return the image with a spot."""
    y, x = at
    image = image.copy()
    image[y : y + size, x : x + size] -= np.uint8(levels)
    return image


def live(gate, index, frames=(GREY,) * 4, events=(WHITE,) * 2):
    """Images of a window that are let through, by number, and whether it is captioned."""
    opened = []
    for i, frame in enumerate(frames):
        opened += gate.stream(index, FRAMES, frame, i)
    for i, image in enumerate(events, 100):
        opened += gate.stream(index, EVENTS, image, i)
    return [i for _, _, i in opened], closed(gate, index, frames, events)


def closed(gate, index, frames=(GREY,) * 4, events=(WHITE,) * 2, **counts):
    """Close the window, and return whether it is captioned; every window that may be captioned is."""
    window = Window(index, index * 10**9, (index + 1) * 10**9, np.array(events), np.array(frames), **counts)
    is_captioned = gate.judge(window, HOLDS.get(gate)) == "caption"
    if is_captioned:
        HOLDS[gate] = index
    return is_captioned


def changed(max_s=100.0):
    gate = ChangeGate(CaptionerSettings(when="changed", changed_max_s=max_s))
    assert live(gate, 0) == ([0, 1, 2, 3, 100, 101], True)
    return gate


@pytest.mark.parametrize(
    ("frames", "counts"),
    [((GREY,) * 4, {"covered_ms": 471}), ((GREY,) * 4, {"missing": 1}), ((GREY,) * 3, {})],
)
def test_gate_measures_by_complete_windows_only(frames, counts):
    """The first window after a start in mid-second, one that lost an image, one that lacked a frame."""
    gate = ChangeGate(CaptionerSettings(when="changed", changed_max_s=100.0))
    assert closed(gate, 0, frames, **counts)
    # The second window shows the same, but nothing complete to compare it with; the third has that.
    assert live(gate, 1)[1] and live(gate, 2) == ([], False)
    # A camera's usual jitter of a frame is no change.
    assert not closed(gate, 3, (GREY,) * 3)


def test_gate_follows_the_setting_when():
    assert live(ChangeGate(), 0) == live(ChangeGate(), 7) == ([0, 1, 2, 3, 100, 101], True)
    assert live(ChangeGate(CaptionerSettings(when="asked")), 0) == ([], False)


@pytest.mark.parametrize(
    ("frames", "events", "let_through"),
    [
        ((GREY,) * 4, (WHITE,) * 2, []),
        # Noise and a camera that shakes about its place.
        ([np.roll(spotted(levels=10), i % 2, 1) for i in range(4)], (WHITE,) * 2, []),
        ((spotted(),) * 4, (WHITE,) * 2, [0, 1, 2, 3, 100, 101]),
        ((GREY, GREY, *[spotted(levels=90)] * 2), (WHITE,) * 2, [0, 1, 2, 3, 100, 101]),
        # Too dark for the frames, and seen by the events.
        ((GREY,) * 4, (WHITE, spotted(WHITE, 255)), [0, 1, 2, 3, 100, 101]),
    ],
)
def test_gate_opens_at_the_first_changed_image(frames, events, let_through):
    gate = changed()
    assert live(gate, 1, frames, events) == (let_through, bool(let_through))
    # Where it was captioned, it is what later ones are compared with.
    assert live(gate, 2) == (let_through and [0, 1, 2, 3, 100, 101], bool(let_through))


def test_what_leaves_is_a_change_as_what_comes():
    gate = ChangeGate(CaptionerSettings(when="changed"))
    assert live(gate, 0, (spotted(),) * 4)[1]
    assert live(gate, 1)[1]
    assert not live(gate, 2)[1]


def test_gate_adds_up_slow_changes():
    gate = changed()
    passed = [live(gate, i, (GREY + np.uint8(5 * i),) * 4)[1] for i in range(1, 10)]
    assert passed == [False, False, False, True, False, False, False, False, True]


def test_gate_captions_still_windows_again():
    """A still window is captioned after `changed_max_s`, and after a jump back of time."""
    gate = changed(max_s=3.0)
    assert [live(gate, i)[1] for i in (1, 2, 3, 4)] == [False, False, True, False]
    assert live(gate, -5) == ([0, 1, 2, 3, 100, 101], True)


def test_gate_needs_a_valid_last_caption():
    """Without a valid caption of the last window, the next one is captioned."""
    gate = changed()
    HOLDS[gate] = None
    assert live(gate, 1) == ([], True) and live(gate, 2) == ([], False)
    gate.settings = CaptionerSettings(when="changed", changed_contrast=0.01)
    assert live(gate, 3)[1] and not live(gate, 4)[1]


def test_gate_compares_with_a_window_without_images():
    """A window without images is the reference of the next one, even if that has begun."""
    gate = changed()
    gate.stream(2, FRAMES, GREY, 0)
    assert closed(gate, 1, (), ()) and closed(gate, 2) and not closed(gate, 3)


def test_windows_of_before_a_jump_back_are_forgotten():
    gate = changed()
    gate.stream(5, EVENTS, spotted(WHITE, 255), 0)
    assert live(gate, 4, (spotted(),) * 4)[1]
    assert live(gate, 2)[1] and not live(gate, 4)[1]
    assert live(gate, 5) == ([], False)


@pytest.mark.parametrize("frames", [(), (GREY[:16, :16],) * 4])
def test_gate_opens_for_other_image_shapes(frames):
    gate = changed()
    assert live(gate, 1, frames)[1] and live(gate, 2)[1]


def test_gate_judges_unstreamed_windows():
    gate = changed()
    assert not closed(gate, 1) and closed(gate, 2, (spotted(),) * 4)


def test_nothing_is_held_of_windows_that_are_over():
    gate, frame = changed(), np.full((32, 48, 3), 100, np.uint8)
    for index in range(1, 30):
        gate.stream(index, FRAMES, frame, 0)
        if index % 3:
            # The first and every one without event images has changed at its close.
            closed(gate, index, [frame], ())
    for _ in range(4):
        gate.stream(100, FRAMES, frame, 0)
    gate.settings = CaptionerSettings()
    assert getrefcount(frame) < 10
