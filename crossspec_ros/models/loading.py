"""The target and the event draft, loaded together: from a folder with `target/` and `draft/`, or each by
name."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from tokenizers import Tokenizer

from crossspec_ros.models.base import Architecture, EventModel, VideoTarget
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

    Args:
        models: folder with `target/` and `draft/`.
        target: folder, or hub id, that takes the place of `models`' own; likewise `draft`, or `NO_DRAFT`.

    Raises:
        InputError: a folder, a file in it, or a tensor is missing or damaged, and it names the file; or
            transformers is of another version than is needed.
    """
    # All that is quick before the weights, which take their time.
    target_folder = target_path(models, target)
    of_target = target_architecture(target_folder)
    tokenizer = of_target.tokenizer()
    folder = draft_path(models, draft)
    if folder is None:
        names = {"target": known_as(target_folder)}
        video = _loaded(of_target, tokenizer, placement, threads)
        return ModelPair(video, None, None, 0, names, placement)
    of_draft = draft_architecture(folder)
    draft_tokenizer = of_draft.tokenizer()
    video = _loaded(of_target, tokenizer, placement, threads)
    events = _loaded(of_draft, draft_tokenizer, placement.of_draft, threads)
    names = {"target": known_as(target_folder), "draft": known_as(folder)}
    size = min(tokenizer.get_vocab_size(), draft_tokenizer.get_vocab_size())
    differing = (i for i in range(size) if tokenizer.id_to_token(i) != draft_tokenizer.id_to_token(i))
    return ModelPair(video, events, _translation(events, video), next(differing, size), names, placement)


def load_draft(models: Path | str, threads: int, placement: Placement, draft: str) -> EventModel:
    """Load the event draft alone; see `load_pair`."""
    folder = draft_path(models, draft)
    assert folder is not None, "there is to be a draft"
    architecture = draft_architecture(folder)
    return _loaded(architecture, architecture.tokenizer(), placement, threads)


def _translation(draft: EventModel, target: VideoTarget) -> Translation:
    return Translation(
        draft.tokenizer,
        target.tokenizer,
        draft.eos_ids[0],
        target.spec.eos_ids[0],
        target.prompt_ids("")[1],
    )


def _loaded(
    architecture: Architecture[Model],
    tokenizer: Tokenizer,
    placement: Placement,
    threads: int,
) -> Model:
    if not isinstance(architecture, GgufArchitecture):
        import torch

        torch.set_num_threads(threads)
    # Of others hidden states are those of other layers, and captions differ.
    check_version("transformers")
    return architecture.model(architecture.load(placement), tokenizer)
