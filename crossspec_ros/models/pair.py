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

    There need not be a draft. `translation` turns its output into tokens of the target; token ids below
    `shared_ids` mean the same to both. `known_as` has the names of both by `models.hub.known_as`.
    """

    target: VideoTarget
    draft: EventModel | None
    translation: Translation | None
    shared_ids: int
    known_as: Mapping[str, str] = field(default_factory=dict)
    placement: Placement = field(default_factory=Placement)

    @property
    def frames(self) -> int:
        """Frames of a window."""
        return self.target.spec.frames

    @property
    def frame_size(self) -> int:
        """The shortest edge in pixels of the frames that the target looks at."""
        return self.target.spec.image_size

    @property
    def event_images(self) -> int:
        """Event images of a window; 0 without a draft, and so is `event_image_size`."""
        return self.draft.event_images if self.draft else 0

    @property
    def event_image_size(self) -> int:
        return self.draft.image_size if self.draft else 0
