"""A drive as a GIF: both cameras, when each model works, and the caption as it is verified.

A second runs in real time up to its last frame. What follows is over in a blink, so it is shown ten times
slower, beside the target alone, which gets the window then.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from PIL import Image

from crossspec_lab.compare.held_out import live, window_of
from crossspec_lab.world.camera import FRAME_PERIOD_S, FRAME_SIZE, events, frame
from crossspec_lab.world.phrases import QUESTION
from crossspec_lab.world.scene import Scene
from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.images import Canvas
from crossspec_ros.telemetry.trace import ROWS, STAGE_COLOURS, Trace
from crossspec_ros.windows.window import Window

Words = list[tuple[float, str]]
"""The text so far, and when: ms from the arrival of the window's last frame."""
_OPEN_STEP_MS, _SLOW_STEP_MS, _SLOWER, _HOLD_MS = 125, 10, 10, 2500
_MOST_STEPS = 30
"""After the last frame; a slow machine takes longer ones."""
_SHOWN_EVENTS_US = 50_000
_PICTURE_SIZE = (400, 300)
_OURS, _ALONE, _DRAFT = "#31a354", "#636363", "#d94801"
_COLOURS = 200
_COLUMNS = 112


@dataclass(frozen=True)
class Drive:
    """A drive through the synthetic world."""

    seed: int
    scenes: list[Scene]

    def picture(self, t: float, size: tuple[int, int] = FRAME_SIZE) -> np.ndarray:
        """Picture of the RGB camera at `t` seconds, (H, W, 3) uint8."""
        return frame(self.scenes, self.seed, t, size)

    def events(self, start_s: int, end_s: int) -> EventBatch:
        """Return the events of these seconds."""
        return EventBatch.concat(list(events(self.scenes, self.seed, start_s, end_s)))


@dataclass
class Second:
    """One window of a drive, its caption, and how both came about."""

    drive: Drive
    second: int
    window: Window
    caption: Caption
    trace: Trace
    drafts: list[str]
    """Words of the event draft, unless the window closed before it was done."""

    @property
    def words(self) -> Words:
        """The caption, once it was verified."""
        ends = [span.end_ns for span in self.trace.spans if span.stage == "answer"]
        return [(self.ms(ends[-1]), self.caption.text)] if ends else []

    def ms(self, at_ns: int) -> float:
        """From the arrival of the last frame to a time in ns of `time.perf_counter_ns`."""
        return (at_ns - self.trace.marks["last_frame"]) / 1e6


def live_second(decoder: PrefillHiddenDecoder, drive: Drive, second: int) -> Second:
    """Live through one second of the drive and caption it."""
    window = window_of(decoder.pair, drive.scenes, drive.seed, second)
    trace, drafts = Trace(), list[str]()
    caption = live(decoder, window, trace, QUESTION, drafts.append)
    return Second(drive, second, window, caption, trace, drafts)


def alone(decoder: PrefillHiddenDecoder, window: Window) -> Words:
    """Words of a decoder that gets the window when its last frame has come."""
    told, started = list[tuple[float, str]](), time.perf_counter()
    decoder.caption(
        window, QUESTION, Trace(), lambda text: told.append((1e3 * (time.perf_counter() - started), text))
    )
    return told


def write_gif(seconds: Sequence[Second], others: Sequence[Words], out: Path) -> None:
    """Animate the seconds; `others` is what the target alone said of each."""
    last_ms = max(words[-1][0] for words in [*others, *(second.words for second in seconds)])
    frames: list[Image.Image] = []
    durations: list[int] = []
    for second, other in zip(seconds, others, strict=True):
        batch = second.drive.events(second.second, second.second + 1)
        for at_ms, duration_ms in _moments(second.ms(second.trace.marks["closed"]) - 1000, last_ms):
            frames.append(_frame(second, batch, other, at_ms, last_ms))
            durations.append(duration_ms)
    palette = _palette(frames)
    frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    frames[0].save(out, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=True)


