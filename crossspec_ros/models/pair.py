"""The loaded models of a decoder; importing this file needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crossspec_ros.models.placement import Placement

if TYPE_CHECKING:
    from crossspec_ros.models.base import EventModel, VideoTarget
    from crossspec_ros.models.translation import Translation


@dataclass(frozen=True)
class ModelPair:
    """Both models, or the target only, ready for inference.

    `translation` converts the draft's tokens to target tokens. `model_ids` has the hub id or folder of each
    model, see `models.hub.model_id`.
    """

    target: VideoTarget
    draft: EventModel | None = None
    translation: Translation | None = None
    model_ids: Mapping[str, str] = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)
