from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crossspec_ros.windows.quality import flags, trustworthy
from crossspec_ros.windows.window import Window

RNG = np.random.default_rng(0)
SEEN = RNG.integers(40, 200, (8, 32, 32, 3), np.uint8)


def event_images(share):
    images = np.full((5, 40, 40, 3), 255, np.uint8)
    reached = RNG.random((5, 40, 40)) < share
    images[reached] = np.where(RNG.random((reached.sum(), 1)) < 0.5, (255, 0, 0), (0, 0, 255))
    return images


def window(frames=SEEN, share=0.1):
    images = event_images(share) if share is not None else SEEN[:0]
    return Window(0, 0, 10**9, images, frames)


def noisy(level, spread=4):
    return np.clip(RNG.normal(level, spread, SEEN.shape), 0, 255).astype(np.uint8)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (window(), ()),
        (window(SEEN[:0]), ("rgb_missing",)),
        (window(np.repeat(SEEN[:1], 8, 0)), ("rgb_frozen",)),
        # A standing robot in a simulator.
        (window(np.repeat(SEEN[:1], 8, 0), share=0.0005), ("events_silent",)),
        (window(SEEN[:1]), ()),
        (replace(window(), covered_ms=890), ("partial",)),
        (replace(window(SEEN[:0]), covered_ms=260), ("rgb_missing", "partial")),
        (replace(window(), covered_ms=900), ()),
        (window(noisy(3)), ("rgb_dark",)),
        (window(noisy(252, 1)), ("rgb_saturated",)),
        # At night there are lights, and a bright sky leaves the ground.
        (window(np.where(RNG.random(SEEN.shape) < 0.03, 250, noisy(3))), ()),
        (window(np.where(RNG.random(SEEN.shape) < 0.03, 60, noisy(252, 1))), ()),
        (window(share=None), ("events_missing",)),
        (window(share=0.0), ("events_silent",)),
        (window(share=0.97), ("events_saturated",)),
        (window(SEEN[:0], share=None), ("events_missing", "rgb_missing")),
    ],
)
def test_each_fault_has_its_name(seen, expected):
    assert flags(seen) == expected


@pytest.mark.parametrize(
    ("seen", "left"),
    [
        (window(), (8, 5)),
        (window(share=0.0), (8, 5)),
        (window(noisy(3)), (0, 5)),
        (window(np.repeat(SEEN[:1], 8, 0)), (0, 5)),
        (window(noisy(3), share=0.0), (0, 0)),
        (window(SEEN[:0], share=0.97), (0, 0)),
    ],
)
def test_a_caption_rests_on_nothing_that_shows_nothing(seen, left):
    trusted = trustworthy(seen, flags(seen))
    assert (len(trusted.frames), len(trusted.event_images)) == left
