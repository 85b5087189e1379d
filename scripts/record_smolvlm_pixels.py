"""Records pixels of transformers' own video processor, for test/families/test_family_facts.py.

    python scripts/record_smolvlm_pixels.py test/families/recorded/smolvlm_pixels.npz

`SmolVLMVideoProcessor` needs torchvision 0.27 or later, else it takes another filter. Its settings are those
of SmolVLM2: the longest edge is first four sides of the square, Lanczos, mean and deviation 0.5. The file has
a part of the pixels.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from record_preprocessing import frame
from transformers.models.smolvlm.video_processing_smolvlm import SmolVLMVideoProcessor

KEPT = 32
"""Pixels a side."""
SIZES = {
    "landscape": (90, 160, 512),
    "portrait": (80, 45, 384),
    "tiny": (31, 47, 512),
    "odd": (61, 83, 384),
    "wide": (9, 300, 64),
    "square": (64, 64, 64),
}
"""Height and width of a frame, and the side of its square."""


def main(out: Path) -> None:
    """Record the pixel values of SmolVLM2."""
    arrays: dict[str, np.ndarray] = {}
    for name, (height, width, side) in SIZES.items():
        processor = SmolVLMVideoProcessor(
            size={"longest_edge": 4 * side}, max_image_size={"longest_edge": side}
        )
        arrays[f"{name}_frame"] = image = frame(height, width)
        video = torch.from_numpy(image).permute(2, 0, 1)[None]
        pixels = processor(videos=[video], return_tensors="pt")["pixel_values"][0, 0]
        arrays[f"{name}_side"] = np.array(side)
        arrays[f"{name}_pixels"] = pixels[:, :: side // KEPT, :: side // KEPT].numpy()
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, allow_pickle=False, **arrays)
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
