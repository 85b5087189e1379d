"""Versions of installed packages against those that this one declares to need."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import InvalidRequirement, Requirement

from crossspec_ros.errors import InputError
from crossspec_ros.paths import PACKAGE


def installed_version(name: str) -> str:
    """Version of an installed package; empty where there is none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def unmet_requirements() -> Iterator[tuple[str, str]]:
    """Packages of other versions than are declared, each with a sentence."""
    try:
        declared = [Requirement(text) for text in requires(PACKAGE) or ()]
    except (PackageNotFoundError, InvalidRequirement):
        # A source tree on the path declares nothing.
        return
    for needed in declared:
        if not needed.specifier or (needed.marker and not needed.marker.evaluate({"extra": ""})):
            continue
        found = installed_version(needed.name)
        if found and not needed.specifier.contains(found, prereleases=True):
            yield (
                needed.name,
                f"{needed.name} {found} is installed, with whose interfaces results may be wrong silently: "
                f"pip install '{needed.name}{needed.specifier}'",
            )


def check_version(name: str) -> None:
    """Raise InputError where a package is of another version than is declared."""
    for unmet, sentence in unmet_requirements():
        if unmet == name:
            raise InputError(sentence)
