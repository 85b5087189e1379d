"""`crossspec bench change`: windows that the gate of captions lets through, and the target's time it saves.

A window has changed where its true caption is another than that of the window captioned last.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.progress import track

from crossspec_lab.compare.harness import check_windows, in_turns, spread, table, tell
from crossspec_lab.compare.held_out import measured_pair
from crossspec_lab.compare.plots import bare
from crossspec_lab.world.camera import FRAME_PERIOD_S
from crossspec_lab.world.dataset import FRAMES as SLOTS
from crossspec_lab.world.dataset import HELD_OUT, small_event_images, small_frames
from crossspec_lab.world.phrases import QUESTION, caption
from crossspec_lab.world.scene import Scene, drive, stop_and_go
from crossspec_ros.captioning.assembly import speculative_decoder
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.telemetry.trace import TARGET_STAGES, Trace
from crossspec_ros.windows.change import ChangeGate, GateSettings
from crossspec_ros.windows.grid import SECOND
from crossspec_ros.windows.window import EVENTS, FRAMES, Window

FIRST_SEED = HELD_OUT + 800_000
WINDOWS_PER_DRIVE = 20
CONTRASTS = (0.06, 0.08, 0.1, 0.12, 0.14, 0.16, 0.18, 0.2, 0.25, 0.3, 0.4)
"""Thresholds of the curves."""
TIMED_DRIVES, REPEATS = 3, 5
WAYS = ("always", "changed")
_TIMES_S = [ceil(slot / SLOTS / FRAME_PERIOD_S) * FRAME_PERIOD_S for slot in range(SLOTS)]
"""First frames of the slots, behind the start of a window."""

_WORLDS: dict[str, Callable[[int, int], list[Scene]]] = {"stop and go": stop_and_go, "driving": drive}
_EYES = {"frames and events": (FRAMES, EVENTS), "frames alone": (FRAMES,), "events alone": (EVENTS,)}
Drive = list[tuple[Window, str]]
"""Windows, each with its true caption."""


@dataclass
class _Tally:
    """Counts over windows, and how many images had come when a window was noticed."""

    changed: int = 0
    captioned: int = 0
    same: int = 0
    held: int = 0
    noticed_at: tuple[int, ...] = ()

    def figures(self) -> dict[str, Any]:
        return {
            "changed": self.changed,
            "changed_captioned": self.captioned / self.changed if self.changed else None,
            "same": self.same,
            "same_held_back": self.held / self.same if self.same else None,
        }


def run(args: argparse.Namespace) -> int:
    """Measure, print tables, and write figures and curves where asked."""
    check_windows(args.windows)
    drives = {name: list(_drives(make, args.windows, name)) for name, make in _WORLDS.items()}
    figures: dict[str, Any] = {
        "windows": args.windows,
        "contrast": GateSettings.contrast,
        "curves": {
            world: {
                eyes: {str(contrast): _gated(films, contrast, kinds).figures() for contrast in CONTRASTS}
                for eyes, kinds in _EYES.items()
            }
            for world, films in drives.items()
        },
    }
    for world, films in drives.items():
        chosen = _gated(films, GateSettings.contrast, _EYES["frames and events"])
        figures[world] = chosen.figures() | {
            "noticed_at_first_image": chosen.noticed_at.count(1) / max(1, chosen.captioned)
        }
        print(table(f"{world}: shares by threshold", figures["curves"][world]["frames and events"]))
    print(table("as the captioner does", {world: figures[world] for world in drives}))
    figures["target_s_per_minute"] = times = _timed(args)
    print(table("the target's seconds a minute of a drive that stands half of it", {"": times}))
    tell(args, figures, partial(_draw, figures))
    return 0


def _drives(make: Callable[[int, int], list[Scene]], windows: int, name: str) -> Iterator[Drive]:
    seeds = range(FIRST_SEED, FIRST_SEED + ceil(windows / WINDOWS_PER_DRIVE))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        drawn = pool.map(partial(_film, make), seeds)
        yield from track(drawn, f"drawing {name}", len(seeds))


def _film(make: Callable[[int, int], list[Scene]], seed: int) -> Drive:
    scenes = make(seed, WINDOWS_PER_DRIVE + 1)
    film = []
    for i, scene in enumerate(scenes[:-1]):
        frames = small_frames(scenes, seed, i, _TIMES_S)
        stamps_ns = tuple(i * SECOND + round(t * SECOND) for t in _TIMES_S)
        images = small_event_images(scenes, seed, i)
        film.append((Window(i, i * SECOND, (i + 1) * SECOND, images, frames, stamps_ns), caption(scene)))
    return film


def _arrivals(window: Window) -> list[tuple[str, int]]:
    """Kinds and numbers of the images in the order in which they come."""
    frames = [(stamp_ns, FRAMES, i) for i, stamp_ns in enumerate(window.frame_stamps_ns)]
    slices = len(window.event_images)
    events = [(window.start_ns + (i + 1) * SECOND // slices, EVENTS, i) for i in range(slices)]
    return [(kind, i) for _, kind, i in sorted([*frames, *events])]


def _gated(films: Sequence[Drive], contrast: float, kinds: Sequence[str]) -> _Tally:
    """Every window through the gate, without a longest time, as it sees these kinds of images."""
    tally = _Tally()
    for film in films:
        holds: int | None = None
        gate, said = ChangeGate(GateSettings("changed", contrast, WINDOWS_PER_DRIVE)), ""
        for window, true in film:
            seen = replace(
                window,
                frames=window.frames if FRAMES in kinds else window.frames[:0],
                frame_stamps_ns=window.frame_stamps_ns if FRAMES in kinds else (),
                event_images=window.event_images if EVENTS in kinds else window.event_images[:0],
            )
            given: list[str] = []
            images, noticed_at = {FRAMES: seen.frames, EVENTS: seen.event_images}, 0
            for number, (kind, i) in enumerate(_arrivals(seen), 1):
                gate.stream(seen.index, kind, images[kind][i], partial(given.append, kind))
                noticed_at = noticed_at or (number if given else 0)
            passes, has_changed = gate.judge(seen, holds) == "caption", true != said
            holds = seen.index if passes else holds
            if said:
                tally.changed += has_changed
                tally.captioned += has_changed and passes
                tally.noticed_at += (noticed_at,) * (has_changed and passes)
                tally.same += not has_changed
                tally.held += not has_changed and not passes
            said = true if passes else said
    return tally


def _timed(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds of the target with the tiny pair, each decoder with a caption memory of its own."""
    pair = measured_pair(args)
    with ExitStack() as stack:
        decoders = [stack.enter_context(closing(speculative_decoder(pair))) for _ in WAYS]
        return target_times(dict(zip(WAYS, decoders, strict=True)), standing_films(REPEATS * TIMED_DRIVES))


