"""Our pixels against those of transformers' processors, recorded by scripts/record_preprocessing.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossspec_ros.models.preprocess import clip_pixels, square_pixels

FOLDER = Path(__file__).parent / "recorded"
FRAMES = np.load(FOLDER / "frames.npz")


@pytest.mark.parametrize("name", FRAMES)
def test_pixels_are_bit_for_bit_those_of_the_processor(name: str) -> None:
    recorded = np.load(FOLDER / "video_llava_pixels.npz")[name]
    pixels = clip_pixels(FRAMES[name][None], 224)[0].numpy()
    assert pixels.dtype == recorded.dtype == np.float32
    np.testing.assert_array_equal(pixels, recorded)


def test_several_frames_at_once() -> None:
    frame, recorded = FRAMES["odd"], np.load(FOLDER / "video_llava_pixels.npz")["odd"]
    pixels = clip_pixels(np.stack([frame, frame[::-1]]), 224)
    assert pixels.shape == (2, 3, 224, 224) and pixels.is_contiguous()
    np.testing.assert_array_equal(pixels[0].numpy(), recorded)
    assert not np.array_equal(pixels[1].numpy(), recorded)


@pytest.mark.parametrize("name", FRAMES)
def test_squares_are_bit_for_bit_those_of_the_processor(name: str) -> None:
    frame, recorded = FRAMES[name], np.load(FOLDER / "llava_onevision_pixels.npz")[name]
    pixels = square_pixels(np.stack([frame, frame[::-1]]), 64).numpy()
    assert pixels.dtype == recorded.dtype == np.float32
    np.testing.assert_array_equal(pixels[0], recorded)
    assert not np.array_equal(pixels[1], recorded)


def test_what_is_square_already_is_only_scaled() -> None:
    frame = np.arange(12 * 12 * 3, dtype=np.uint8).reshape(12, 12, 3)
    scaled = (frame.astype(np.float32) - 127.5) / 127.5
    np.testing.assert_array_equal(square_pixels(frame[None], 12)[0].numpy(), scaled.transpose(2, 0, 1))
