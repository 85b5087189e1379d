"""Number and size of the images that a captioner's models expect."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.models.base import EventImageSpec, InputSpec
from crossspec_ros.models.hub import draft_path, is_hub_id, target_path
from crossspec_ros.models.placement import is_remote
from crossspec_ros.models.registry import event_image_spec, target_spec
from crossspec_ros.paths import models_folder
from crossspec_ros.settings import SynchronizerSettings

_LOG = logging.getLogger(__name__)


def with_input_sizes(settings: SynchronizerSettings) -> SynchronizerSettings:
    """Return the settings with the models' input sizes in place of numbers 0 and sizes -1.

    The values come from the models' config.json files, or from the target's server. Weights are not read.
    Without a draft, event images keep the sensor's size. Raises InputError if a model is not found.
    """
    sizes: dict[str, Any] = {}
    folder = models_folder(settings.models_folder)
    for name in (settings.target, settings.draft):
        if is_hub_id(name):
            _LOG.info("reading the config of %s, from the hub if it is not in the cache", name)
    if settings.frames == 0 or settings.frame_size < 0:
        if is_remote(settings.target):
            spec = _remote_spec(settings)
        else:
            _check_folder(folder, settings.target)
            spec = target_spec(target_path(folder, settings.target))
        sizes["frames"] = settings.frames or spec.frames
        sizes["frame_size"] = spec.image_size if settings.frame_size < 0 else settings.frame_size
    if settings.event_images == 0 or settings.event_image_size < 0:
        _check_folder(folder, settings.draft)
        drafting = draft_path(folder, settings.draft)
        spec_of_events = event_image_spec(drafting) if drafting else EventImageSpec()
        if settings.event_images == 0:
            sizes |= {"event_images": spec_of_events.images, "event_image_ms": spec_of_events.dense_ms}
        if settings.event_image_size < 0:
            sizes["event_image_size"] = spec_of_events.size
    return replace(settings, **sizes)


def _remote_spec(settings: SynchronizerSettings) -> InputSpec:
    # A synchronizer with a local target needs neither gRPC nor the decoder.
    from crossspec_ros.captioning.load_decoder import connect_target
    from crossspec_ros.engine.remote import RemoteTarget

    engine = connect_target(settings)
    try:
        return RemoteTarget(settings.target, engine.link.welcome).spec
    finally:
        engine.close()


def _check_folder(folder: Path, name: str) -> None:
    if not name and not folder.is_dir():
        raise InputError(
            f"there are no models in '{folder}': set models.folder to a folder with the checkpoints target "
            f"and draft, or train the tiny pair with crossspec train tiny"
        )
