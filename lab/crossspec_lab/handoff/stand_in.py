"""Aligned event features that stand in for frames."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from crossspec_lab.handoff.network import FOLDER, MIN_COSINE, Handoff, likeness, load_handoff
from crossspec_ros.engine.work import Frames
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.models.pair import ModelPair


class FeatureHandoff:
    """Let aligned event features stand in for a window's frames, see `captioning.event_drafts.StandIn`.

    With the `mode` "missing" features stand in where there are no frames. With "predicted" they also do where
    their expected cosine is high enough, and no frame is encoded. With "probed" they also do where those of
    the first frame are like its own, which stay.
    """

    def __init__(self, handoff: Handoff, target: VideoTarget, mode: str) -> None:
        self._handoff, self._target, self.mode = handoff, target, mode

    def reads_ahead(self, frame: int) -> bool:
        """Return whether the `frame`-th frame of a window is prefilled on arrival."""
        return self.mode == "missing"

    @torch.inference_mode()
    def frames(
        self, frames: Sequence[np.ndarray], stamps_ns: Sequence[int], events: torch.Tensor | None
    ) -> Frames | None:
        """Return features (n, width) in place of the frames, with stamps; None if features may not stand in.

        Args:
            frames: (H, W, 3) each; there may be none.
            stamps_ns: of the frames.
            events: (k + patches, draft width) event tokens of the window; None where there are none.
        """
        if events is None or (frames and self.mode == "missing"):
            return None
        # The event tokens are of the draft's stream, and the engine reads features in its own.
        _synchronize(events)
        events = events.to(self._handoff.device)[None]
        features = list(self._handoff(events)[0])
        _synchronize(features[0])
        if frames:
            if self.mode == "probed":
                true = self._target.encode(frames[0][None])[0]
                _synchronize(true)
                cosine = likeness(features[0], true)
                features[0] = true
            else:
                cosine = self._handoff.expected(events)[0]
            if cosine < MIN_COSINE:
                return None
        # The engine knows frames by their stamps, so that those of features are below 0.
        return features, range(-1, -len(features) - 1, -1)


def _synchronize(tensor: torch.Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


def load_stand_in(models: Path, pair: ModelPair, mode: str) -> FeatureHandoff:
    """The hand-off beside these checkpoints; InputError where it is missing, damaged, or of another pair."""
    handoff = load_handoff(models / FOLDER, pair.target, pair.draft)
    return FeatureHandoff(handoff, pair.target, mode)
