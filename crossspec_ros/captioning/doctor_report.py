"""Report of the doctor, printed for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from crossspec_ros.models.placement import Placement
from crossspec_ros.models.window_rate import CAPTION_TOKENS, TOKENS_A_PASS, TREE_TOKENS

TIMED = (1, 32)
"""Tokens of the target's passes that are timed."""
_FILE_WIDTH = 160
ASSUMED = (
    f"(captions of {CAPTION_TOKENS} tokens; speculating: {TOKENS_A_PASS} tokens a pass over a tree of "
    f"{TREE_TOKENS}, as the memory alone gave on recorded 7B captions; single paths, which bf16 and int8 by "
    f"llama.cpp verify, give fewer; estimated from products of matrices, "
    f"timed on the device with the captioner's threads; fewer frames, parameter frames, shorten what is "
    f"before the first token, and for Qwen3-VL smaller ones, frame_size)"
)
"""Assumptions under the rates."""
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
    if rates := list(_rates(choices)):
        yield "windows a second that the target sustains:"
        heads = "choice", "speculating", "alone", "of that before the first token", "frames for 1 Hz"
        yield _table(heads, rates)
        yield ASSUMED
    if any("measured" in choice for choice in choices):
        heads = ("measured", "target weights, GB", "draft weights, GB", "most in use, GB", "loading, s")
        passes = (f"a pass over {size}, ms" for size in TIMED)
        yield _table((*heads, *passes), [_measured(one) for one in choices if "measured" in one])
    yield f"recommended: {report['recommendation']}"
    if report["machines"]:
        yield "estimated for other machines:"
        yield _table(("machine", "both models", "target alone"), [_other(one) for one in report["machines"]])
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


def _rates(choices: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    for choice in choices:
        rates = {"estimated": choice["estimated_rate"]} if choice["estimated_rate"] else {}
        if choice.get("measured"):
            rates["measured"] = choice["measured"]["rate"]
        for how, rate in rates.items():
            frames = rate["frames_for_1_hz"]
            yield [
                f"{_name(choice)}, {how}",
                *(_rate(rate[name]) for name in ("windows_per_s", "windows_per_s_alone")),
                f"{100 * rate['share_before_first_token']:.0f} %",
                "no number is few enough" if frames is None else str(frames),
            ]


def _rate(windows_per_s: float) -> str:
    return f"{windows_per_s:.2g}" if windows_per_s > 0.01 else "less than 0.01"


def _measured(choice: dict[str, Any]) -> list[str]:
    figures = choice["measured"]
    if not figures:
        return [_name(choice), "did not fit"]
    weights = [_gb(figures["weights"][model]) for model in _MODELS]
    times = [f"{ms:.2f}" for ms in figures["verify_ms"].values()]
    needed = _by_device(figures["needed"]) or "-"
    return [_name(choice), *weights, needed, f"{figures['loading_s']:.1f}", *times]


def _other(machine: dict[str, Any]) -> list[str]:
    cells = (machine["pair"], machine["target"])
    name = f"{machine['memory_gb']} GB {'shared by CPU and GPU' if machine['shared'] else 'GPU'}"
    return [name, *("-" if dtypes is None else ", ".join(dtypes) or "none" for dtypes in cells)]


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
