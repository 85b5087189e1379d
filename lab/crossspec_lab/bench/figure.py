"""`crossspec bench figure`: a drive as a GIF with both cameras, two captions as they appear, and a clock.

A second runs in real time up to its last frame. The time after it is shown ten times slower. The second
caption is that of the same model alone, which gets the window at the last frame.
"""

from __future__ import annotations

import argparse
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from crossspec_lab.bench.input_windows import window_of
from crossspec_lab.bench.live import OPTIONS, live
from crossspec_lab.heads.decoder import head_decoder
from crossspec_lab.world.camera import FRAME_PERIOD_S, events, frame
from crossspec_lab.world.scene import Scene, drive
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.load_decoder import speculative_decoder
from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.images import Canvas
from crossspec_ros.models.loading import load_pair
from crossspec_ros.paths import tiny_models
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

Words = list[tuple[float, str]]
"""The text so far, and when: ms from the arrival of the window's last frame."""
_OPEN_STEP_MS, _SLOW_STEP_MS, _SLOWER, _HOLD_MS = 125, 10, 10, 2500
_MAX_STEPS = 30
"""Pictures after the last frame; a slow machine takes longer ones."""
_SHOWN_EVENTS_US = 50_000
_WIDTH, _HEIGHT, _GAP, _LINE = 400, 300, 8, 18
_OURS, _ALONE = "#31a354", "#636363"
_COLOURS, _COLUMNS = 200, 110


def run(args: argparse.Namespace) -> int:
    """Caption seconds of the drive `args.seed` and draw them to `args.out`."""
    if args.out.suffix != ".gif":
        raise InputError(f"'{args.out}' is no .gif: name a file that ends in .gif")
    pair = load_pair(args.models or tiny_models())
    last = args.second + args.seconds
    scenes = drive(args.seed, last + 2)
    with closing(speculative_decoder(pair)) as decoder:
        # The memory has the captions of the seconds before, as that of a running node.
        seconds = [live_second(decoder, scenes, args.seed, second) for second in range(last)][args.second :]
    with closing(head_decoder(pair, names=())) as target:
        others = [alone(target, second.window) for second in seconds]
    for second, other in zip(seconds, others, strict=True):
        ours_ms, alone_ms = second.words[-1][0], other[-1][0]
        print(f"second {second.second}: {ours_ms:.0f} ms, the target alone {alone_ms:.0f} ms", flush=True)
    write_gif(seconds, others, args.out)
    print(args.out)
    return 0


@dataclass
class Second:
    """One window of a drive, its events, its caption's words, and its close in ms from its last frame."""

    scenes: list[Scene]
    seed: int
    second: int
    window: Window
    events: EventBatch
    words: Words
    closes_ms: float

    def pictures(self, at_ms: float) -> tuple[np.ndarray, np.ndarray]:
        """Return what the RGB camera and the event camera show, (H, W, 3) uint8."""
        # The next second is another scene, so the last frame stays until the caption is complete.
        t = self.second + 1 + min(at_ms - self.closes_ms, -1000 * FRAME_PERIOD_S) / 1000
        t = max(t, self.second + _SHOWN_EVENTS_US / 1e6)
        first, last = np.searchsorted(self.events.t, (t * 1e6 - _SHOWN_EVENTS_US, t * 1e6))
        canvas = Canvas(self.events.width, self.events.height)
        canvas.draw(self.events[first:last])
        return frame(self.scenes, self.seed, t, (_WIDTH, _HEIGHT)), canvas.image()


def live_second(decoder: PrefillHiddenDecoder, scenes: list[Scene], seed: int, second: int) -> Second:
    """Caption one second of the drive in real time."""
    window, trace = window_of(decoder.pair, scenes, seed, second), Trace()
    caption = live(decoder, window, trace)
    last_ns = trace.marks["last_frame"]
    ends = [span.end_ns for span in trace.spans if span.stage == "answer"]
    words = [((ends[-1] - last_ns) / 1e6, caption.text)]
    batch = EventBatch.concat(list(events(scenes, seed, second, second + 1)))
    return Second(scenes, seed, second, window, batch, words, (trace.marks["closed"] - last_ns) / 1e6)


def alone(decoder: PrefillHiddenDecoder, window: Window) -> Words:
    """Return words of a decoder that gets the window at its last frame."""
    words, started = Words(), time.perf_counter()
    decoder.caption(
        window, OPTIONS, Trace(), lambda text: words.append((1e3 * (time.perf_counter() - started), text))
    )
    return words


def write_gif(seconds: Sequence[Second], others: Sequence[Words], out: Path) -> None:
    """Animate the seconds; `others` has the words of the target alone."""
    last_ms = max(words[-1][0] for words in [*others, *(second.words for second in seconds)])
    frames: list[Image.Image] = []
    durations: list[int] = []
    for second, other in zip(seconds, others, strict=True):
        for at_ms, duration_ms in _moments(second.closes_ms - 1000, last_ms):
            frames.append(_frame(second, other, at_ms))
            durations.append(duration_ms)
    # One palette for all, or colours flicker.
    chosen = frames[:: max(1, len(frames) // 12)]
    sheet = Image.fromarray(np.concatenate([np.asarray(one) for one in chosen]))
    palette = sheet.quantize(_COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    frames[0].save(out, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)


def _moments(first_ms: float, last_ms: float) -> Iterator[tuple[float, int]]:
    """Yield each picture's time from the last frame and its duration, in ms."""
    for at_ms in range(round(first_ms), 0, _OPEN_STEP_MS):
        yield at_ms, _OPEN_STEP_MS
    step_ms = max(_SLOW_STEP_MS, round(last_ms / _MAX_STEPS))
    for at_ms in range(0, int(last_ms), step_ms):
        yield at_ms, step_ms * _SLOWER
    yield last_ms, _HOLD_MS


def _frame(second: Second, other: Words, at_ms: float) -> Image.Image:
    image = Image.new("RGB", (2 * _WIDTH + _GAP, _HEIGHT + 11 * _LINE), "white")
    for i, pixels in enumerate(second.pictures(at_ms)):
        image.paste(Image.fromarray(pixels).resize((_WIDTH, _HEIGHT)), (i * (_WIDTH + _GAP), 0))
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(13)
    slower = f", {_SLOWER} times slower" if at_ms >= 0 else ""
    draw.text((_GAP, _HEIGHT + 4), f"{at_ms:+.0f} ms from the last frame{slower}", "black", font)
    blocks = (("crossspec_ros", second.words, _OURS), ("the same model alone", other, _ALONE))
    for i, (name, words, colour) in enumerate(blocks):
        top = _HEIGHT + (2 + 4.5 * i) * _LINE
        when = f": complete after {words[-1][0]:.0f} ms" if at_ms >= words[-1][0] > 0 else ""
        draw.text((_GAP, top), name + when, colour, font)
        written = [text for ms, text in words if ms <= at_ms]
        text = textwrap.fill(written[-1] if written else "", _COLUMNS)
        draw.text((_GAP, top + _LINE), text, "black", font)
    return image
