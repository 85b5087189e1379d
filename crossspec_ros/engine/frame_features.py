"""What the target's vision tower makes of frames, kept for the windows that share them."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

import numpy as np
import torch

from crossspec_ros.models.loading import ModelPair
from crossspec_ros.models.preprocess import clip_pixels
from crossspec_ros.models.transfer import to_device

KEPT_WINDOWS = 2
"""Windows' worth of frames that are remembered: the one in work and one that it overlaps."""


class FrameFeatures:
    """Encodes each frame once; exact, as the tower sees every frame on its own."""

    def __init__(self, pair: ModelPair) -> None:
        self._pair = pair
        self._known: OrderedDict[bytes, torch.Tensor] = OrderedDict()

    def encode(self, frame: np.ndarray) -> torch.Tensor:
        """The (tokens, width) features of an (H, W, 3) uint8 RGB frame in the language model's space."""
        key = digest(frame)
        if key not in self._known:
            words = self._pair.target.get_input_embeddings().weight
            pixels = to_device(clip_pixels(frame[None], self._pair.frame_size), words.device)
            output = self._pair.target.model.get_video_features(pixels[None].to(words.dtype))
            self._known[key] = output.pooler_output.flatten(0, 1)
            if len(self._known) > KEPT_WINDOWS * self._pair.frames:
                self._known.popitem(last=False)
        return self._known[key]


def digest(pixels: np.ndarray) -> bytes:
    """The identity of images, 16 bytes: pixels and size, for stamps repeat when a recording starts anew."""
    state = hashlib.blake2b(repr(pixels.shape).encode(), digest_size=16)
    state.update(np.ascontiguousarray(pixels).data)
    return state.digest()
