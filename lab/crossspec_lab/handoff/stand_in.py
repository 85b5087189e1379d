"""Aligned event features that stand in for frames: off unless asked for, and lossy where they do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from crossspec_lab.handoff.network import FOLDER, Handoff, likeness, load_handoff
from crossspec_ros.engine.session import Session
from crossspec_ros.models.pair import ModelPair


class FeatureHandoff:
    """Lets a session have a window's frames, or aligned event features where these stand in.

    With the `mode` "missing" they do where there are no frames. With "predicted" they also do where they are
    expected to be as like the true ones as this scene demands: no frame is looked at. With "probed" they do
    where those of the first frame are as like its own: that frame is read and stays. What is refused is read
    as if there were no hand-off.
    """

    def __init__(self, handoff: Handoff, mode: str) -> None:
        self._handoff, self.mode = handoff, mode

    def reads_ahead(self, frame: int) -> bool:
        """Whether the `frame`-th frame of a window is read as it comes: what is read cannot be saved."""
        return self.mode == "missing" or (self.mode == "probed" and frame == 0)

    @torch.inference_mode()
    def fit(
        self,
        session: Session,
        frames: Sequence[np.ndarray],
        stamps_ns: Sequence[int],
        events: torch.Tensor | None,
    ) -> bool:
        """Whether aligned features stand in; the session then has these, and else the frames.

        Args:
            frames: (H, W, 3) each; there may be none.
            events: (k + patches, draft width) event tokens of the window; None where there are none.
        """
        kept = 0
        features = None
        if events is not None and (not frames or self.mode != "missing"):
            if events.is_cuda:
                # Of the draft's stream.
                torch.cuda.synchronize(events.device)
            events = events.to(self._handoff.write.weight.device)[None]
            features = self._handoff(events)[0]
            if features.is_cuda:
                torch.cuda.synchronize(features.device)
            if frames:
                kept = int(self.mode == "probed")
                if not self._accepts(session, frames[:kept], stamps_ns[:kept], events, features):
                    features = None
        if features is None:
            session.fit(frames, stamps_ns)
            return False
        # No frame's stamp, for the session knows frames by it.
        stand_ins = range(-1, kept - len(features) - 1, -1)
        session.fit([*frames[:kept], *features[kept:]], [*stamps_ns[:kept], *stand_ins])
        return True

    def _accepts(
        self,
        session: Session,
        probe: Sequence[np.ndarray],
        stamps_ns: Sequence[int],
        events: torch.Tensor,
        features: torch.Tensor,
    ) -> bool:
        """Whether the features are like the true ones, by the frame that is `probe`, or without one."""
        if not probe:
            like = self._handoff.predicted(events)
        else:
            session.fit(probe, stamps_ns).result()
            true = session.frames[0]
            if true.is_cuda:
                torch.cuda.synchronize(true.device)
            like = likeness(features[:1], true)
        return bool((like >= self._handoff.threshold(events)).all())


def load_stand_in(models: Path, pair: ModelPair, mode: str) -> FeatureHandoff:
    """The hand-off beside these checkpoints; InputError where it is missing, damaged, or of another pair."""
    return FeatureHandoff(load_handoff(models / FOLDER, pair.target, pair.draft), mode)
