"""Load the target and the event model, from a folder with `target/` and `draft/` or each by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.models.footprint import estimate, memory
from crossspec_ros.models.gguf import GgufArchitecture
from crossspec_ros.models.gguf_file import check_llama
from crossspec_ros.models.hub import draft_path, model_id, target_path
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import GGUF, Placement
from crossspec_ros.models.registry import TargetArchitecture, draft_architecture, target_architecture
from crossspec_ros.models.translation import Translation
from crossspec_ros.settings import LLAMA_CPP
from crossspec_ros.versions import check_version

if TYPE_CHECKING:
    from crossspec_ros.models.eventgpt import EventGPT, EventGPTArchitecture


def load_pair(
    models: Path | str,
    threads: int = 1,
    placement: Placement = Placement(),  # noqa: B008
    target: str = "",
    draft: str = "",
) -> ModelPair:
    """Load both models.

    Args:
        models: folder with `target/` and `draft/`.
        threads: threads of an operation on the CPU.
        placement: devices, dtypes and engine.
        target: folder or hub id, in place of `models`/target.
        draft: folder or hub id, in place of `models`/draft; `NO_DRAFT` loads no draft.

    Raises InputError for a missing or damaged file, and for an unsupported version of transformers. Raises
    MemoryError if the models do not fit the memory, because the kernel would kill the process.
    """
    of_target, of_draft = architectures(models, target, draft)
    if placement.engine == LLAMA_CPP and placement.dtype != GGUF:
        check_llama(of_target.text)
    needed, (free, _) = estimate(placement, of_target, of_draft).by_device().get("cpu", 0), memory("cpu")
    if needed > free:
        raise MemoryError(f"the models need {needed / 1e9:.1f} GB on the CPU, {free / 1e9:.1f} GB are free")
    names = {"target": model_id(of_target.folder)}
    video = _loaded(of_target, placement, threads)
    if of_draft is None:
        return ModelPair(video, None, None, names, placement)
    names["draft"] = model_id(of_draft.folder)
    events = _loaded(of_draft, placement.of_draft, threads)
    ends = events.eos_ids[0], video.spec.eos_ids[0]
    translation = Translation(events.tokenizer, video.tokenizer, *ends, video.prompt_ids("")[1])
    return ModelPair(video, events, translation, names, placement)


def architectures(
    models: Path | str, target: str, draft: str
) -> tuple[TargetArchitecture, EventGPTArchitecture | None]:
    """Return both models without weights; fetch the configs of hub ids. See `load_pair`."""
    of_target = target_architecture(target_path(models, target))
    folder = draft_path(models, draft)
    return of_target, draft_architecture(folder) if folder else None


def load_draft(models: Path | str, threads: int, placement: Placement, draft: str) -> EventGPT:
    """Load only the event model; see `load_pair`."""
    folder = draft_path(models, draft)
    assert folder is not None, "there must be a draft"
    return _loaded(draft_architecture(folder), placement.of_draft, threads)


def _loaded(architecture: Any, placement: Placement, threads: int) -> Any:
    if not isinstance(architecture, GgufArchitecture):
        import torch

        torch.set_num_threads(threads)
    # With other versions hidden states and captions may differ.
    check_version("transformers")
    tokenizer = architecture.tokenizer()
    return architecture.model(architecture.load(placement), tokenizer)