def standing_films(count: int) -> list[Drive]:
    """Drives that stand half of the time and see nothing new there."""
    longer = partial(stop_and_go, shortest=10, longest=10, stirring=0.0)
    seeds = range(FIRST_SEED, FIRST_SEED + count)
    return [_film(longer, seed) for seed in track(seeds, "drawing drives that stand")]


def target_times(
    decoders: dict[str, PrefillHiddenDecoder], films: Sequence[Drive], tell: Callable[[str], Any] = str
) -> dict[str, Any]:
    """Seconds that the target works for a minute of these drives, by when it captions, taking turns.

    Args:
        decoders: one for each of WAYS.
        tell: called with a window's true caption, before its images come.
    """
    minutes = [films[i : i + TIMED_DRIVES] for i in range(0, len(films), TIMED_DRIVES)]
    seconds: dict[str, list[float]] = {when: [] for when in WAYS}
    numbers = dict.fromkeys(WAYS, 0)
    for when, minute in in_turns(WAYS, track(minutes, "captioning")):
        told = [_captioned(decoders[when], film, GateSettings(when), tell) for film in minute]
        seconds[when].append(sum(took_s for took_s, _ in told))
        numbers[when] += sum(captions for _, captions in told)
    saved = 1 - np.array(seconds["changed"]) / np.array(seconds["always"])
    return {
        **{when: spread(values) for when, values in seconds.items()},
        "saved": spread(saved),
        "windows": numbers["always"],
        "windows_captioned": numbers["changed"],
    }


def _captioned(
    decoder: PrefillHiddenDecoder, film: Drive, settings: GateSettings, tell: Callable[[str], Any]
) -> tuple[float, int]:
    """Seconds that the target worked for a drive, and how many windows were captioned."""
    gate, took_ns, captions = ChangeGate(settings), 0, 0
    holds: int | None = None
    for window, true in film:
        tell(true)
        for kind, i in _arrivals(window):
            if kind == FRAMES:
                image, stamp_ns = window.frames[i], window.frame_stamps_ns[i]
                give = partial(decoder.stream_frame, window.index, image, stamp_ns)
            else:
                image = window.event_images[i]
                give = partial(decoder.stream_event_image, window.index, image, QUESTION)
            gate.stream(window.index, kind, image, give)
        if gate.judge(window, holds) == "caption":
            holds, trace = window.index, Trace()
            decoder.caption(window, QUESTION, trace)
            took_ns += sum(span.end_ns - span.start_ns for span in trace.spans if span.stage in TARGET_STAGES)
            captions += 1
    return took_ns / 1e9, captions


def _draw(figures: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, world in zip(figure.subplots(1, 2, sharey=True), _WORLDS, strict=True):
        for (eyes, curve), style in zip(figures["curves"][world].items(), ("-", "--", ":"), strict=True):
            for key, colour in (("changed_captioned", "#31a354"), ("same_held_back", "#3182bd")):
                label = f"{key.replace('_', ', ', 1).replace('_', ' ')} ({eyes})"
                axes.plot(
                    CONTRASTS,
                    [curve[str(contrast)][key] for contrast in CONTRASTS],
                    style,
                    color=colour,
                    label=label,
                )
        axes.axvline(figures["contrast"], color="#969696", linewidth=1)
        axes.set_title(f"{world}: {figures[world]['changed'] + figures[world]['same']} windows", fontsize=10)
        axes.set_xlabel("threshold: changed_contrast", fontsize=9)
        bare(axes)
    figure.axes[0].set_ylabel("share of windows", fontsize=9)
    figure.axes[0].legend(fontsize=7, loc="lower left")
    return figure
