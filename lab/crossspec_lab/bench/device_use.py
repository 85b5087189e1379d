"""Use of the device: busy share of the processor, hidden draft work, and bandwidth.

Busy is the processor time of this process as a share of all cores that it may use; models share these. It
counts the complete window for ours, which works while it is open, and for others the time from the last
frame.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from crossspec_lab.bench import statistics
from crossspec_lab.bench.decoders import ALONE, OURS, SPECVLM
from crossspec_lab.bench.records import Log, Record
from crossspec_lab.bench.report import Result
from crossspec_lab.bench.tables import Cell, Table

BANDWIDTH = "bandwidth"
"""Condition of the record of the copy bandwidth and of the bytes that a pass reads at least."""


def add_use(log: Log, condition: str, found: Result) -> None:
    """Add the table of busy share, hidden draft work and bandwidth, and the figures of the predictions."""
    (device,) = log.rows(BANDWIDTH, BANDWIDTH)
    rows = dict[str, dict[str, Cell]]()
    for name in (one for one in (OURS, ALONE, SPECVLM) if one in log.decoders(condition)):
        records = log.rows(condition, name)
        read = [_bandwidth(record, **device.more) for record in records]
        rows[name] = {
            "busy, %": _share([_busy(record, name == OURS) for record in records]),
            "draft's work hidden, %": _share([record.hidden_share for record in records]),
            "bandwidth in decoding, %": _share(read),
        }
        if key := {OURS: "ours", SPECVLM: "specvlm"}.get(name):
            found.figures[f"{key}_busy"] = rows[name]["busy, %"]
            if rows[name]["bandwidth in decoding, %"] is None:
                reason = "captions took one pass, and no pass that reads few tokens"
                found.unmeasured[f"{key}_bandwidth"] = reason
            else:
                found.figures[f"{key}_bandwidth"] = rows[name]["bandwidth in decoding, %"]
    found.tables.append(Table("use of the device, means", rows, "decoder"))
    found.notes.append(
        "Bandwidth is the least that passes must read, as a share of the bandwidth of a 64 MB copy. Weights "
        "of the tiny models stay in a processor's cache."
    )


def _busy(record: Record, is_ours: bool) -> float:
    worked_s = record.ended_s - (record.begun_s if is_ours else 0.0)
    return record.cpu_s / worked_s / len(os.sched_getaffinity(0))


def _bandwidth(record: Record, copied: float, pass_bytes: float) -> float | None:
    decoding_s = sum(record.stages_ms.get(name, 0.0) for name in ("verify", "decode")) / 1e3
    return pass_bytes * (record.passes - 1) / decoding_s / copied if decoding_s else None


def _share(values: Sequence[float | None]) -> str | None:
    """Return the mean in per cent, and the number of its windows if some have no value."""
    shares = np.array([np.nan if value is None else 100 * value for value in values])
    count = np.count_nonzero(~np.isnan(shares))
    of = "" if count == len(values) else f", of {count} of {len(values)} windows"
    return f"{statistics.mean(shares.tolist())}{of}" if count else None
