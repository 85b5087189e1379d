"""Experiment 1: how much sooner captions come with 1 to 64 frames a window.

The tiny target has learned with 8 frames. Of more or less it writes captions that are longer or shorter, and
from 32 on they are cut at 64 tokens. A speed-up is over the target alone with the same frames, and so with
the same caption; between numbers of frames the time to the first token can be compared. Both draft heads
know 8 frames only: ours is left out, and SpecVLM is nothing without its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from matplotlib.figure import Figure

from crossspec_lab.compare.held_out import FIRST_SEED, WINDOWS_PER_DRIVE
from crossspec_lab.experiments import statistics
from crossspec_lab.experiments.compare import compare
from crossspec_lab.experiments.records import Log, Record, paired
from crossspec_lab.experiments.result import Cell, Result, Table
from crossspec_lab.experiments.setting import Setting
from crossspec_lab.experiments.statistics import Interval
from crossspec_lab.experiments.told import Told, said
from crossspec_lab.experiments.ways import ALONE, OURS, PARALLEL, SPECVLM, made
from crossspec_lab.world.camera import frame
from crossspec_lab.world.scene import drive
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.video_llava import VideoLlava
from crossspec_ros.windows.grid import SECOND
from crossspec_ros.windows.resize import resize_shortest
from crossspec_ros.windows.window import Window

TITLE = "Speed-up by the number of frames"
NUMBER = 1
FRAMES = (1, 4, 8, 16, 32, 64)
_LEAST_S = 1e-3
"""What grows from less than this has no growth worth a figure."""
_WAYS = (OURS, ALONE, SPECVLM, PARALLEL)
_GROWTH = (8, 64)
_SAME_WAYS = (OURS, ALONE, PARALLEL)
"""SpecVLM's head learns from the target's own states, and so cannot be told."""
HEADS_NOTE = (
    "Both heads learned with 8 frames. Ours is left out; SpecVLM is nothing without its own, so its figures "
    "at other numbers of frames say little."
)


def measure(setting: Setting) -> Log:
    """Each number of frames is a condition."""
    log = setting.log(NUMBER)
    for count in FRAMES:
        changed = replace(setting, pair=with_frames(setting.pair, count), heads={})
        windows = [
            (seen_with(changed.pair, w), truth) for w, truth in setting.some(setting.size.frame_windows)
        ]
        warm = seen_with(changed.pair, setting.warm)
        log = compare(changed, NUMBER, str(count), made(changed, _WAYS), windows, warm)
        if count in _GROWTH:
            responses = said(setting.pair, [w for w, _ in setting.some(setting.size.frame_windows)])
            told = Told(setting, changed.pair, responses | said(setting.pair, [setting.warm]))
            ways = made(told.setting, _SAME_WAYS)
            log = compare(told.setting, NUMBER, _same(count), ways, windows, warm, told.tell)
    return log


def _same(count: int) -> str:
    return f"{count}, same captions"


def with_frames(pair: ModelPair, count: int) -> ModelPair:
    """The same models, for windows of so many frames."""
    target = cast(VideoLlava, pair.target)
    each = target.spec.frame_tokens // target.spec.frames
    room = target.spec.most_tokens - target.spec.frame_tokens
    spec = replace(target.spec, frames=count, frame_tokens=count * each, most_tokens=count * each + room)
    return replace(pair, target=VideoLlava(target.module, target.tokenizer, spec))


def seen_with(pair: ModelPair, window: Window) -> Window:
    """The window as a camera sees it that takes the pair's number of frames, evenly spread."""
    seed, second = FIRST_SEED + window.index // WINDOWS_PER_DRIVE, window.index % WINDOWS_PER_DRIVE
    scenes = drive(seed, WINDOWS_PER_DRIVE + 1)
    offsets = (np.arange(pair.frames) / pair.frames * SECOND).astype(int)
    frames = [
        resize_shortest(frame(scenes, seed, second + offset / SECOND), pair.frame_size) for offset in offsets
    ]
    stamps = tuple(int(window.start_ns + offset) for offset in offsets)
    return replace(window, frames=np.stack(frames), frame_stamps_ns=stamps)


