"""Experiment 7: how busy the device is, how much of the draft's work is hidden, how much bandwidth is used.

On a GPU busy is the time in which a kernel runs (torch.profiler). On a CPU it is the processor time of this
process as a share of the cores that torch may use; there drafts and target share these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from crossspec_ros.bench.gpu_passes import copy_bandwidth, pass_bytes
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.experiments import statistics
from crossspec_ros.experiments.compare import begun_at_last_frame, lived
from crossspec_ros.experiments.records import Log, Record
from crossspec_ros.experiments.result import Cell, Result, Table
from crossspec_ros.experiments.setting import Setting
from crossspec_ros.experiments.ways import ALONE, OURS, SPECVLM, made
from crossspec_ros.telemetry.trace import DRAFT_STAGES, Trace
from crossspec_ros.windows.window import Window

TITLE = "Use of the device"
NUMBER = 7
CONDITION = "profiled"
_WAYS = (OURS, ALONE, SPECVLM)
_COPIED = 64 << 20


def measure(setting: Setting) -> Log:
    """The same windows one way after the other, each under the profiler."""
    log, windows = setting.log(NUMBER), setting.some(setting.size.ablation_windows)
    if not log.begin(CONDITION, len(_WAYS), len(windows)):
        return log
    device = setting.pair.target.device
    bandwidth = max(copy_bandwidth(device, _COPIED, 5))
    task = setting.progress.add_task("7: profiling", total=len(_WAYS))
    for way, make in made(setting, _WAYS).items():
        with closing(make()) as decoder:
            run = (
                lived(decoder) if isinstance(decoder, PrefillHiddenDecoder) else begun_at_last_frame(decoder)
            )
            run(windows[0][0], Trace())
            for window, truth in windows:
                log.add(_profiled(setting, way, run, window, truth, bandwidth))
        setting.progress.advance(task)
    return log


def _profiled(
    setting: Setting,
    way: str,
    run: Callable[[Window, Trace], Any],
    window: Window,
    truth: str,
    bandwidth: float,
) -> Record:
    device, trace = setting.pair.target.device, Trace()
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    # The models have threads of their own.
    threads = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with profile(activities=activities, experimental_config=threads) as profiled:
        cpu_s, begun_ns = time.process_time(), time.perf_counter_ns()
        written = run(window, trace)
        ended_ns, cpu_s = time.perf_counter_ns(), time.process_time() - cpu_s
    answered_s = (ended_ns - trace.marks["last_frame"]) / 1e9
    whole_s = (ended_ns - begun_ns) / 1e9
    busy = _kernels_s(profiled) / whole_s if on_gpu else cpu_s / whole_s / torch.get_num_threads()
    stages = trace.stages
    decoding_s = sum(stages.get(name, 0.0) for name in ("verify", "decode")) / 1e3
    context = setting.pair.target.spec.frame_tokens
    read = pass_bytes(setting.pair, context) * max(0, len(written.accept_lengths) - 1)
    drafting = sum(stages.get(name, 0.0) for name in DRAFT_STAGES)
    return Record(
        NUMBER,
        CONDITION,
        way,
        window.index,
        "",
        written.tokens,
        written.accept_lengths,
        answered_s,
        stages_ms=stages,
        truth=truth,
        more={
            "busy": min(1.0, busy),
            "hidden": trace.hidden / drafting if drafting else None,
            "bandwidth": read / decoding_s / bandwidth if decoding_s else None,
            "ops": _longest(profiled),
        },
    )


def _kernels_s(profiled: profile) -> float:
    """Seconds in which some kernel ran."""
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profiled.events() or ()
        if event.device_type == torch.autograd.DeviceType.CUDA
    )
    total, until = 0.0, float("-inf")
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total / 1e6


def _longest(profiled: profile) -> dict[str, float]:
    """The operations that took most time by themselves, in milliseconds."""
    rows = sorted(profiled.key_averages(), key=lambda row: -row.self_cpu_time_total)[:5]
    return {row.key: row.self_cpu_time_total / 1e3 for row in rows}


def result(setting: Setting, log: Log) -> Result:
    """Busy share, hidden draft work and bandwidth of each way."""
    found, rows = Result(), list[list[Cell]]()
    for way in _WAYS:
        records = log.rows(CONDITION, way)
        cells = {name: _share(records, name, setting.seed) for name in ("busy", "hidden", "bandwidth")}
        longest: dict[str, float] = {}
        for record in records:
            for name, ms in record.more["ops"].items():
                longest[name] = longest.get(name, 0.0) + ms / len(records)
        ops = ", ".join(
            f"{name} {ms:.0f} ms" for name, ms in sorted(longest.items(), key=lambda op: -op[1])[:3]
        )
        rows.append([way, *cells.values(), ops])
        key = {OURS: "ours", SPECVLM: "specvlm"}.get(way)
        if key:
            found.figures[f"{key}_busy"] = _percent(cells["busy"])
            if cells["bandwidth"] is None:
                found.unmeasured[f"{key}_bandwidth"] = (
                    "captions took one pass, and no pass that reads few tokens"
                )
            else:
                found.figures[f"{key}_bandwidth"] = _percent(cells["bandwidth"])
    found.tables.append(
        Table(
            f"on {setting.pair.target.device.type}, {len(log.rows(CONDITION, OURS))} windows, means",
            [
                "way",
                "busy, %",
                "draft's work hidden, %",
                "bandwidth in decoding, %",
                "longest operations a window",
            ],
            rows,
        )
    )
    found.notes.append(
        "Busy counts the whole second for ours, which works while the window is open, and the time from the "
        "last frame for others. The bandwidth is what passes must read at least, as a share of what a copy "
        "of 64 MB reaches; weights of the tiny models stay in a processor's cache."
    )
    return found


def _share(records: Sequence[Record], name: str, seed: int) -> Cell:
    values = [100 * record.more[name] for record in records if record.more[name] is not None]
    return statistics.mean(values, seed) if values else None


def _percent(cell: Cell) -> Cell:
    return f"{cell} %"
