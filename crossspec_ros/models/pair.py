"""Both models of a decoder, or the target alone; for who holds them and need not wait for torch."""

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
    """Both models, ready for inference.

    There need not be a draft. `translation` turns its output into tokens of the target. `known_as` has the
    names of both by `models.hub.known_as`.
    """

    target: VideoTarget
    draft: EventModel | None = None
    translation: Translation | None = None
    known_as: Mapping[str, str] = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)
