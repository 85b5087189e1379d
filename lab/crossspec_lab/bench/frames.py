"""Speed-up of captions with 1 to 64 frames a window.

The tiny target learned with 8 frames. Its captions of other numbers of frames have other lengths, and from 32
frames on they are cut at 64 tokens. A speed-up is over the target alone with the same frames, so with the
same caption. The time to the first token can be compared between numbers of frames. Our draft heads, which
learned with 8 frames, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from crossspec_lab.bench import statistics
from crossspec_lab.bench.columns import CLOSE, FIRST, LENGTH, SOONER, TOKENS, WALL, rows
from crossspec_lab.bench.decoders import ALONE, HIDING, OURS, SEQUENTIAL, SPECVLM, makers
from crossspec_lab.bench.input_windows import FIRST_SEED
from crossspec_lab.bench.records import Log, Record, paired
from crossspec_lab.bench.report import Result
from crossspec_lab.bench.setting import Bench, Part, Setting, compare
from crossspec_lab.bench.statistics import WINDOWS_PER_DRIVE, number, spread
from crossspec_lab.bench.tables import Cell, Table, text
from crossspec_lab.world.camera import frame
from crossspec_lab.world.scene import drive
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.video_llava import VideoLlava
from crossspec_ros.windows.resize import resize_shortest
from crossspec_ros.windows.window import Window

COUNTS = (1, 4, 8, 16, 32, 64)
DECODERS = (OURS, ALONE, SPECVLM, HIDING, SEQUENTIAL)
_PUBLISHED = "16"
"""Frames of the published breakdown of stages."""
_STAGES = {
    "frame_encode": ("frame_encode",),
    "event_encode": ("event_encode",),
    "draft": ("draft_prefill", "draft_decode", "propose"),
    "prefill": ("target_prefill",),
    "verify": ("verify", "decode"),
    "hidden": ("hidden",),
}
"""Stages of the published breakdown, by the spans of a trace."""
_HEAD_NOTE = "SpecVLM's head learned with 8 frames, so its figures at other numbers of frames mean little."


def _parts(setting: Setting) -> Iterator[Part]:
    for count in COUNTS:
        changed = _with_count(setting, count)
        yield compare(changed, str(count), makers(changed.models, DECODERS))


def _with_count(setting: Setting, count: int) -> Setting:
    """Return the setting for this number of frames a window."""
    pair = with_frames(setting.pair, count)
    windows = [(seen_with(pair, window), scene) for window, scene in setting.windows]
    models = replace(setting.models, pair=pair)
    return replace(setting, models=models, windows=windows, warm=seen_with(pair, setting.warm))


def with_frames(pair: ModelPair, count: int) -> ModelPair:
    """Return the same models, for windows of this number of frames."""
    target = cast(VideoLlava, pair.target)
    each = target.spec.frame_tokens // target.spec.frames
    room = target.spec.most_tokens - target.spec.frame_tokens
    spec = replace(target.spec, frames=count, frame_tokens=count * each, most_tokens=count * each + room)
    return replace(pair, target=VideoLlava(target.module, target.tokenizer, spec))


def seen_with(pair: ModelPair, window: Window) -> Window:
    """Return the window with the pair's number of frames, at equal distances."""
    seed, second = FIRST_SEED + window.index // WINDOWS_PER_DRIVE, window.index % WINDOWS_PER_DRIVE
    scenes, spec = drive(seed, WINDOWS_PER_DRIVE + 1), pair.target.spec
    shares = np.arange(spec.frames) / spec.frames
    frames = [
        resize_shortest(frame(scenes, seed, second + float(share)), spec.image_size) for share in shares
    ]
    length = window.end_ns - window.start_ns
    stamps = tuple(int(window.start_ns + share * length) for share in shares)
    return replace(window, frames=np.stack(frames), frame_stamps_ns=stamps)


def _result(setting: Setting, log: Log) -> Result:
    found, shown = Result(), dict[str, dict[str, Cell]]()
    for count in COUNTS:
        for name, row in rows(log, str(count), [SOONER, FIRST, WALL, CLOSE, TOKENS, LENGTH], ALONE).items():
            if key := {OURS: "ours", SPECVLM: "specvlm"}.get(name):
                found.figures[f"{key}_{count}"] = row[SOONER]
            shown[f"{count}: {name}"] = row
    title = f"{len(setting.windows)} windows, by frames and decoder; median (10th to 90th percentile)"
    found.tables.append(Table(title, shown, "frames: decoder"))
    found.tables += [_by_stage(log, found), _hiding(log, found)]
    found.notes += [
        "The tiny target learned with 8 frames. With other numbers its captions are poor and of another "
        "length, and from 32 frames on they are cut at 64 tokens. Drafts, which learned its usual captions, "
        "fit them less. Each speed-up is over the same caption of the target alone.",
        _HEAD_NOTE,
        setting.trained.note,
    ]
    return found


def stage_ms(records: Sequence[Record], stage: str) -> list[float]:
    """Return milliseconds of a stage of the published breakdown, by window."""
    return [sum(record.stages_ms.get(name, 0.0) for name in _STAGES[stage]) for record in records]


def _by_stage(log: Log, found: Result) -> Table:
    shown: dict[str, dict[str, Cell]] = {stage.replace("_", " "): {} for stage in (*_STAGES, "total")}
    for key, name in (("ours", OURS), ("specvlm", SPECVLM), ("alone", ALONE)):
        records = log.rows(_PUBLISHED, name)
        times = {stage: stage_ms(records, stage) for stage in _STAGES}
        times["total"] = [1e3 * record.wall_s for record in records]
        for stage, values in times.items():
            found.figures[f"{key}_{stage}"] = shown[stage.replace("_", " ")][name] = spread(values)
    found.unmeasured["specvlm_compress"] = "it is a part of drafting here"
    title = (
        f"milliseconds by stage, {_PUBLISHED} frames; ours works while the window is open, so that stages "
        f"add up to more than its total"
    )
    return Table(title, shown, "stage")


def _hiding(log: Log, found: Result) -> Table:
    """Compare published prefill hiding with a draft during the target's prefill, and before it."""
    parallel, sequential = paired(log.rows(_PUBLISHED, HIDING), log.rows(_PUBLISHED, SEQUENTIAL))
    gain = statistics.median([1e3 * (b.wall_s - a.wall_s) for a, b in zip(parallel, sequential, strict=True)])
    hiding, alone = paired(parallel, log.rows(_PUBLISHED, ALONE))
    times = [b.wall_s / a.wall_s for a, b in zip(hiding, alone, strict=True)]
    change = statistics.median([100 * (1 / sooner - 1) for sooner in times])
    compared = rows(log, _PUBLISHED, [WALL, SOONER], ALONE)
    found.figures["parallel_gain"] = f"{gain} ms"
    found.figures["hiding_gain"] = f"{change} % at {_PUBLISHED} frames"
    found.figures["hiding_speed"] = (
        f"{text(compared[HIDING][SOONER])} median, {number(max(times))}x peak; without an adapter, at "
        f"{_PUBLISHED} frames"
    )
    title = f"published prefill hiding at {_PUBLISHED} frames; parallel is {gain} ms sooner than sequential"
    return Table(title, {name: compared[name] for name in (HIDING, SEQUENTIAL, ALONE)}, "decoder")


FRAMES = Bench("Speed-up by the number of frames", _parts, _result)
