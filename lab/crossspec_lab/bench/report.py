"""Files of a bench: figures as JSON, tables as Markdown, and plots; tables of the docs from these files."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from matplotlib.figure import Figure

from crossspec_lab.bench.predictions import predicted
from crossspec_lab.bench.tables import Cell, Table, as_json
from crossspec_ros.errors import InputError
from crossspec_ros.files import write_report
from crossspec_ros.paths import PACKAGE, share_dir

_BLOCK = re.compile(r"(<!-- figures: (\w+) (\d+) -->\n).*?(<!-- end -->)", re.DOTALL)
"""A table of the docs: the name of a JSON, and the number of a table in it."""


@dataclass
class Result:
    """Figures by the keys of the published ones, tables, plots by name, and notes.

    `unmeasured` has the reason for each published figure without one of ours.
    """

    figures: dict[str, Cell] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    plots: dict[str, Figure] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def environment() -> dict[str, str]:
    """Return what figures depend on: commit, processor and versions."""
    own = ElementTree.parse(share_dir() / "package.xml").findtext("version")
    return {
        "commit": _commit(),
        "machine": f"{_processor()}, {len(os.sched_getaffinity(0))} cores",
        "versions": ", ".join([f"Python {platform.python_version()}", *_packages(), f"{PACKAGE} {own}"]),
    }


def _packages() -> Iterator[str]:
    """Yield the installed libraries that run models, with their versions."""
    for name in ("torch", "transformers", "llama-cpp-python", "xllamacpp", "openvino-genai"):
        with suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"


def _commit() -> str:
    command = ["git", "-C", str(share_dir()), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown: this is no checkout"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "a CPU"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "a CPU")


def write_figures(args: argparse.Namespace, figures: Mapping[str, Any], tables: Sequence[Table] = ()) -> None:
    """Print the tables, and write figures, tables and environment as JSON where requested."""
    for table in tables:
        print(table)
    if args.json:
        around = {"command": command_line(), **environment()}
        document = {"environment": around, **figures, "tables": [table.json() for table in tables]}
        write_report(args.json, json.dumps(document, indent=1, default=as_json) + "\n")


def command_line() -> str:
    """Return the command that is running."""
    return shlex.join(["crossspec", *sys.argv[1:]])


def write(file: Path, title: str, result: Result, around: Mapping[str, Any]) -> str:
    """Write the JSON file, and Markdown and plots next to it; return the Markdown."""
    compared = predicted(file.stem, result.figures, result.unmeasured)
    tables = [*result.tables, *([compared] if compared else [])]
    markdown = [f"# {title}", "", ", ".join(f"{name}: {value}" for name, value in around.items()), ""]
    markdown += map(str, tables)
    for name, figure in result.plots.items():
        plot = file.with_name(f"{file.stem}_{name}.png")
        figure.savefig(plot, dpi=100)
        markdown += [f"![{title}]({plot.name})", ""]
    text = "\n".join([*markdown, *(line for note in result.notes for line in (note, ""))])
    write_report(file.with_suffix(".md"), text)
    document = {
        "environment": dict(around),
        "figures": {key: as_json(cell) for key, cell in result.figures.items()},
        "tables": [table.json() for table in tables],
    }
    write_report(file, json.dumps(document, indent=1) + "\n")
    return text


def publish(folder: Path, page: Path) -> None:
    """Replace the tables of a page by those of the JSON files in the folder.

    A table stands between the lines `<!-- figures: NAME 0 -->` and `<!-- end -->`, with command, commit and
    machine below it.
    """

    def block(found: re.Match[str]) -> str:
        begin, name, number, end = found.groups()
        try:
            document = json.loads((folder / f"{name}.json").read_text())
            table = Table(**document["tables"][int(number)])
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise InputError(
                f"table {number} of '{folder / name}.json', which '{page}' shows, cannot be read ({error}): "
                f"measure it, or remove its lines from the page"
            ) from None
        around = document["environment"]
        return (
            f"{begin}{table}\n*{around['command']}; commit {around['commit']}; {around['machine']}.*\n{end}"
        )

    write_report(page, _BLOCK.sub(block, page.read_text()))
