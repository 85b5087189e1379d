"""Models of the captioner's parameters: their folder, their placement, and the target's sampling."""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.captioning.target_server import is_remote
from crossspec_ros.errors import InputError, first_line
from crossspec_ros.models.hub import target_path
from crossspec_ros.models.placement import Placement, available, is_gguf
from crossspec_ros.paths import found, tiny_models
from crossspec_ros.settings import NO_DRAFT, CaptionerSettings

if TYPE_CHECKING:
    from crossspec_ros.engine.sampling import Sampling

_LOG = logging.getLogger(__name__)

_APPLIED = ("temperature", "top_p", "top_k")
_LEFT_OUT: dict[str, object] = {
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "no_repeat_ngram_size": 0,
    "min_p": 0,
    "typical_p": 1,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "num_beams": 1,
}
"""Values of a generation_config.json that are not applied, with those that change nothing."""


def models_folder(settings: CaptionerSettings) -> Path:
    """The folder of the captioner's parameters, or that of the tiny pair."""
    return found(settings.models_folder) if settings.models_folder else tiny_models()


def asked_placement(settings: CaptionerSettings) -> Placement:
    """The placement that the captioner's parameters ask for; InputError where this machine has none such."""
    # One for a draft that there is not would never be found taken.
    draft_device = "" if settings.draft == NO_DRAFT else settings.models_draft_device
    return available(
        settings.models_dtype,
        settings.models_device,
        draft_device,
        settings.models_engine,
        settings.target,
    )


def asked_sampling(settings: CaptionerSettings) -> Sampling | None:
    """Sampling that the captioner's parameters ask for; None always takes the likeliest token.

    Raises InputError for values that sampling does not take, or that contradict each other.
    """
    is_published = settings.generation == "published"
    if not is_published and not settings.temperature:
        return None
    from crossspec_ros.engine.sampling import Sampling

    if not is_published:
        return Sampling(settings.temperature, settings.top_p, settings.seed)
    if settings.temperature or settings.top_p != 1:
        raise InputError(
            "generation is published, so temperature and top_p are the target's own: leave yours at 0 and 1, "
            "or set generation to greedy"
        )
    if is_gguf(settings.target):
        raise InputError(
            "generation is published, but a GGUF has no generation_config.json: set generation to greedy, "
            "and temperature and top_p to what its publisher says"
        )
    if is_remote(settings.target):
        raise InputError(
            "generation is published, but the target's files are on its server: set generation to greedy, "
            "and temperature and top_p to what its publisher says"
        )
    published = published_generation(models_folder(settings), settings.target)
    if not published.get("do_sample"):
        return None
    # What transformers' generate takes for what nobody says.
    found = {"temperature": 1.0, "top_p": 1.0, "top_k": 50, **published}
    try:
        return Sampling(
            float(found["temperature"]), float(found["top_p"]), settings.seed, int(found["top_k"])
        )
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the target's generation_config.json cannot be followed ({first_line(error)}): set generation "
            f"to greedy"
        ) from error


@lru_cache
def published_generation(models: Path, target: str) -> dict[str, Any]:
    """Sampling by the target's generation_config.json; what is left out of it is logged, once."""
    from crossspec_ros.models.config_files import generation_values

    values = generation_values(target_path(models, target))
    applied = {name: values[name] for name in ("do_sample", *_APPLIED) if name in values}
    left = [f"{name} {value}" for name, value in values.items() if value != _LEFT_OUT.get(name, value)]
    if left:
        _LOG.warning("sampled without what the target's generation_config.json says of %s", ", ".join(left))
    if not applied.get("do_sample"):
        _LOG.warning("the target's publisher says nothing of sampling: its likeliest tokens are taken")
    return applied
