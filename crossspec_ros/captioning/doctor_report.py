"""Report of the doctor, printed for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
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
    for part in _parts(report):
        console.print(part, markup=False)


def _parts(report: dict[str, Any]) -> Iterator[str | Table]:
    """Lines and tables in their order."""
    found, choices = report["machine"], report["choices"]
    yield f"{found['system']}; {', '.join(f'{name} {number}' for name, number in found['versions'].items())}"
    yield f"{found['cpu_cores']} CPU cores, RAM {_free(found['ram'])}"
    for gpu in found["cuda"]:
        yield f"{gpu['device']}: {gpu['name']}, {_free(gpu)}{'' if gpu['bf16'] else ', no bfloat16'}"
    if not found["cuda"]:
        yield "no CUDA device"
    yield f"target: {report['target']}; draft: {report['draft']}"
    yield from (_on_the_hub(model, found) for model, found in report["hub"].items())
    yield "a window: {frames} frames of {image_size} px, {frame_tokens} tokens".format(**report["window"])
    yield "estimated sizes, GB:"
    heads = ("choice", *(f"{model}: {', '.join(_PARTS)}" for model in _MODELS), "needed", "verdict")
    yield _table(heads, [_estimated(choice) for choice in choices])
    if any("measured" in choice for choice in choices):
        heads = ("measured", "target weights, GB", "draft weights, GB", "most in use, GB", "loading, s")
        passes = (f"a pass over {size}, ms" for size in TIMED)
        yield _table((*heads, *passes), [_measured(one) for one in choices if "measured" in one])
    yield f"recommended: {report['recommendation']}"
    yield "findings:" if report["findings"] else "findings: nothing is wrong with the set-up"
    yield from (f"- {finding}" for finding in report["findings"])


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


def _estimated(choice: dict[str, Any]) -> list[str]:
    sizes = [" + ".join(_gb(choice["estimated"][model][part]) for part in _PARTS) for model in _MODELS]
    return [_name(choice), *sizes, _by_device(choice["needed"]), choice["verdict"]]


def _measured(choice: dict[str, Any]) -> list[str]:
    figures = choice["measured"]
    if not figures:
        return [_name(choice), "did not fit"]
    weights = [_gb(figures["weights"][model]) for model in _MODELS]
    times = [f"{ms:.2f}" for ms in figures["verify_ms"].values()]
    needed = _by_device(figures["needed"]) or "-"
    return [_name(choice), *weights, needed, f"{figures['loading_s']:.1f}", *times]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(*heads)
    for row in rows:
        table.add_row(*row)
    return table


def _name(choice: dict[str, Any]) -> str:
    return str(Placement(**choice["placement"]))


def _gb(size: int) -> str:
    return f"{size / 1e9:.3g}"


def _free(sizes: dict[str, Any]) -> str:
    return f"{_gb(sizes['free'])} of {_gb(sizes['total'])} GB free"


def _by_device(needed: dict[str, int]) -> str:
    return ", ".join(f"{device} {_gb(size)}" for device, size in needed.items())
