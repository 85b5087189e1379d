"""Experiment 1: how much sooner captions come with 1 to 64 frames a window.

The tiny target has learned with 8 frames. Of more or less it writes captions that are longer or shorter, and
from 32 on they are cut at 64 tokens. A speed-up is over the target alone with the same frames, and so with
the same caption; between numbers of frames the time to the first token can be compared. Both draft heads
know 8 frames only: ours is left out, and SpecVLM is nothing without its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from matplotlib.figure import Figure

from crossspec_lab.bench import statistics
from crossspec_lab.bench.decoders import ALONE, HIDING, OURS, SPECVLM, makers
from crossspec_lab.bench.held_out import FIRST_SEED
from crossspec_lab.bench.in_turns import compare
from crossspec_lab.bench.plots import bare
from crossspec_lab.bench.records import Log, paired
from crossspec_lab.bench.result import CLOSE, FIRST, SOONER, TOKENS, WALL, Result, cells
from crossspec_lab.bench.setting import Setting
from crossspec_lab.bench.statistics import WINDOWS_PER_DRIVE
from crossspec_lab.bench.tables import Cell, Table
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
_WAYS = (OURS, ALONE, SPECVLM, HIDING)
HEAD_NOTE = "SpecVLM's head learned with 8 frames, so its figures at other numbers of frames mean little."


def measure(setting: Setting) -> Log:
    """Each number of frames is a condition."""
    log = setting.log(NUMBER)
    few = setting.some(setting.size.frame_windows)
    for count in FRAMES:
        changed, windows, warm = with_count(setting, count, few)
        log = compare(changed, NUMBER, str(count), makers(changed.models, _WAYS), windows, warm)
    return log


def with_count(
    setting: Setting, count: int, windows: Sequence[tuple[Window, str]]
) -> tuple[Setting, list[tuple[Window, str]], Window]:
    """The setting for so many frames a window; these windows, and that which warms up, as it sees them."""
    changed = replace(setting, pair=with_frames(setting.pair, count))
    seen = [(seen_with(changed.pair, window), truth) for window, truth in windows]
    return changed, seen, seen_with(changed.pair, setting.warm)


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
    spec = pair.target.spec
    offsets = (np.arange(spec.frames) / spec.frames * SECOND).astype(int)
    frames = [
        resize_shortest(frame(scenes, seed, second + offset / SECOND), spec.image_size) for offset in offsets
    ]
    stamps = tuple(int(window.start_ns + offset) for offset in offsets)
    return replace(window, frames=np.stack(frames), frame_stamps_ns=stamps)


def result(setting: Setting, log: Log) -> Result:
    """Speed-ups and waits by number of frames."""
    found, rows = Result(), dict[str, dict[str, Cell]]()
    for count in FRAMES:
        alone = log.rows(str(count), ALONE)
        for way in _WAYS:
            mine = log.rows(str(count), way)
            row = cells([SOONER, FIRST, WALL, CLOSE, TOKENS], mine, alone, setting.seed)
            if key := {OURS: "ours", SPECVLM: "specvlm"}.get(way):
                found.figures[f"{key}_{count}"] = row[SOONER]
            rows[f"{count}: {way}"] = row | {
                "tokens a caption": float(np.mean([len(r.tokens) for r in mine]))
            }
    title = "by frames and decoder; times: median (10th to 90th percentile); ratios with their 95 % interval"
    found.tables.append(Table(title, rows, "frames: way"))
    found.plots["frames"] = _draw(setting, log)
    found.notes.append(
        "The tiny target learned with 8 frames: with other numbers its captions are poor, of another length, "
        "and cut at 64 tokens from 32 frames on; drafts that know its usual captions fit them less. Each "
        "speed-up is over the same caption of the target alone."
    )
    found.notes += [HEAD_NOTE, setting.trained.note]
    return found


def _draw(setting: Setting, log: Log) -> Figure:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    speeds, waits = figure.subplots(1, 2)
    for way in _WAYS:
        walls = [[record.wall_s for record in log.rows(str(count), way)] for count in FRAMES]
        (line,) = waits.plot(FRAMES, [1e3 * np.median(wall) for wall in walls], marker="o", label=way)
        if way != ALONE:
            both = [paired(log.rows(str(count), way), log.rows(str(count), ALONE)) for count in FRAMES]
            found = [
                statistics.speed([r.wall_s for r in alone], [r.wall_s for r in mine], setting.seed)
                for mine, alone in both
            ]
            values, low, high = np.array([(one.value, one.low, one.high) for one in found]).T
            ends = np.maximum(0, [values - low, high - values])
            speeds.errorbar(FRAMES, values, ends, marker="o", capsize=2, color=line.get_color(), label=way)
    predicted = {1: 0.9, 8: 3.0, 16: 3.5, 32: 4.0, 64: 4.5}
    speeds.plot(list(predicted), list(predicted.values()), "k:", label="predicted")
    speeds.axhline(1, color="grey", linewidth=0.8)
    speeds.set_ylabel("times sooner than the target alone")
    waits.set_ylabel("ms from the last frame to the caption")
    for axes in (speeds, waits):
        axes.set_xscale("log", base=2)
        axes.set_xticks(FRAMES, [str(count) for count in FRAMES])
        axes.set_xlabel("frames a window")
        axes.legend(fontsize=8)
    bare(speeds, waits)
    return figure
