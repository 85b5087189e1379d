"""Our pixels against those of transformers' processors, recorded by scripts/record_preprocessing.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossspec_ros.models.preprocess import clip_pixels, square_pixels

FOLDER = Path(__file__).parent / "recorded"
FRAMES = np.load(FOLDER / "frames.npz")


@pytest.mark.parametrize("name", FRAMES)
def test_pixels_are_bit_for_bit_those_of_the_processor(name):
    recorded = np.load(FOLDER / "video_llava_pixels.npz")[name]
    frame = FRAMES[name]
    pixels = clip_pixels(np.stack([frame, frame[::-1]]), 224).numpy()
    assert pixels.dtype == recorded.dtype == np.float32
    np.testing.assert_array_equal(pixels[0], recorded)
    assert not np.array_equal(pixels[1], recorded)


@pytest.mark.parametrize("name", FRAMES)
def test_squares_are_bit_for_bit_those_of_the_processor(name):
    frame, recorded = FRAMES[name], np.load(FOLDER / "llava_onevision_pixels.npz")[name]
    pixels = square_pixels(np.stack([frame, frame[::-1]]), 64).numpy()
    assert pixels.dtype == recorded.dtype == np.float32
    np.testing.assert_array_equal(pixels[0], recorded)
    assert not np.array_equal(pixels[1], recorded)
