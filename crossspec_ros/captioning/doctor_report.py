"""Report of the doctor, printed for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crossspec_ros.models.placement import Placement

TIMED = (1, 32)
"""Tokens of the target's passes that are timed."""
_FILE_WIDTH = 160
_MODELS = ("target", "draft")
_PARTS = ("weights", "caches", "working")


def print_report(report: dict[str, Any]) -> None:
    """Print what the doctor found."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    found = report["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    console.print(f"{found['system']}; {versions}", markup=False)
    console.print(f"{found['cpu_cores']} CPU cores, RAM {_of(found['ram'])}", markup=False)
    for gpu in found["cuda"]:
        bf16 = "" if gpu["bf16"] else ", no bfloat16"
        console.print(f"{gpu['device']}: {gpu['name']}, {_of(gpu)}{bf16}", markup=False)
    if not found["cuda"]:
        console.print("no CUDA device")
    console.print(f"target: {report['target']}; draft: {report['draft']}", markup=False)
    for model, found in report["hub"].items():
        console.print(_on_the_hub(model, found), markup=False)
    console.print(
        "a window: {frames} frames of {image_size} px, {frame_tokens} tokens".format(**report["window"])
    )
    console.print("estimated sizes, GB:")
    console.print(_choices(report["choices"]))
    if any("measured" in choice for choice in report["choices"]):
        console.print(_measurements(report["choices"]))
    console.print(f"recommended: {report['recommendation']}", markup=False)
    console.print("estimated for other machines:")
    console.print(_others(report["machines"]))
    console.print("findings:" if report["findings"] else "findings: nothing is wrong with the set-up")
    for finding in report["findings"]:
        console.print(f"- {finding}", markup=False)


def _on_the_hub(model: str, found: dict[str, Any] | None) -> str:
    if not found:
        return f"the {model} on the hub: no answer, so its size and its licence are not known"
    licence = (
        f"by its card its licence is {found['licence']}" if found["licence"] else "its card names no licence"
    )
    return (
        f"the {model} on the hub: {_gb(found['download'])} GB, of which {_gb(found['missing'])} GB are still "
        f"to download; {licence}: read its terms yourself before you use it. What is there now is revision "
        f"{found['revision']}"
    )


def _choices(choices: list[dict[str, Any]]) -> Table:
    table = Table("choice", *(f"{model}: {', '.join(_PARTS)}" for model in _MODELS), "needed", "verdict")
    for choice in choices:
        cells = [" + ".join(_gb(choice["estimated"][model][part]) for part in _PARTS) for model in _MODELS]
        table.add_row(
            str(Placement(**choice["placement"])),
            *cells,
            _by_device(choice["needed"]),
            escape(choice["verdict"]),
        )
    return table


def _others(machines: list[dict[str, Any]]) -> Table:
    table = Table("machine", "both models", "target alone")
    for machine in machines:
        name = f"{machine['memory_gb']} GB {'shared by CPU and GPU' if machine['shared'] else 'GPU'}"
        cells = (machine["pair"], machine["target"])
        table.add_row(name, *("-" if dtypes is None else ", ".join(dtypes) or "none" for dtypes in cells))
    return table


def _measurements(choices: list[dict[str, Any]]) -> Table:
    table = Table(
        "measured", "target weights, GB", "draft weights, GB", "most in use, GB", "loading, s",
        *(f"a pass over {size}, ms" for size in TIMED),
    )  # fmt: skip
    for choice in choices:
        name = str(Placement(**choice["placement"]))
        if figures := choice.get("measured"):
            table.add_row(
                name,
                _gb(figures["weights"]["target"]),
                _gb(figures["weights"]["draft"]),
                _by_device(figures["needed"]) or "-",
                f"{figures['loading_s']:.1f}",
                *(f"{ms:.2f}" for ms in figures["verify_ms"].values()),
            )
        elif "measured" in choice:
            table.add_row(name, "did not fit")
    return table


def _gb(size: int) -> str:
    return f"{size / 1e9:.3g}"


def _of(sizes: dict[str, Any]) -> str:
    return f"{_gb(sizes['free'])} of {_gb(sizes['total'])} GB free"


def _by_device(needed: dict[str, int]) -> str:
    return ", ".join(f"{device} {_gb(size)}" for device, size in needed.items())
