"""Extensions: what other installed packages add, such as the laboratory, by entry points of one group."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from crossspec_ros.errors import InputError

GROUP = "crossspec_ros"
"""Entry-point group: `commands`, `draft_lora`, a `head.KIND` for each further kind of head, and a
`head_format.NAME` for each further file format of heads."""


def extension(name: str, feature: str) -> Any:
    """Object that an installed package offers under this name; InputError where none offers this feature."""
    for point in entry_points(group=GROUP, name=name):
        try:
            return point.load()
        except ModuleNotFoundError as error:
            raise InputError(
                f"{feature} cannot be loaded ({error}): install the laboratory again, with "
                f"`pip install ./lab` in the repository of crossspec_ros"
            ) from error
    raise InputError(
        f"{feature} is in the laboratory, which is not installed here: run `pip install ./lab` in the "
        f"repository of crossspec_ros"
    )


def extension_names(prefix: str) -> list[str]:
    """Names that installed packages offer with this prefix, without it, sorted."""
    names = {point.name for point in entry_points(group=GROUP)}
    return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))
