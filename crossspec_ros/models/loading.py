"""Load the target and the event draft, from a folder with `target/` and `draft/` or each by name."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from crossspec_ros.models.base import Architecture, EventModel
from crossspec_ros.models.gguf import GgufArchitecture
from crossspec_ros.models.hub import draft_path, known_as, target_path
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import draft_architecture, target_architecture
from crossspec_ros.models.translation import Translation
from crossspec_ros.versions import check_version

Model = TypeVar("Model")


def load_pair(
    models: Path | str,
    threads: int = 1,
    placement: Placement = Placement(),  # noqa: B008
    target: str = "",
    draft: str = "",
) -> ModelPair:
    """Load both models as they are placed, with `threads` threads inside an operation on the CPU.

    A `target` or `draft` by folder or hub id takes the place of the one in the folder `models`; `NO_DRAFT`
    leaves the draft out.

    Raises InputError that names a missing or damaged folder, file or tensor, and for another version of
    transformers than is needed.
    """
    target_folder = target_path(models, target)
    of_target = target_architecture(target_folder)
    names = {"target": known_as(target_folder)}
    of_draft = None
    if draft_folder := draft_path(models, draft):
        # Its config is checked before the target's weights are loaded, which takes long.
        of_draft = draft_architecture(draft_folder)
        names["draft"] = known_as(draft_folder)
    video = _loaded(of_target, placement, threads)
    if of_draft is None:
        return ModelPair(video, None, None, 0, names, placement)
    events = _loaded(of_draft, placement.of_draft, threads)
    own, other = video.tokenizer, events.tokenizer
    size = min(own.get_vocab_size(), other.get_vocab_size())
    shared = next((i for i in range(size) if own.id_to_token(i) != other.id_to_token(i)), size)
    ends = events.eos_ids[0], video.spec.eos_ids[0]
    translation = Translation(other, own, *ends, video.prompt_ids("")[1])
    return ModelPair(video, events, translation, shared, names, placement)


def load_draft(models: Path | str, threads: int, placement: Placement, draft: str) -> EventModel:
    """Load the event draft alone; see `load_pair`."""
    folder = draft_path(models, draft)
    assert folder is not None, "there is to be a draft"
    return _loaded(draft_architecture(folder), placement, threads)


def _loaded(architecture: Architecture[Model], placement: Placement, threads: int) -> Model:
    if not isinstance(architecture, GgufArchitecture):
        import torch

        torch.set_num_threads(threads)
    # Other versions may give hidden states of other layers, and other captions.
    check_version("transformers")
    tokenizer = architecture.tokenizer()
    return architecture.model(architecture.load(placement), tokenizer)
