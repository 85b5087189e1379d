"""What the windows of a target share: a stream, what its vision tower made of frames, and buffers."""

from __future__ import annotations

import torch

from crossspec_ros.engine.frame_features import FrameFeatures
from crossspec_ros.engine.runner import Readers
from crossspec_ros.models.loading import ModelPair
from crossspec_ros.models.transfer import Lane

_TEXT_ROOM = 512


class TargetModel:
    """The target of a pair, for one thread, which does all with it inside `with target.lane():`."""

    def __init__(self, pair: ModelPair, is_static: bool | None = None) -> None:
        self.pair = pair
        self.lane = Lane(pair.target.device, first=True)
        self.features = FrameFeatures(pair)
        capacity = pair.target.config.video_seq_length + _TEXT_ROOM
        self.readers = Readers(pair.target.model.language_model, capacity, is_static)

    @torch.inference_mode()
    def warm_up(self, sessions: int) -> None:
        """Take the buffers of so many sessions that live at a time, and capture their graphs."""
        with self.lane():
            self.readers.warm_up(sessions)
