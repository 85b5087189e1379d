"""Pixels of each family are bit-equal to those of transformers' processors, recorded by scripts/."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from tiny_targets import noise

from crossspec_ros.models import internvl, smolvlm
from crossspec_ros.models.preprocess import clip_pixels, square_pixels
from crossspec_ros.models.qwen3_vl import read_size, unit_patches

TEST = Path(__file__).resolve().parents[1]
FRAMES = np.load(TEST / "models" / "recorded" / "frames.npz")
SMOLVLM = np.load(TEST / "families" / "recorded" / "smolvlm_pixels.npz")
QWEN3_VL = np.load(TEST / "families" / "recorded" / "qwen3_vl_patches.npz")


@pytest.mark.parametrize(
    ("family", "pixels"),
    [
        ("video_llava", lambda frames: clip_pixels(frames, 224)),
        ("llava_onevision", lambda frames: square_pixels(frames, 64)),
    ],
)
@pytest.mark.parametrize("name", FRAMES)
def test_llava_pixels_equal_recorded(family, pixels, name):
    recorded = np.load(TEST / "models" / "recorded" / f"{family}_pixels.npz")[name]
    made = pixels(np.stack([FRAMES[name], FRAMES[name][::-1]])).numpy()
    assert made.dtype == recorded.dtype == np.float32
    np.testing.assert_array_equal(made[0], recorded)
    assert not np.array_equal(made[1], recorded)


# Digests of the output of `InternVLVideoProcessor` for these frames, with torchvision 0.29.2.
@pytest.mark.parametrize(
    ("height", "width", "side", "digest"),
    [(270, 480, 64, 0xCE7A16D3), (401, 225, 64, 0x77CA10C1), (31, 47, 64, 0xBFDD1327),
     (64, 64, 64, 0x5A93BBAE), (480, 640, 448, 0x4A1E9D14)],
)  # fmt: skip
def test_internvl_pixels_equal_recorded_digest(height, width, side, digest):
    made = square_pixels(noise(2, height, width, seed=2), side, internvl.MEAN, internvl.STD)
    assert crc32(made.numpy().tobytes()) == digest


@pytest.mark.parametrize("name", ["landscape", "portrait", "tiny", "odd", "wide", "square"])
def test_smolvlm_pixels_equal_recorded(name):
    side = int(SMOLVLM[f"{name}_side"])
    made = smolvlm.frame_pixels(SMOLVLM[f"{name}_frame"][None], side)
    assert made.shape == (1, 3, side, side)
    np.testing.assert_array_equal(made[0, :, :: side // 32, :: side // 32], SMOLVLM[f"{name}_pixels"])


@pytest.mark.parametrize("name", ["kept", "shrunk", "portrait", "small"])
def test_qwen3_vl_patches_equal_recorded(name):
    """A frame has at most 4 tokens."""
    frames, levels = QWEN3_VL[f"{name}_frames"], QWEN3_VL[f"{name}_levels"]
    size = read_size(*frames.shape[1:3], 2, 32, 4 * 32 * 32)
    assert [1, size[0] // 16, size[1] // 16] == QWEN3_VL[f"{name}_grid"].tolist()
    patches = unit_patches(frames, size, 2, 16, 2).numpy()
    np.testing.assert_array_equal(patches, (levels.astype(np.float32) - 127.5) / 127.5)
