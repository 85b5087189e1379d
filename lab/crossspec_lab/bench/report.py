"""The report of all experiments: Markdown with tables, plots and the published predictions."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch

from crossspec_lab.bench.predictions import PREDICTIONS
from crossspec_lab.bench.result import Result, figures_as_json
from crossspec_lab.bench.setting import Setting
from crossspec_lab.bench.statistics import FEW_DRIVES
from crossspec_lab.bench.tables import Cell, Table
from crossspec_ros.files import write_report
from crossspec_ros.paths import PACKAGE, share_dir

_KINDS = {"M": "measured by its authors", "P": "predicted"}


def machine() -> dict[str, str]:
    """Circumstances that times depend on, and that may differ when a run goes on another day."""
    own = ElementTree.parse(share_dir() / "package.xml").findtext("version")
    return {
        "device": f"{_processor()}, {len(os.sched_getaffinity(0))} cores",
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {version('transformers')}, {PACKAGE} {own}",
    }


def environment(setting: Setting, identity: Mapping[str, Any], command: str) -> dict[str, str]:
    """Settings that another run must share to come to the same results; `identity` is of all results."""
    return {
        "command": command,
        "seed": str(setting.seed),
        "windows": ", ".join(f"{key.replace('_', ' ')} {n}" for key, n in asdict(setting.size).items()),
        "device": f"{identity['device']}, torch threads a model: {torch.get_num_threads()}",
        "intervals": FEW_DRIVES,
        "numbers": str(setting.pair.target.dtype).removeprefix("torch."),
        "models": identity["models"][:23],
        "versions": identity["versions"],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "a CPU"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "a CPU")


def write(out: Path, name: str, results: Mapping[int, tuple[str, Result]], around: Mapping[str, str]) -> Path:
    """Write NAME.md with its plots and NAME.json with the figures, and return the path of NAME.md."""
    out.mkdir(parents=True, exist_ok=True)
    run = Table("", {name: {"": value} for name, value in around.items()})
    markdown = ["# Experiments", "", str(run)]
    for number, (title, result) in results.items():
        markdown += [f"## {number}. {title}", ""]
        for table in [predicted(number, result), *result.tables]:
            markdown.append(str(table))
        for plot, figure in result.plots.items():
            figure.savefig(out / f"{plot}.png", dpi=100)
            markdown += [f"![{title}]({plot}.png)", ""]
        for note in result.notes:
            markdown += [note, ""]
    file = out / f"{name}.md"
    write_report(file, "\n".join(markdown))
    figures = {str(number): figures_as_json(result.figures) for number, (_, result) in results.items()}
    document = {"environment": around, "figures": figures}
    write_report(out / f"{name}.json", json.dumps(document, indent=1) + "\n")
    return file


def predicted(number: int, result: Result) -> Table:
    """Each published figure beside ours; KeyError where there is neither that nor a reason."""
    rows: dict[str, dict[str, Cell]] = {
        one["what"]: {
            "published": one["published"],
            "how": _KINDS[one["kind"]],
            "here": result.beside(one["key"], one["unit"]),
        }
        for one in PREDICTIONS[number]
    }
    return Table("published and measured", rows)
