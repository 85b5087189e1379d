"""Time from a window's last frame to its caption: every decoder on the same windows, in real time.

Our decoder gets frames and event images when they would come, and begins its answer with the last frame. The
others get the window then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np

from crossspec_lab.baselines.openvino import find_obstacle
from crossspec_lab.bench.columns import CLOSE, EQUAL, FIRST, SOONER, TOKENS, WALL, P, cells, rows
from crossspec_lab.bench.decoders import (
    ALONE,
    DECODERS,
    GAMMAS,
    LLAMA_ALONE,
    OPENVINO,
    OURS,
    REST,
    STANDARD,
    makers,
    marked,
)
from crossspec_lab.bench.device_use import BANDWIDTH, add_use
from crossspec_lab.bench.formulae import add_formulae
from crossspec_lab.bench.gpu_passes import copy_bandwidth, pass_bytes
from crossspec_lab.bench.live import live
from crossspec_lab.bench.plots import timeline, wait_bars
from crossspec_lab.bench.quality import add_quality
from crossspec_lab.bench.records import Log, Record
from crossspec_lab.bench.report import Result
from crossspec_lab.bench.setting import Bench, Part, Setting, compare
from crossspec_lab.bench.tables import Table
from crossspec_ros.captioning.load_decoder import speculative_decoder
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace

_WINDOWS, _TIMELINE = "windows", "timeline"
_COPIED = 64 << 20
_HEADLINE = (OURS, [*LLAMA_ALONE][-1], REST, ALONE)
"""Decoders of the small plot, llama.cpp with the smallest weights."""


def _parts(setting: Setting) -> list[Part]:
    names = [name for name in DECODERS if name == STANDARD or name not in GAMMAS.values()]
    return [
        compare(setting, _WINDOWS, makers(setting.models, names)),
        Part(BANDWIDTH, 1, _bandwidth(setting.pair)),
        Part(_TIMELINE, 1, _spans(setting)),
    ]


def _bandwidth(pair: ModelPair) -> Iterator[Record]:
    copied = max(copy_bandwidth(pair.target.device, _COPIED, 5))
    more = {"copied": copied, "pass_bytes": pass_bytes(pair, pair.target.spec.frame_tokens)}
    yield Record(BANDWIDTH, BANDWIDTH, 0, more=more)


def _spans(setting: Setting) -> Iterator[Record]:
    with closing(speculative_decoder(setting.pair)) as ours:
        # The rehearsals of the first window are slower.
        for window, _ in (*setting.windows[:2], setting.windows[0]):
            trace = Trace()
            live(ours, window, trace)
        cost = ours.policy.cost
    origin = trace.marks["closed"]
    spans = [
        (span.stage, (span.start_ns - origin) / 1e6, (span.end_ns - span.start_ns) / 1e6)
        for span in trace.spans
    ]
    marks = {name: (stamp - origin) / 1e6 for name, stamp in trace.marks.items()}
    verify_ms = {size: 1e3 * seconds for size, seconds in cost.table().items()} if cost else {}
    yield Record(_TIMELINE, OURS, 0, more={"spans": spans, "marks": marks, "verify_ms": verify_ms})


def _result(setting: Setting, log: Log) -> Result:
    found, names = Result(), log.decoders(_WINDOWS)
    columns = [SOONER, WALL, CLOSE, FIRST, TOKENS, P, EQUAL]
    compared = {marked(name): row for name, row in rows(log, _WINDOWS, columns, ALONE).items()}
    title = (
        f"{len(setting.windows)} windows of {setting.period_s:g} s, all decoders in one run: median (10th to "
        f"90th percentile), 95 % interval of a ratio"
    )
    found.tables.append(Table(title, compared, "decoder"))
    ours = log.rows(_WINDOWS, OURS)
    sooner = {name: cells([SOONER], ours, log.rows(_WINDOWS, name)) for name in names}
    found.tables.append(Table("ours sooner than each, times", sooner, "decoder"))
    found.tables.append(Table("stages, ms a window (median)", {name: _stages(log, name) for name in names}))
    (drawn,) = log.rows(_TIMELINE, OURS)
    cost = {f"{size} tokens": {"ms": ms} for size, ms in drawn.more["verify_ms"].items()}
    found.tables.append(Table("T_verify(n), a pass over n tokens", cost))
    add_use(log, _WINDOWS, found)
    if log.rows(_WINDOWS, STANDARD):
        add_formulae(log, _WINDOWS, found)
    if ours[0].truth:
        add_quality(log, _WINDOWS, found)
    waits = {name: row[WALL] for name, row in compared.items()}
    found.plots["decoders"] = wait_bars(waits)  # type: ignore[arg-type]
    found.plots["headline"] = wait_bars({name: waits[name] for name in _HEADLINE if name in waits})  # type: ignore[misc]
    found.plots[_TIMELINE] = timeline(drawn.more["spans"], drawn.more["marks"])
    depends = ", ".join(name for name in names if DECODERS[name].depends_on_time)
    found.notes.append(
        f"All decoders but ours begin with the last frame. 'equal' counts captions with the target's own "
        f"tokens; lossy decoders may write others. Tokens a pass depend on the machine for: {depends}."
    )
    found.notes.append(
        "REST looks up captions of 2,000 training windows from the same grammar. Real drives have no text as "
        "similar. Suffix decoding and our memory begin empty."
    )
    if OPENVINO in names:
        found.notes.append(
            f"The prompt lookup of {OPENVINO} drafts 5 tokens of the caption so far, that of transformers 8, "
            f"also of the prompt."
        )
    elif obstacle := find_obstacle(setting.pair):
        found.notes.append(f"{OPENVINO} is not in the table: {obstacle}.")
    if setting.models.specvlm:
        found.notes.append(setting.trained.note)
    return found


def _stages(log: Log, name: str) -> dict[str, float]:
    found = [record.stages_ms for record in log.rows(_WINDOWS, name)]
    stages = sorted({stage for one in found for stage in one})
    return {stage: float(np.median([one.get(stage, 0.0) for one in found])) for stage in stages}


LATENCY = Bench("From the last frame to the caption", _parts, _result)