def _palette(frames: Sequence[Image.Image]) -> Image.Image:
    """One for all frames, or colours flicker; made of some of them side by side."""
    width, height = frames[0].size
    chosen = frames[:: max(1, len(frames) // 12)]
    sheet = Image.new("RGB", (width, height * len(chosen)))
    for i, shown in enumerate(chosen):
        sheet.paste(shown, (0, i * height))
    return sheet.quantize(_COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)


def _moments(first_ms: float, last_ms: float) -> Iterator[tuple[float, int]]:
    """Each picture's time from the last frame in ms, and how long it is shown in ms."""
    for at_ms in range(round(first_ms), 0, _OPEN_STEP_MS):
        yield at_ms, _OPEN_STEP_MS
    step_ms = max(_SLOW_STEP_MS, round(last_ms / _MOST_STEPS))
    for at_ms in range(0, int(last_ms), step_ms):
        yield at_ms, step_ms * _SLOWER
    yield last_ms, _HOLD_MS


def _frame(second: Second, batch: EventBatch, other: Words, at_ms: float, last_ms: float) -> Image.Image:
    figure = Figure(figsize=(8, 6.2), dpi=90)
    grid = figure.add_gridspec(
        3, 1, height_ratios=(3.4, 1.1, 2.2), left=0.09, right=0.98, top=0.95, bottom=0.01, hspace=0.35
    )
    closes_ms = second.ms(second.trace.marks["closed"])
    # The next second is another scene, so what follows the close is drawn over what was seen before it.
    t = second.second + 1 + min(at_ms - closes_ms, -1000 * FRAME_PERIOD_S) / 1000
    # Nor are the events of the scene before those of this one.
    t = max(t, second.second + _SHOWN_EVENTS_US / 1e6)
    pictures = grid[0].subgridspec(1, 2, wspace=0.03).subplots(squeeze=False)[0]
    shown = (second.drive.picture(t, _PICTURE_SIZE), _event_image(batch, t))
    titles = ("RGB camera", "event camera: red is brighter, blue is darker")
    for axes, image, title in zip(pictures, shown, titles, strict=True):
        axes.imshow(image, aspect="auto")
        axes.set_title(title, fontsize=9)
        axes.axis("off")
    before, after = grid[1].subgridspec(1, 2, width_ratios=(3, 2), wspace=0.03).subplots(squeeze=False)[0]
    _work(before, second, at_ms, (closes_ms - 1000, 0), "ms before the second's last frame")
    _work(after, second, at_ms, (0, last_ms * 1.03), f"ms after it, {_SLOWER} times slower")
    after.barh(2, max(0, min(at_ms, other[-1][0])), color=_ALONE, height=0.7)
    after.set_yticks([])
    _legend(before)
    _text(figure.add_subplot(grid[2]), second, other, at_ms)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _event_image(batch: EventBatch, t: float) -> np.ndarray:
    """The events of the last moment before `t` seconds."""
    first, last = np.searchsorted(batch.t, (t * 1e6 - _SHOWN_EVENTS_US, t * 1e6))
    canvas = Canvas(batch.width, batch.height)
    t_us, x, y, p = (values[first:last] for values in (batch.t, batch.x, batch.y, batch.p))
    canvas.draw(EventBatch(t_us, x, y, p, batch.width, batch.height))
    return canvas.image()


def _work(axes: Axes, second: Second, at_ms: float, limits: tuple[float, float], label: str) -> None:
    """Work of the models so far, a row for each."""
    for row, name in enumerate(("draft", "target")):
        for span in second.trace.spans:
            start_ms, end_ms = second.ms(span.start_ns), second.ms(span.end_ns)
            if span.stage in ROWS[name] and start_ms < at_ms:
                width_ms = min(end_ms, at_ms) - start_ms
                axes.barh(row, width_ms, left=start_ms, color=STAGE_COLOURS[span.stage], height=0.7)
    axes.axvline(at_ms, color="black", linewidth=0.8)
    axes.set_yticks(range(3), ["draft", "target", "alone"], fontsize=8)
    axes.set_ylim(2.6, -0.6)
    axes.set_xlim(*limits)
    axes.tick_params("x", labelsize=7)
    axes.set_xlabel(label, fontsize=8, labelpad=1)


def _legend(axes: Axes) -> None:
    """Name the colours of both models' stages, in one line above the axes."""
    patches = [Patch(color=STAGE_COLOURS[name], label=name) for name in (*ROWS["draft"], *ROWS["target"])]
    patches.append(Patch(color=_ALONE, label="target alone"))
    axes.legend(
        handles=patches,
        loc="lower left",
        bbox_to_anchor=(-0.05, 0.98),
        ncols=len(patches),
        fontsize=6.5,
        frameon=False,
        handlelength=1,
        handletextpad=0.4,
        columnspacing=1.2,
    )


def _text(axes: Axes, second: Second, other: Words, at_ms: float) -> None:
    axes.axis("off")
    drafted_ms = [second.ms(span.end_ns) for span in second.trace.spans if span.stage == "draft_decode"]
    draft: Words = [(max(drafted_ms), second.drafts[0])] if second.drafts and drafted_ms else []
    blocks = (
        ("guess from the events", draft, _DRAFT),
        ("caption, verified by the target", second.words, _OURS),
        ("the target alone, for comparison", other, _ALONE),
    )
    for i, (name, words, colour) in enumerate(blocks):
        said = [text for ms, text in words if ms <= at_ms]
        done = bool(words) and at_ms >= words[-1][0]
        when = f": complete after {words[-1][0]:.0f} ms" if done and words[-1][0] > 0 else ""
        top = 1 - i / 3
        axes.text(-0.06, top, name + when, color=colour, fontsize=8.5, weight="bold", va="top")
        late = "(not done when the last frame came)" if not words and at_ms >= 0 else ""
        text = textwrap.fill(said[-1] if said else late, _COLUMNS)
        axes.text(-0.06, top - 0.08, text, fontsize=8, va="top", linespacing=1.15)
