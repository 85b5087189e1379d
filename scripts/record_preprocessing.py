"""Records what transformers' own image processor makes of a few frames, for test/models/test_preprocess.py.

    python scripts/record_preprocessing.py test/models/recorded/video_llava_pixels.npz

`VideoLlavaImageProcessor` works on PIL images and needs no torchvision; its settings are those of
LanguageBind/Video-LLaVA-7B-hf: shortest edge 224, bicubic, centre crop, mean and deviation of CLIP.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from transformers.models.video_llava.image_processing_video_llava import VideoLlavaImageProcessor

SIZES = {
    "landscape": (270, 480),
    "portrait": (400, 225),
    "tiny": (31, 47),
    "odd": (301, 333),
    "exact": (224, 298),
}


def frame(height: int, width: int) -> np.ndarray:
    """(height, width, 3) uint8: two ramps, and edges so sharp that bicubic overshoots them."""
    y, x = np.mgrid[:height, :width]
    channels = x * 255 // (width - 1), y * 255 // (height - 1), (x // 19 + y // 13) % 2 * 255
    return np.stack(channels, -1).astype(np.uint8)


def main(out: Path) -> None:
    processor = VideoLlavaImageProcessor()
    arrays: dict[str, Any] = {}
    for name, size in SIZES.items():
        arrays[f"{name}_frame"] = image = frame(*size)
        pixels = processor.preprocess([image], return_legacy_image_output=False)["pixel_values"][0]
        arrays[f"{name}_pixels"] = np.asarray(pixels, np.float32)
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, **arrays)
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
