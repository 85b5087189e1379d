"""Windows of drives that training never saw, and how decoders live through them or get them afterwards."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from crossspec_lab.baselines.written import Baseline, Written
from crossspec_lab.bench.harness import Decoder
from crossspec_lab.bench.statistics import WINDOWS_PER_DRIVE
from crossspec_lab.world.camera import FRAME_PERIOD_S, events, frame
from crossspec_lab.world.dataset import HELD_OUT
from crossspec_lab.world.phrases import QUESTION
from crossspec_lab.world.scene import Scene, drive
from crossspec_ros.captioning.caption import Caption, Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import available
from crossspec_ros.paths import tiny_models
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.assembler import WindowAssembler
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.resize import resize_shortest
from crossspec_ros.windows.synchronizer import EventImageReady, FrameReady, Synchronizer
from crossspec_ros.windows.window import FRAMES, Window

OPTIONS = Options(QUESTION)
FIRST_SEED = HELD_OUT + 500_000
_IDLE_S = 0.1
"""Pause before a decoder that begins at the last frame: ours too comes from idling."""
_POLL_S = 2e-4


def held_out_windows(pair: ModelPair, count: int) -> Iterator[tuple[Window, Scene]]:
    """Windows of drives that training never saw, at the sizes the synchronizer would send them."""
    for i in range(count):
        seed, second = FIRST_SEED + i // WINDOWS_PER_DRIVE, i % WINDOWS_PER_DRIVE
        scenes = drive(seed, WINDOWS_PER_DRIVE + 1)
        yield window_of(pair, scenes, seed, second), scenes[second]


def event_shape(pair: ModelPair) -> tuple[int, int]:
    """Event images of a window and their shortest edge; zeros without a draft."""
    return (pair.draft.event_images, pair.draft.image_size) if pair.draft else (0, 0)


def window_of(pair: ModelPair, scenes: list[Scene], seed: int, second: int) -> Window:
    """One second of a drive as the captioner would get it from the synchronizer."""
    grid = WindowGrid(slots=pair.target.spec.frames)
    images, side = event_shape(pair)
    synchronizer = Synchronizer(grid, images)
    assembler = WindowAssembler(grid)
    batch = EventBatch.concat(list(events(scenes, seed, second, second + 1)))
    in_ros_time = EventBatch(batch.t * 1000, batch.x, batch.y, batch.p, batch.width, batch.height)
    updates = list(synchronizer.add_events(in_ros_time))
    for tick in range(round(1 / FRAME_PERIOD_S)):
        t = second + tick * FRAME_PERIOD_S
        updates += synchronizer.add_frame(round(t * SECOND), partial(frame, scenes, seed, t))
    for update in [*updates, *synchronizer.advance(FRAMES, (second + 20) * SECOND)]:
        if isinstance(update, FrameReady):
            assembler.add_frame(update.stamp_ns, resize_shortest(update.image, pair.target.spec.image_size))
        elif isinstance(update, EventImageReady):
            assembler.add_event_image(update.stamp_ns, resize_shortest(update.image, side))
        else:
            return next(iter(assembler.close(*update)))
    raise AssertionError("a window with data closes")


def live(decoder: PrefillHiddenDecoder, window: Window, trace: Trace, options: Options = OPTIONS) -> Caption:
    """Caption the window in real time, and mark "last_frame" and "closed" in the trace.

    Frames come at their stamps, and event images at the ends of slices of equal time. The target rehearses in
    between. The answer begins with the last frame, and is returned after the window has closed.
    """
    length, slices = window.end_ns - window.start_ns, len(window.event_images)
    arrivals: list[tuple[int, Callable[[], Future[None] | None]]] = []
    for i, (image, stamp_ns) in enumerate(zip(window.frames, window.frame_stamps_ns, strict=True)):
        is_last = i + 1 == len(window.frames)
        take = partial(decoder.stream_frame, window.index, image, stamp_ns, is_last, options)
        arrivals.append((stamp_ns - window.start_ns, take))
        if is_last:
            arrivals.append((stamp_ns - window.start_ns, partial(decoder.begin, window.index, options)))
    for i, image in enumerate(window.event_images):
        draft = partial(decoder.stream_event_image, window.index, image, options)
        arrivals.append(((i + 1) * length // slices, draft))
    opened = time.perf_counter_ns()
    last_ns = opened + max((stamp - window.start_ns for stamp in window.frame_stamps_ns), default=length)
    for offset, arrive in sorted(arrivals, key=lambda arrival: arrival[0]):
        sleep_until(opened + offset)
        arrive()
    sleep_until(opened + length)
    # The time of an image that comes late counts as waiting, so the marks are the planned times.
    trace.mark("last_frame", last_ns)
    trace.mark("closed", opened + length)
    return decoder.caption(window, options, trace)


def sleep_until(at_ns: int) -> None:
    """Sleep until this time of `perf_counter_ns`."""
    time.sleep(max(0, at_ns - time.perf_counter_ns()) / 1e9)


def timed(decoder: Any, stack: ExitStack, options: Options = OPTIONS) -> Decoder[Window]:
    """Captioning by a decoder in real time: ours lives through the window, others begin at its last frame.

    The decoder is closed with the stack.
    """
    if hasattr(decoder, "close"):
        stack.enter_context(closing(decoder))
    is_ours = isinstance(decoder, PrefillHiddenDecoder)
    return lived(decoder, options) if is_ours else begun_at_last_frame(decoder)


def lived(decoder: PrefillHiddenDecoder, options: Options = OPTIONS) -> Decoder[Window]:
    """Read the window while it is open."""

    def run(window: Window, trace: Trace) -> Written:
        caption = live(decoder, window, trace, options)
        return Written(caption.token_ids, caption.accept_lengths)

    return run


def begun_at_last_frame(answer: Baseline) -> Decoder[Window]:
    """Get the window when its last frame has come."""

    def run(window: Window, trace: Trace) -> Written:
        time.sleep(_IDLE_S)
        came_ns = time.perf_counter_ns()
        trace.mark("last_frame", came_ns)
        trace.mark("closed", came_ns + window.end_ns - max(window.frame_stamps_ns))
        return answer(window, QUESTION, trace)

    return run


def stream(
    decoder: PrefillHiddenDecoder, window: Window, options: Options = OPTIONS, frames: int | None = None
) -> float:
    """Give a decoder the window's images as while it is open, but only so many `frames`.

    All of it is read, drafted, rehearsed and prepared for, however long that takes. Returns the seconds that
    rehearsing and preparing took.
    """
    seconds = 0.0
    drafting = [decoder.stream_event_image(window.index, image, options) for image in window.event_images]
    for work in drafting:
        if work is not None:
            work.result()
    for shown, stamp_ns in list(zip(window.frames, window.frame_stamps_ns, strict=True))[:frames]:
        read = decoder.stream_frame(window.index, shown, stamp_ns, rehearsed=options)
        if read is not None:
            read.result()
        begun = time.perf_counter()
        wait_until_idle(decoder, window.index)
        seconds += time.perf_counter() - begun
    return seconds


def wait_until_idle(decoder: PrefillHiddenDecoder, index: int) -> None:
    """Wait until the engine has nothing left to rehearse or to prepare for the open window `index`."""
    live = decoder._live.find(index)
    while live is not None and live.handle is not None and live.handle.has_more:
        time.sleep(_POLL_S)


def measured_pair(args: argparse.Namespace) -> ModelPair:
    """The pair that a benchmark's arguments name, in float32."""
    models = args.models or tiny_models()
    placement = available("float32", args.device)
    return load_pair(models, args.threads, placement=placement, target=args.target)
