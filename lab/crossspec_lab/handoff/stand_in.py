"""Aligned event features that stand in for frames."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from crossspec_lab.handoff.network import FOLDER, MIN_COSINE, Handoff, likeness, load_handoff
from crossspec_ros.engine.session import Session
from crossspec_ros.models.pair import ModelPair


class FeatureHandoff:
    """Give a session a window's frames, or aligned event features in their place.

    With the `mode` "missing" features stand in where there are no frames. With "predicted" they also do where
    their expected cosine is high enough, and no frame is encoded. With "probed" they also do where those of
    the first frame are like its own; that frame is encoded and stays.
    """

    def __init__(self, handoff: Handoff, mode: str) -> None:
        self._handoff, self.mode = handoff, mode

    def reads_ahead(self, frame: int) -> bool:
        """Whether the `frame`-th frame of a window is prefilled on arrival."""
        return self.mode == "missing" or (self.mode == "probed" and frame == 0)

    @torch.inference_mode()
    def fit(
        self,
        session: Session,
        frames: Sequence[np.ndarray],
        stamps_ns: Sequence[int],
        events: torch.Tensor | None,
    ) -> bool:
        """Give the session aligned features, or else the frames; return whether features stand in.

        Args:
            frames: (H, W, 3) each; there may be none.
            events: (k + patches, draft width) event tokens of the window; None where there are none.
        """
        kept = int(self.mode == "probed" and len(frames) > 0)
        if events is None or (frames and self.mode == "missing"):
            session.fit(frames, stamps_ns)
            return False
        # The event tokens are of the draft's stream, and the session reads features in its own.
        _synchronize(events)
        events = events.to(self._handoff.device)[None]
        features = self._handoff(events)[0]
        _synchronize(features)
        if frames:
            if kept:
                session.fit(frames[:1], stamps_ns[:1]).result()
                true = session.frames[0]
                _synchronize(true)
                cosine = likeness(features[0], true)
            else:
                cosine = self._handoff.expected(events)[0]
            if cosine < MIN_COSINE:
                session.fit(frames, stamps_ns)
                return False
        # The session knows frames by their stamps, so that those of features are below 0.
        stand_ins = range(-1, kept - len(features) - 1, -1)
        session.fit([*frames[:kept], *features[kept:]], [*stamps_ns[:kept], *stand_ins])
        return True


def _synchronize(tensor: torch.Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


def load_stand_in(models: Path, pair: ModelPair, mode: str) -> FeatureHandoff:
    """The hand-off beside these checkpoints; InputError where it is missing, damaged, or of another pair."""
    return FeatureHandoff(load_handoff(models / FOLDER, pair.target, pair.draft), mode)
