"""Records what transformers' own video processor makes of a few pairs of frames, for
test/families/test_qwen3_vl.py.

    python scripts/record_qwen3_vl.py test/families/recorded/qwen3_vl_patches.npz

`Qwen3VLVideoProcessor` needs torchvision, so this runs in an environment of its own, not in the package's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record_preprocessing import frame
from transformers import Qwen3VLVideoProcessor

MAX_PIXELS = 4 * 32 * 32
SIZES = {"kept": (64, 64), "shrunk": (73, 141), "portrait": (110, 31), "small": (21, 47)}


def main(out: Path) -> None:
    """Record the pixel values of Qwen3-VL."""
    processor = Qwen3VLVideoProcessor(
        size={"shortest_edge": 1, "longest_edge": 2 * MAX_PIXELS},
        cap_pixels_per_frame=False,
        do_sample_frames=False,
    )
    arrays: dict[str, Any] = {}
    for name, size in SIZES.items():
        first = frame(*size)
        arrays[f"{name}_frames"] = pair = np.stack([first, first[::-1]])
        video = torch.from_numpy(pair).permute(0, 3, 1, 2)
        made = processor(videos=[video], return_tensors="np")
        patches = made["pixel_values_videos"]
        # A quarter of the size, and nothing is lost.
        arrays[f"{name}_levels"] = levels = np.rint(patches * 127.5 + 127.5).astype(np.uint8)
        assert np.array_equal((levels.astype(np.float32) - 127.5) / 127.5, patches)
        arrays[f"{name}_grid"] = made["video_grid_thw"][0]
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, **arrays)
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
