"""Folders of models: one's own, or the copy of a hub id, fetched where it is not there yet; without torch.

The hub tells of a model before it is fetched, see `offer`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.models.adapted import whole
from crossspec_ros.models.placement import NO_DRAFT, is_gguf
from crossspec_ros.models.registry import event_image_size, target_spec
from crossspec_ros.paths import found

_HUB_ID = re.compile(r"(?P<model>[\w-][\w.-]*/[\w-][\w.-]*)(?:@(?P<revision>\w[\w.-]*(?:/\w[\w.-]*)*))?")
"""ORG/NAME, or ORG/NAME@REVISION with a commit, a tag or a branch."""
_ANSWER_S = 10.0
_CONFIGS = ["*config.json"]
_TOKENIZER = ["*token*.json", "tokenizer.model"]
_FILES, _TENSORS, _OLD_TENSORS = ["*.json", "tokenizer.model"], ["*.safetensors"], ["pytorch_model*.bin"]


@dataclass(frozen=True)
class Offer:
    """Offer of the hub for a model: bytes of all files that its folder is to have, of those that are not on
    this machine, the licence that its card names, which may be none, and the commit that all this is of."""

    download: int
    missing: int
    licence: str
    revision: str


def target_path(models: Path | str, target: str, with_weights: bool = True) -> Path:
    """Folder of a pair's target; by a hub id it is fetched, see `target_folder`."""
    return target_folder(target, with_weights) if target else found(models) / "target"


def draft_path(models: Path | str, draft: str, with_weights: bool = True) -> Path | None:
    """Folder of a pair's draft, likewise; None where there is to be none.

    Raises InputError where none is named and `models` has none.
    """
    if draft == NO_DRAFT:
        return None
    if draft:
        return draft_folder(draft, with_weights)
    path = found(models) / "draft"
    if not path.is_dir():
        raise InputError(
            f"there is no folder '{path}': set draft to the folder or hub id of an event draft, or to "
            f"{NO_DRAFT} to do without one"
        )
    return path


def target_folder(name: str, with_weights: bool = True) -> Path:
    """The folder of this name, or the copy in the hub's cache of the target of this id, fetched where it is
    not there yet; without its weights only what `target_spec` and `target_architecture` read.

    Raises InputError where there is neither, and before the weights of another model are fetched.
    """
    return _folder(name, target_spec, with_weights)


def draft_folder(name: str, with_weights: bool = True) -> Path:
    """The same of an event draft."""
    return _folder(name, event_image_size, with_weights)


def with_tokenizer(folder: Path) -> Path:
    """The folder of a model without its weights, to which its tokenizer is fetched where it is the hub's."""
    name = known_as(folder)
    return whole(folder) if name == str(folder) else _fetched(name, _TOKENIZER)


def offer(name: str) -> Offer | None:
    """Offer of the hub for the model of this id; None where it does not answer."""
    # Takes long to import, and only those need it who name no folder.
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.utils import filter_repo_objects

    model, revision = _parts(name)
    try:
        info = HfApi().model_info(model, revision=revision, files_metadata=True, timeout=_ANSWER_S)
    # Errors of the network and of the hub have no common kind.
    except Exception:
        return None
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    tensors = [*filter_repo_objects(sizes, allow_patterns=_TENSORS)]
    others = _FILES if any("/" not in file for file in tensors) else _FILES + _OLD_TENSORS
    wanted = [*tensors, *filter_repo_objects(sizes, allow_patterns=others)]
    missing_files = [
        file
        for file in wanted
        if not isinstance(try_to_load_from_cache(model, file, revision=info.sha or revision), str)
    ]
    download, missing = (sum(sizes[file] for file in files) for files in (wanted, missing_files))
    return Offer(download, missing, _licence(info.card_data), info.sha or "")


def known_as(folder: Path) -> str:
    """Name of the model of this folder for those who want the same: its hub id with its commit, or the
    folder itself where it is not from the hub."""
    repository = folder.parent.parent.name
    if folder.parent.name != "snapshots" or not repository.startswith("models--"):
        return str(folder)
    return f"{repository.removeprefix('models--').replace('--', '/')}@{folder.name}"


def is_hub_id(name: str) -> bool:
    """Whether this is a hub id, not the name of a folder."""
    return bool(_HUB_ID.fullmatch(name)) and not (is_gguf(name) or found(name).is_dir())


def _folder(name: str, check: Callable[[Path], object], with_weights: bool) -> Path:
    if not is_hub_id(name):
        return whole(found(name)) if with_weights else found(name)
    folder = _fetched(name, _CONFIGS)
    check(folder)
    if not with_weights:
        return folder
    # What is published meanwhile does not belong to these configs.
    name = known_as(folder)
    folder = _fetched(name, _FILES + _TENSORS)
    if not any(folder.glob("*.safetensors")):
        folder = _fetched(name, _OLD_TENSORS)
    return folder


def _fetched(name: str, files: list[str]) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    model, revision = _parts(name)
    try:
        # The download itself would wait for ever where the hub is reached but says nothing.
        HfApi().model_info(model, revision=revision, timeout=_ANSWER_S)
        return Path(snapshot_download(model, revision=revision, allow_patterns=files))
    except Exception as error:
        with suppress(Exception):
            return Path(
                snapshot_download(model, revision=revision, allow_patterns=files, local_files_only=True)
            )
        raise InputError(
            f"'{name}' is no folder, and as a hub id it could not be fetched ({type(error).__name__}): name "
            f"the folder of a copy, or check the name, the revision and the network"
        ) from error


def _parts(name: str) -> tuple[str, str | None]:
    """The model of a hub id, and the revision that it names."""
    parts = _HUB_ID.fullmatch(name)
    assert parts, "is_hub_id says what is one"
    return parts["model"], parts["revision"]


def _licence(card: Any) -> str:
    """The licence in a model card's values, in its own words."""
    values = card.to_dict() if card else {}
    # Where "license" is "other", the name says which.
    said = (values.get(key) for key in ("license", "license_name", "license_link"))
    return " ".join(", ".join(value) if isinstance(value, list) else str(value) for value in said if value)
