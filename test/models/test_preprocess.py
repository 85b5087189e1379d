"""Our pixels against those of transformers' processor for Video-LLaVA, recorded by
scripts/record_preprocessing.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossspec_ros.models.preprocess import clip_pixels

RECORDED = np.load(Path(__file__).parent / "recorded" / "video_llava_pixels.npz")


@pytest.mark.parametrize("name", ["landscape", "portrait", "tiny", "odd", "exact"])
def test_pixels_are_bit_for_bit_those_of_the_processor(name: str) -> None:
    pixels = clip_pixels(RECORDED[f"{name}_frame"][None], 224)[0].numpy()
    assert pixels.dtype == np.float32
    np.testing.assert_array_equal(pixels, RECORDED[f"{name}_pixels"])


def test_several_frames_at_once() -> None:
    frame = RECORDED["odd_frame"]
    pixels = clip_pixels(np.stack([frame, frame[::-1]]), 224)
    assert pixels.shape == (2, 3, 224, 224) and pixels.is_contiguous()
    np.testing.assert_array_equal(pixels[0].numpy(), RECORDED["odd_pixels"])
    assert not np.array_equal(pixels[1].numpy(), RECORDED["odd_pixels"])
