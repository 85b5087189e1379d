"""Where the models of a pair are: in a folder with `target/` and `draft/`, or each by name; without torch."""

from __future__ import annotations

from pathlib import Path

from crossspec_ros.errors import InputError
from crossspec_ros.models.hub import draft_folder, target_folder
from crossspec_ros.models.placement import NO_DRAFT
from crossspec_ros.paths import found


def target_path(models: Path | str, target: str, with_weights: bool = True) -> Path:
    """Where the target of a pair is; by a hub id it is fetched, see `target_folder`."""
    return target_folder(target, with_weights) if target else found(models) / "target"


def draft_path(models: Path | str, draft: str, with_weights: bool = True) -> Path | None:
    """Where the draft of a pair is, likewise; None where there is to be none.

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
