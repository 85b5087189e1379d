"""Records a few frames, or what transformers' own processors make of them.

    python scripts/record_preprocessing.py frames test/models/recorded/frames.npz
    python scripts/record_preprocessing.py video_llava test/models/recorded/video_llava_pixels.npz

test/families/test_pixels.py reads them. Settings are those of the released checkpoints, but for the size of
LLaVA-OneVision's square. Its processor needs torchvision, and so an environment of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

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


def video_llava(image: np.ndarray) -> Any:
    """LanguageBind/Video-LLaVA-7B-hf: shortest edge 224, bicubic, centre crop, mean and deviation of CLIP."""
    from transformers.models.video_llava.image_processing_video_llava import VideoLlavaImageProcessor

    processor = VideoLlavaImageProcessor()
    return processor.preprocess([image], return_legacy_image_output=False)["pixel_values"][0]


def llava_onevision(image: np.ndarray) -> Any:
    """llava-hf/llava-onevision-qwen2-0.5b-ov-hf: a square, bicubic, mean and deviation of SigLIP."""
    from transformers import LlavaOnevisionVideoProcessor

    processor = LlavaOnevisionVideoProcessor(
        size={"height": 64, "width": 64}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    return processor([image[None]], return_tensors="np")["pixel_values_videos"][0][0]


RECORDED: dict[str, Callable[[np.ndarray], Any]] = {
    "frames": lambda image: image,
    "video_llava": video_llava,
    "llava_onevision": llava_onevision,
}


def main(what: str, out: Path) -> None:
    """Record the pixel values of one family."""
    arrays: dict[str, Any] = {name: RECORDED[what](frame(*size)) for name, size in SIZES.items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, **arrays)
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
