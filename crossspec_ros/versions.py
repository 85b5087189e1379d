"""Compare the versions of installed packages with the requirements of this package."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from crossspec_ros.errors import InputError
from crossspec_ros.paths import PACKAGE


def installed_version(name: str) -> str:
    """Return the version of a package, or an empty text if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def unmet_requirements() -> Iterator[tuple[str, str]]:
    """Yield the name of each package of an unsupported version, with a sentence."""
    try:
        texts = requires(PACKAGE) or ()
    except PackageNotFoundError:
        return  # a source tree on the path
    for needed in map(Requirement, texts):
        found = installed_version(needed.name)
        is_needed = needed.marker is None or needed.marker.evaluate({"extra": ""})
        if found and is_needed and not needed.specifier.contains(found, prereleases=True):
            yield (
                needed.name,
                f"{needed.name} {found} is installed, an unsupported version that may give wrong results: "
                f"run pip install '{needed.name}{needed.specifier}'",
            )


def check_version(name: str) -> None:
    """Raise InputError for a package of an unsupported version."""
    if sentence := dict(unmet_requirements()).get(name):
        raise InputError(sentence)
