"""The figures of `crossspec bench gpu` as tables, and against what was aimed at."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from crossspec_ros.bench.gpu_latency import ALONE, GENERATE

_FILE_WIDTH = 160


class _Bar(NamedTuple):
    name: str
    wanted: float
    most: bool
    """Whether `wanted` is the most that it may be, or else the least."""
    value: float

    @property
    def met(self) -> bool:
        return self.value <= self.wanted if self.most else self.value >= self.wanted


def print_tables(figures: dict[str, Any]) -> None:
    """Everything, a column or a table for each dtype."""
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH)
    runs = figures["dtypes"]
    console.print(
        f"{figures['dimensions']} dimensions on {figures['device']}, torch {figures['torch']}; "
        f"{figures['told']}",
        f"Copies run at {_cell(figures['copy_gb_s'], 0)} GB/s, reads and writes counted. Medians (10th to "
        f"90th percentile) of {figures['repeats']} repeats and {figures['rounds']} rounds, ms where nothing "
        "else is said.",
        sep="\n",
        highlight=False,
    )
    _print(
        console,
        "T_verify(n), n tokens in one pass",
        runs,
        {
            f"{size}": [_cell(run["verify_ms"][size]) for run in runs.values()]
            for size in next(iter(runs.values()))["verify_ms"]
        }
        | {
            "one pass must read, GB": [f"{run['pass_bytes'] / 1e9:.2f}" for run in runs.values()],
            "GB/s at n = 1": [f"{run['achieved_gb_s']:.0f}" for run in runs.values()],
        },
    )
    _print(
        console,
        "stages, each alone",
        runs,
        {
            stage: [_cell(run["stages_ms"][stage]) for run in runs.values()]
            for stage in next(iter(runs.values()))["stages_ms"]
        },
    )
    _print(
        console,
        "the draft beside the target",
        runs,
        {
            name.replace("_", " "): [_cell(run["overlap"][name]) for run in runs.values()]
            for name in next(iter(runs.values()))["overlap"]
            if name != "windows_read"
        },
    )
    for dtype, run in runs.items():
        _print_latency(console, dtype, run["latency"])
    _print_bytes(console, runs)
    # What is aimed at on an H200 is no measure for small models on a CPU.
    for dtype, run in runs.items() if figures["dimensions"] != "tiny" else ():
        title = f"{dtype}, {figures['dimensions']} on {figures['device']}"
        table = Table("bar", "aimed at on an H200", "measured", "met", title=title)
        for bar in _bars(run):
            sign = "<=" if bar.most else ">="
            table.add_row(bar.name, f"{sign} {bar.wanted:g}", f"{bar.value:.2f}", "yes" if bar.met else "no")
        console.print(table)


def _print(console: Console, title: str, runs: dict[str, Any], rows: dict[str, list[str]]) -> None:
    table = Table("", *runs, title=title)
    for name, cells in rows.items():
        table.add_row(name, *cells)
    console.print(table)


def _print_latency(console: Console, dtype: str, latency: dict[str, Any]) -> None:
    table = Table(
        "", "caption", "times ours", "first token", "times ours", title=f"{dtype}: ms from the window's close"
    )
    for name, mode in latency["modes"].items():
        cells = []
        for mark in ("caption", "first_token"):
            ratio = latency["times_sooner"].get(f"{mark} {name}")
            cells += [
                _cell(mode[f"{mark}_ms"], 1) if f"{mark}_ms" in mode else "-",
                _cell(ratio) if ratio else "-",
            ]
        table.add_row(name, *cells)
    table.caption = (
        f"{latency['windows']} windows, those of all rounds; {latency['tokens_per_pass']:.2f} tokens "
        f"a pass of ours; {_cell(latency['hidden_share'])} of its draft hidden"
    )
    console.print(table)


def _print_bytes(console: Console, runs: dict[str, Any]) -> None:
    rows: dict[str, list[str]] = {}
    for run in runs.values():
        for model, size in run["bytes"]["weights"].items():
            estimated = run["bytes"]["estimated"][model]
            rows.setdefault(f"{model}: weights (estimated)", []).append(
                f"{size / 1e9:.2f} ({estimated['weights'] / 1e9:.2f})"
            )
            rows.setdefault(f"{model}: caches, working, estimated", []).append(
                f"{estimated['caches'] / 1e9:.2f}, {estimated['working'] / 1e9:.2f}"
            )
        for phase, peak in run["bytes"]["peak"].items():
            cells = ", ".join(f"{size / 1e9:.2f} on {device}" for device, size in peak.items())
            rows.setdefault(f"peak, {phase}", []).append(cells)
    _print(console, "memory, GB", runs, rows)


def _bars(run: dict[str, Any]) -> list[_Bar]:
    ratios = run["latency"]["times_sooner"]
    return [
        _Bar("decode step, share of the copy bandwidth", 0.6, False, run["bandwidth_share"]),
        _Bar("T_verify(32) / T_verify(1)", 1.3, True, run["verify_32_to_1"]),
        _Bar("close to caption, times sooner than autoregressive", 5, False, _middle(ratios, ALONE)),
        _Bar("close to caption, times sooner than generate", 8, False, _middle(ratios, GENERATE)),
        _Bar("draft hidden beside a busy target", 0.8, False, run["overlap"]["hidden_share"]["median"]),
    ]


def _middle(ratios: dict[str, Any], name: str) -> float:
    return float(ratios[f"caption {name}"]["median"])


def _cell(row: dict[str, float], digits: int = 2) -> str:
    middle, low, high = (f"{row[key]:.{digits}f}" for key in ("median", "p10", "p90"))
    return f"{middle} ({low} to {high})"
