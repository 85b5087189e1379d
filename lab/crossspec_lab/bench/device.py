"""Experiment 7: how busy the processor is, how much draft work is hidden, and the bandwidth that is used.

Busy is the processor time of this process as a share of all cores that it may use; models share these.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from crossspec_lab.bench import statistics
from crossspec_lab.bench.decoders import ALONE, OURS, SPECVLM, makers
from crossspec_lab.bench.gpu_passes import copy_bandwidth, pass_bytes
from crossspec_lab.bench.harness import Run
from crossspec_lab.bench.in_turns import compare
from crossspec_lab.bench.records import Log, Record
from crossspec_lab.bench.result import Result
from crossspec_lab.bench.setting import Setting
from crossspec_lab.bench.tables import Cell, Table
from crossspec_ros.telemetry.trace import DRAFT_STAGES

TITLE = "Use of the device"
NUMBER = 7
CONDITION = "profiled"
_WAYS = (OURS, ALONE, SPECVLM)
_COPIED = 64 << 20


def measure(setting: Setting) -> Log:
    """Measure the same windows with all decoders."""
    bandwidth = max(copy_bandwidth(setting.pair.target.device, _COPIED, 5))

    def more(way: str, run: Run, cpu_s: float) -> dict[str, Any]:
        # Ours works from the first frame on, others from the last.
        busy_s = (run.ended_ns - (run.begun_ns if way == OURS else run.trace.marks["last_frame"])) / 1e9
        stages, passes = run.trace.stages, len(run.written.accept_lengths) - 1
        decoding_s = sum(stages.get(name, 0.0) for name in ("verify", "decode")) / 1e3
        drafting = sum(stages.get(name, 0.0) for name in DRAFT_STAGES)
        read = pass_bytes(setting.pair, setting.pair.target.spec.frame_tokens) * passes
        return {
            "busy": cpu_s / busy_s / len(os.sched_getaffinity(0)),
            "hidden": run.trace.hidden / drafting if drafting else None,
            "bandwidth": read / decoding_s / bandwidth if decoding_s else None,
        }

    windows = setting.some(setting.size.ablation_windows)
    return compare(setting, NUMBER, CONDITION, makers(setting.models, _WAYS), windows, setting.warm, more)


def result(setting: Setting, log: Log) -> Result:
    """Busy share, hidden draft work and bandwidth of each way."""
    found, rows, seed = Result(), dict[str, dict[str, Cell]](), setting.seed
    for way in _WAYS:
        records = log.rows(CONDITION, way)
        rows[way] = {
            "busy, %": _share(records, "busy", seed),
            "draft's work hidden, %": _share(records, "hidden", seed),
            "bandwidth in decoding, %": _share(records, "bandwidth", seed),
        }
        if key := {OURS: "ours", SPECVLM: "specvlm"}.get(way):
            found.figures[f"{key}_busy"] = _share(records, "busy", seed, " %")
            if (bandwidth := _share(records, "bandwidth", seed, " %")) is None:
                reason = "captions took one pass, and no pass that reads few tokens"
                found.unmeasured[f"{key}_bandwidth"] = reason
            else:
                found.figures[f"{key}_bandwidth"] = bandwidth
    count = len(log.rows(CONDITION, OURS))
    found.tables.append(Table(f"on {setting.pair.target.device.type}, {count} windows, means", rows, "way"))
    found.notes.append(
        "Busy counts the whole second for ours, which works while the window is open, and the time from the "
        "last frame for others. The bandwidth is what passes must read at least, as a share of what a copy "
        "of 64 MB reaches; weights of the tiny models stay in a processor's cache."
    )
    return found


def _share(records: Sequence[Record], name: str, seed: int, unit: str = "") -> str | None:
    """The mean, and of how many windows, where some have none."""
    values = [
        np.nan if record.more.get(name, name) is None else 100 * record.more[name] for record in records
    ]
    known = np.count_nonzero(~np.isnan(values))
    if not known:
        return None
    of = "" if known == len(values) else f", of {known} of {len(values)} windows"
    return f"{statistics.mean(values, seed)}{unit}{of}"
