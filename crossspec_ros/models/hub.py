"""Folders of models: local ones, and cached copies from the Hugging Face hub. Needs no torch."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.models.config_files import read_json
from crossspec_ros.models.placement import is_gguf
from crossspec_ros.paths import found
from crossspec_ros.settings import NO_DRAFT

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(@\w[\w.-]*(/\w[\w.-]*)*)?")
"""ORG/NAME, or ORG/NAME@REVISION with a commit, a tag or a branch."""
_SNAPSHOT = re.compile(r"/models--([^/]+)/snapshots/([^/]+)$")
"""End of a model's path in the hub's cache."""
_ANSWER_S = 10.0
_FILES = ["*.json", "tokenizer.model", "merges.txt"]
_TENSORS, _OLD_TENSORS = ["*.safetensors"], ["pytorch_model*.bin"]


@dataclass(frozen=True)
class Offer:
    """A model on the hub: bytes of all files and of the missing files, licence, commit."""

    download: int
    missing: int
    licence: str
    revision: str


def target_path(models: Path | str, target: str) -> Path:
    """Return the folder for the parameters models.folder and target.

    Fetches the configs and the tokenizer of a hub id, without weights. Raises InputError if that fails.
    """
    return _folder(target) if target else found(models) / "target"


def draft_path(models: Path | str, draft: str) -> Path | None:
    """Return the folder for the parameters models.folder and draft, see `target_path`; None for `NO_DRAFT`.

    Raises InputError if there is no draft.
    """
    if draft == NO_DRAFT:
        return None
    if draft:
        return _folder(draft)
    path = found(models) / "draft"
    if not path.is_dir():
        raise InputError(
            f"there is no folder '{path}': set draft to the folder or hub id of an event model, or to "
            f"{NO_DRAFT}"
        )
    return path


def fetch_weights(folder: Path) -> None:
    """Fetch missing weights of a cached hub model, at the commit of its configs.

    Needs no network if all files of the weights exist.
    """
    if _SNAPSHOT.search(str(folder)) and not all(map(_has_weights, folder.rglob("config.json"))):
        from huggingface_hub import constants

        # Copies outside the cache are not changed.
        if not folder.is_relative_to(constants.HF_HUB_CACHE):
            return
        if not any(_fetched(model_id(folder), _TENSORS).glob("*.safetensors")):
            _fetched(model_id(folder), _OLD_TENSORS)


def weight_files(folder: Path) -> list[Path]:
    """Return the files of the weights, preferably safetensors; empty if there are none."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        single, index = folder / name, folder / f"{name}.index.json"
        if single.is_file():
            return [single]
        if index.is_file():
            shards = read_json(index, ["weight_map"])["weight_map"].values()
            return [folder / shard for shard in sorted(set(shards))]
    return []


def offer(name: str) -> Offer | None:
    """Return the hub's data about a model; None if the hub does not answer."""
    # Imported here, because it takes long and only hub ids need it.
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.utils import filter_repo_objects

    model, _, revision = name.partition("@")
    try:
        info = HfApi().model_info(model, revision=revision or None, files_metadata=True, timeout=_ANSWER_S)
    # Errors of the network and of the hub have no common class.
    except Exception:
        return None
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    wanted = [*filter_repo_objects(sizes, allow_patterns=_FILES + _TENSORS)]
    if not any(file.endswith(".safetensors") for file in wanted):
        wanted += filter_repo_objects(sizes, allow_patterns=_OLD_TENSORS)
    cached = {file: try_to_load_from_cache(model, file, revision=info.sha) for file in wanted}
    missing = sum(sizes[file] for file, path in cached.items() if not isinstance(path, str))
    card: Any = info.card_data or {}
    licence = card.get("license_name") or card.get("license") or ""
    return Offer(sum(sizes[file] for file in wanted), missing, str(licence), info.sha or "")


def model_id(folder: Path) -> str:
    """Return a model's hub id with its commit, or its folder if it is not from the hub."""
    found = _SNAPSHOT.search(str(folder))
    return f"{found[1].replace('--', '/')}@{found[2]}" if found else str(folder)


def is_hub_id(name: str) -> bool:
    """Return whether this is a hub id and not a folder or a GGUF."""
    return bool(_HUB_ID.fullmatch(name)) and not (is_gguf(name) or found(name).is_dir())


def _has_weights(config: Path) -> bool:
    files = weight_files(config.parent)
    return bool(files) and all(file.is_file() for file in files)


def _folder(name: str) -> Path:
    return _fetched(name, _FILES) if is_hub_id(name) else found(name)


def _fetched(name: str, files: list[str]) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    model, _, revision = name.partition("@")
    wanted: dict[str, Any] = {"revision": revision or None, "allow_patterns": files}
    try:
        # The download has no timeout for a hub that accepts the connection but does not answer.
        HfApi().model_info(model, revision=revision or None, timeout=_ANSWER_S)
        return Path(snapshot_download(model, **wanted))
    except Exception as error:
        with suppress(Exception):
            return Path(snapshot_download(model, local_files_only=True, **wanted))
        raise InputError(
            f"'{name}' is not a folder and cannot be fetched from the hub ({type(error).__name__}): use the "
            f"folder of a copy, or check the name, the revision and the network"
        ) from error
