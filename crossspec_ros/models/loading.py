"""The target and the event draft, loaded together: from a folder with `target/` and `draft/`, or each by
name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from tokenizers import Tokenizer

from crossspec_ros.errors import InputError
from crossspec_ros.models.architecture import Architecture
from crossspec_ros.models.base import EventModel, VideoTarget
from crossspec_ros.models.folders import draft_path, target_path
from crossspec_ros.models.placement import NO_DRAFT, Only, Placement
from crossspec_ros.models.registry import draft_architecture, target_architecture
from crossspec_ros.models.translation import Translation

Model = TypeVar("Model")


@dataclass(frozen=True)
class ModelPair:
    """Both models, ready for inference; of one there may be the dimensions only, on torch's meta device.

    There need not be a draft. `translation` turns what it says into the target's tokens; token ids below
    `shared_ids` mean the same to both.
    """

    target: VideoTarget
    draft: EventModel | None
    translation: Translation | None
    shared_ids: int

    @property
    def frames(self) -> int:
        """How many a window has."""
        return self.target.spec.frames

    @property
    def frame_size(self) -> int:
        """The shortest edge in pixels of the frames that the target looks at."""
        return self.target.spec.image_size

    @property
    def event_images(self) -> int:
        """How many a window has; 0 without a draft, and so is `event_image_size`."""
        return self.draft.event_images if self.draft else 0

    @property
    def event_image_size(self) -> int:
        return self.draft.image_size if self.draft else 0


def load_pair(
    models: Path | str,
    threads: int = 1,
    placement: Placement = Placement(),  # noqa: B008
    target: str = "",
    draft: str = "",
    only: Only = "",
) -> ModelPair:
    """Load both models as they are placed, with `threads` threads inside an operation on the CPU.

    Args:
        models: folder with `target/` and `draft/`.
        target: folder, or hub id, that takes the place of `models`' own; likewise `draft`, or `NO_DRAFT`.
        only: whose weights are wanted; of the other model there are the dimensions.

    Raises:
        InputError: a folder, a file in it, or a tensor is missing or damaged; it names the file.
    """
    torch.set_num_threads(threads)
    # All that is quick before the weights, which take their time.
    of_target = target_architecture(target_path(models, target))
    tokenizer = of_target.tokenizer()
    folder = draft_path(models, draft)
    if folder is None:
        if only == "draft":
            raise InputError(f"draft is {NO_DRAFT}, but a draft is what is asked for: name one's folder")
        return ModelPair(_loaded(of_target, tokenizer, placement, True), None, None, 0)
    of_draft = draft_architecture(folder)
    draft_tokenizer = of_draft.tokenizer()
    video = _loaded(of_target, tokenizer, placement, only != "draft")
    events = _loaded(of_draft, draft_tokenizer, placement, only != "target")
    translation = Translation(
        draft_tokenizer, tokenizer, events.eos_ids[0], video.spec.eos_ids[0], video.prompt_ids("")[1]
    )
    return ModelPair(video, events, translation, _shared(tokenizer, draft_tokenizer))


def _loaded(
    architecture: Architecture[Model], tokenizer: Tokenizer, placement: Placement, is_wanted: bool
) -> Model:
    module = architecture.load(placement) if is_wanted else architecture.skeleton()
    return architecture.model(module, tokenizer)


def _shared(a: Tokenizer, b: Tokenizer) -> int:
    size = min(a.get_vocab_size(), b.get_vocab_size())
    return next((i for i in range(size) if a.id_to_token(i) != b.id_to_token(i)), size)