def result(setting: Setting, log: Log) -> Result:
    """Speed-ups, and how the wait after the close grows."""
    found, rows = Result(), list[list[Cell]]()
    for count in FRAMES:
        alone = log.rows(str(count), ALONE)
        for way in _WAYS:
            mine, theirs = paired(log.rows(str(count), way), alone)
            speed = statistics.speed(_walls(theirs), _walls(mine), setting.seed)
            key = {OURS: "ours", SPECVLM: "specvlm"}.get(way)
            if key:
                found.figures[f"{key}_{count}"] = speed
            closes = statistics.median([1e3 * record.from_close_s for record in mine], setting.seed)
            last = statistics.median([1e3 * wall for wall in _walls(mine)], setting.seed)
            tokens = statistics.ratio(
                [len(r.tokens) for r in mine], [max(1, r.passes) for r in mine], setting.seed
            )
            first = statistics.median([1e3 * r.first_token_s for r in mine], setting.seed)
            length = float(np.mean([len(r.tokens) for r in mine]))
            rows.append([f"{count}: {way}", speed, first, last, closes, tokens, length])
    found.tables.append(
        Table(
            "by frames and way; times are medians with their 95 % interval",
            [
                "frames: way",
                "sooner than alone, times",
                "last frame to first token, ms",
                "last frame to caption, ms",
                "close to caption, ms",
                "tokens a pass",
                "tokens a caption",
            ],
            rows,
        )
    )
    found.tables.append(
        _growth(setting, log, "growth from 8 to 64 frames, %, with the same captions", _SAME_WAYS, _same)
    )
    found.tables.append(
        _growth(setting, log, "growth from 8 to 64 frames, %; the captions of 64 are longer", _WAYS, str)
    )
    found.plots["frames"] = _draw(setting, log)
    found.notes.append(
        "The tiny target learned with 8 frames: with other numbers its captions are poor, of another length, "
        "and cut at 64 tokens from 32 frames on; drafts that know its usual captions fit them less. Each "
        "speed-up is over the same caption of the target alone. 'With the same captions', target and draft "
        "compute as usual, but say what they said with 8 frames, so that the cost of frames is "
        "seen apart from that of captions."
    )
    found.notes += [HEADS_NOTE, setting.trained.note]
    return found


def _walls(records: list[Record]) -> list[float]:
    return [record.wall_s for record in records]


def _growth(
    setting: Setting, log: Log, title: str, ways: Sequence[str], condition: Callable[[int], str]
) -> Table:
    rows: list[list[Cell]] = []
    for way in ways:
        few, many = paired(*(log.rows(condition(count), way) for count in _GROWTH))
        # A caption that is there when its window closes grows from nothing; the last frame tells more then.
        cells: list[Cell] = [
            statistics.interval(_percent_more, [of(r) for r in few], [of(r) for r in many], seed=setting.seed)
            if np.median([of(r) for r in few]) >= _LEAST_S
            else None
            for of in (_first, _from_close, _from_last)
        ]
        first = [1e3 * float(np.median([r.first_token_s for r in of])) for of in (few, many)]
        close = [1e3 * float(np.median([r.from_close_s for r in of])) for of in (few, many)]
        rows.append([way, *first, *close, *cells])
    return Table(
        title,
        [
            "way",
            "first token, 8 frames, ms",
            "64 frames, ms",
            "close to caption, 8 frames, ms",
            "64 frames, ms",
            "growth to the first token",
            "from the close",
            "from the last frame",
        ],
        rows,
    )


def _percent_more(few: np.ndarray, many: np.ndarray) -> float:
    return 100 * (float(np.median(many)) / max(float(np.median(few)), _LEAST_S) - 1)


def _first(record: Record) -> float:
    return record.first_token_s


def _from_close(record: Record) -> float:
    return record.from_close_s


def _from_last(record: Record) -> float:
    return record.wall_s


def _draw(setting: Setting, log: Log) -> Figure:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    speeds, waits = figure.subplots(1, 2)
    for way in _WAYS:
        of = {count: log.rows(str(count), way) for count in FRAMES}
        medians = [1e3 * np.median(_walls(rows)) for rows in of.values()]
        (line,) = waits.plot(FRAMES, medians, marker="o", label=way)
        if way != ALONE:
            pairs = [paired(of[count], log.rows(str(count), ALONE)) for count in FRAMES]
            found: list[Interval] = [
                statistics.speed(_walls(theirs), _walls(mine), setting.seed) for mine, theirs in pairs
            ]
            speeds.errorbar(
                FRAMES,
                [one.value for one in found],
                [
                    [max(0, one.value - one.low) for one in found],
                    [max(0, one.high - one.value) for one in found],
                ],
                marker="o",
                capsize=2,
                color=line.get_color(),
                label=way,
            )
    predicted = {1: 0.9, 8: 3.0, 16: 3.5, 32: 4.0, 64: 4.5}
    speeds.plot(list(predicted), list(predicted.values()), "k:", label="predicted")
    speeds.axhline(1, color="grey", linewidth=0.8)
    for axes, label in (
        (speeds, "times sooner than the target alone"),
        (waits, "ms from the last frame to the caption"),
    ):
        axes.set_xscale("log", base=2)
        axes.set_xticks(FRAMES, [str(count) for count in FRAMES])
        axes.set_xlabel("frames a window")
        axes.set_ylabel(label)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8)
    return figure
