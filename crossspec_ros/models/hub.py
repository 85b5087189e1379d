"""A target by its hub id: the copy in the hub's cache, fetched where it is not there yet."""

from __future__ import annotations

import re
from pathlib import Path

from crossspec_ros.errors import InputError
from crossspec_ros.models.registry import target_spec

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


def target_folder(name: str, with_weights: bool = True) -> Path:
    """The folder of this name, or the copy in the hub's cache of the model of this id, fetched where it is
    not there yet; without its weights only what `target_spec` reads.

    Raises InputError where there is neither, and before the weights of another model are fetched.
    """
    folder = Path(name).expanduser()
    if folder.is_dir() or not _HUB_ID.fullmatch(name):
        return folder
    folder = _fetched(name, ["config.json", "generation_config.json"])
    target_spec(folder)
    if not with_weights:
        return folder
    folder = _fetched(name, ["*.json", "tokenizer.model", "*.safetensors"])
    if not any(folder.glob("*.safetensors")):
        folder = _fetched(name, ["pytorch_model*.bin"])
    return folder


def _fetched(name: str, files: list[str]) -> Path:
    # Takes long to import, and only those need it who name no folder.
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=files))
    # Errors of the network and of the hub have no common kind.
    except Exception as error:
        raise InputError(
            f"'{name}' is no folder, and as a hub id it could not be fetched ({type(error).__name__}): name "
            f"the folder of a copy, or check the name and the network"
        ) from error
