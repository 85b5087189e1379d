"""Options of captions from the captioner's settings: question, sampling, schema and standing questions."""

from __future__ import annotations

import logging
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.standing import read_standing
from crossspec_ros.engine.json_grammar import read_schema
from crossspec_ros.errors import InputError, first_line
from crossspec_ros.models.hub import target_path
from crossspec_ros.models.placement import is_gguf, is_remote
from crossspec_ros.paths import models_folder
from crossspec_ros.settings import MODES, CaptionerSettings

if TYPE_CHECKING:
    from crossspec_ros.engine.sampling import Sampling

_LOG = logging.getLogger(__name__)

_APPLIED = ("temperature", "top_p", "top_k")
_NOT_APPLIED: dict[str, object] = {
    **dict.fromkeys(("repetition_penalty", "typical_p", "num_beams"), 1),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "no_repeat_ngram_size", "min_p"), 0),
    **dict.fromkeys(("epsilon_cutoff", "eta_cutoff"), 0),
}
"""Values of a generation_config.json that sampling does not apply, each with its neutral value."""


def check_settings(settings: CaptionerSettings) -> None:
    """Raise InputError for settings that are invalid for all models, before the models are loaded."""
    read_standing(settings.questions)
    read_schema(settings.schema)
    sampling = requested_sampling(settings)
    if not settings.compare:
        return
    if is_remote(settings.target):
        raise InputError(
            f"compare needs captions by the target alone, but the server at {settings.target} always drafts: "
            f"set compare to false"
        )
    if settings.mode != MODES[0]:
        raise InputError(
            f"compare needs a drafting decoder, but mode is {settings.mode}: set compare to false, or mode "
            f"to {MODES[0]}"
        )
    if sampling is not None:
        raise InputError(
            "compare expects equal captions, but sampled captions differ in each run: set temperature to 0 "
            "and generation to greedy, or compare to false"
        )


def requested_options(settings: CaptionerSettings, decoder: PrefillHiddenDecoder) -> Options:
    """Return the question and its options. Raises InputError if the target does not support them."""
    decoder.check_question(settings.question)
    grammar = decoder.grammar(read_schema(settings.schema))
    first, later = decoder.standing(read_standing(settings.questions))
    sampling = requested_sampling(settings)
    return Options(settings.question, settings.max_new_tokens, sampling, grammar, first, later)


def requested_sampling(settings: CaptionerSettings) -> Sampling | None:
    """Return the sampling parameters, or None for greedy decoding.

    Raises InputError for invalid or contradictory values.
    """
    is_published = settings.generation == "published"
    if not is_published and not settings.temperature:
        return None
    from crossspec_ros.engine.sampling import Sampling

    if not is_published:
        return Sampling(settings.temperature, settings.top_p, settings.seed)
    if settings.temperature or settings.top_p != 1:
        raise InputError(
            "generation is published, so generation_config.json sets temperature and top_p: leave these "
            "parameters at 0 and 1, or set generation to greedy"
        )
    if is_gguf(settings.target) or is_remote(settings.target):
        where = "is on the server" if is_remote(settings.target) else "is not part of a GGUF"
        raise InputError(
            f"generation is published, but generation_config.json {where}: set generation to greedy, and set "
            f"temperature and top_p to the published values"
        )
    published = published_generation(models_folder(settings.models_folder), settings.target)
    if not published.get("do_sample"):
        return None
    # The defaults of transformers' generate.
    values = {"temperature": 1.0, "top_p": 1.0, "top_k": 50, **published}
    try:
        return Sampling(
            float(values["temperature"]), float(values["top_p"]), settings.seed, int(values["top_k"])
        )
    except (TypeError, ValueError) as error:
        raise InputError(
            f"the target's generation_config.json has invalid values ({first_line(error)}): set generation "
            f"to greedy"
        ) from error


@lru_cache
def published_generation(models: Path, target: str) -> dict[str, Any]:
    """Return the sampling parameters of generation_config.json, and log once which values are ignored."""
    from crossspec_ros.models.config_files import generation_values

    values = generation_values(target_path(models, target))
    applied = {name: values[name] for name in ("do_sample", *_APPLIED) if name in values}
    left = [f"{name} {value}" for name, value in values.items() if value != _NOT_APPLIED.get(name, value)]
    if left:
        _LOG.warning("sampling ignores these values of generation_config.json: %s", ", ".join(left))
    if not applied.get("do_sample"):
        _LOG.warning("generation_config.json does not set do_sample: captions are greedy")
    return applied
