"""The report of all experiments: Markdown and HTML with tables, plots and the published predictions."""

from __future__ import annotations

import base64
import html
import io
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

from crossspec_lab.experiments.predictions import PREDICTIONS
from crossspec_lab.experiments.result import Cell, Result, Table, figures_as_json
from crossspec_lab.experiments.setting import Setting
from crossspec_lab.experiments.statistics import FEW_DRIVES
from crossspec_ros.files import write_report
from crossspec_ros.paths import PACKAGE, share_dir

_KINDS = {"M": "measured by its authors", "P": "predicted"}
_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}table{border-collapse:"
    "collapse;margin:1rem 0}td,th{border:1px solid #ccc;padding:.2rem .6rem;text-align:left}"
    "img{max-width:100%}th{background:#f2f2f2}"
)


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


def write(
    out: Path, name: str, results: Mapping[int, tuple[str, Result]], around: Mapping[str, str], advice: str
) -> tuple[Path, Path]:
    """Write NAME.md with its plots as files, NAME.html with them inside, and NAME.json with the figures;
    returns the first two."""
    out.mkdir(parents=True, exist_ok=True)
    run = Table("", {name: {"": value} for name, value in around.items()})
    markdown = ["# Experiments", "", *_markdown_table(run)]
    page = ["<h1>Experiments</h1>", _html_table(run)]
    markdown += ["## What to run here", "", advice, ""]
    page += ["<h2>What to run here</h2>", f"<p>{html.escape(advice)}</p>"]
    for number, (title, result) in results.items():
        markdown += [f"## {number}. {title}", ""]
        page.append(f"<h2>{number}. {html.escape(title)}</h2>")
        for table in [predicted(number, result), *result.tables]:
            markdown += [f"**{table.title}**", "", *_markdown_table(table)]
            page += [f"<p><b>{html.escape(table.title)}</b></p>", _html_table(table)]
        for plot, figure in result.plots.items():
            figure.savefig(out / f"{plot}.png", dpi=100)
            markdown += [f"![{title}]({plot}.png)", ""]
            picture = io.BytesIO()
            figure.savefig(picture, dpi=100, format="png")
            inside = base64.b64encode(picture.getvalue()).decode()
            page.append(f'<img alt="{html.escape(title)}" src="data:image/png;base64,{inside}">')
        for note in result.notes:
            markdown += [note, ""]
            page.append(f"<p>{html.escape(note)}</p>")
    files = out / f"{name}.md", out / f"{name}.html"
    write_report(files[0], "\n".join(markdown))
    write_report(
        files[1],
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Experiments</title><style>{_STYLE}</style>"
        + "\n".join(page)
        + "</html>\n",
    )
    figures = {str(number): figures_as_json(result.figures) for number, (_, result) in results.items()}
    document = {"environment": around, "figures": figures}
    write_report(out / f"{name}.json", json.dumps(document, indent=1) + "\n")
    return files


def predicted(number: int, result: Result) -> Table:
    """Each published figure beside ours; KeyError where there is neither that nor a reason."""
    rows: dict[str, dict[str, Cell]] = {
        one.what: {
            "published": one.published,
            "how": _KINDS[one.kind],
            "here": result.beside(one.key, one.unit),
        }
        for one in PREDICTIONS[number]
    }
    return Table("published and measured", rows)


def _markdown_table(table: Table) -> list[str]:
    rows = [list(table.columns), ["---"] * len(table.columns), *table.texts()]
    return [*("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows), ""]


def _html_table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in table.texts())
    return f"<table><tr>{head}</tr>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"
