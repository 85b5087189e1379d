"""What the windows of a target share: what its vision tower made of frames, and buffers for its sessions."""

from __future__ import annotations

from crossspec_ros.speculation.frame_features import FrameFeatures
from crossspec_ros.vlm.loading import ModelPair
from crossspec_ros.vlm.reader import Readers

_TEXT_ROOM = 512


class TargetModel:
    """The target of a pair, for one thread."""

    def __init__(self, pair: ModelPair, is_static: bool | None = None) -> None:
        self.pair = pair
        self.features = FrameFeatures(pair)
        capacity = pair.target.config.video_seq_length + _TEXT_ROOM
        self.readers = Readers(pair.target.model.language_model, capacity, is_static)
