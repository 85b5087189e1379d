"""Messages about a window: its caption, its report and its picture."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from crossspec_msgs.msg import Caption as CaptionMessage
from crossspec_msgs.msg import ProposerCount, Stage, WindowReport
from crossspec_msgs.msg import Span as SpanMessage
from PIL import Image, ImageDraw, ImageFont, ImageOps
from std_msgs.msg import Header

from crossspec_ros.captioning.caption import RESTS_ON
from crossspec_ros.captioning.wording import absent_text, latencies
from crossspec_ros.ros.messages import to_time
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.quality import HARMLESS, trustworthy

if TYPE_CHECKING:
    from crossspec_ros.captioning.caption import Caption
    from crossspec_ros.windows.window import Window

_LEVELS = {
    "captioned": WindowReport.OK,
    "unchanged": WindowReport.OK,
    "unasked": WindowReport.OK,
    "skipped": WindowReport.WARN,
    "inactive": WindowReport.WARN,
    "failed": WindowReport.ERROR,
}
_HEIGHT, _MAX_WIDTH, _TEXT, _MARGIN = 240, 960, 16, 6
_BACKGROUND, _INK, _ABSENT = (24, 24, 24), (240, 240, 240), (70, 70, 70)


def report(window: Window, outcome: str, text: str, degraded: Sequence[str] = ()) -> WindowReport:
    """Return the report of a window with this outcome."""
    level, usable = _LEVELS[outcome], trustworthy(window, degraded)
    if set(degraded) - HARMLESS:
        level = max(level, WindowReport.WARN)
    return WindowReport(
        header=Header(stamp=to_time(window.end_ns)),
        window_start=to_time(window.start_ns),
        level=level,
        outcome=outcome,
        message=text,
        degraded=list(degraded),
        events=window.events,
        lost_packets=window.lost_packets,
        late_events=window.late_events,
        late_frames=window.late_frames,
        covered_ms=window.covered_ms,
        missing_images=min(window.missing, 2**32 - 1),
        frames=len(usable.frames),
        event_images=len(usable.event_images),
    )


def captioned_report(
    window: Window, caption: Caption, trace: Trace, degraded: Sequence[str], frame_id: str = ""
) -> WindowReport:
    """Return the report of a window with this caption."""
    message = report(window, "captioned", caption.text or absent_text(caption, degraded), degraded)
    if caption.source != "target" or not caption.text:
        message.level = WindowReport.WARN
    message.caption = caption_message(caption, window.end_ns, frame_id)
    message.rests_on = RESTS_ON[caption.source]
    message.cut_by_deadline = caption.late
    message.acceptance_length = float(caption.mean_acceptance_length)
    message.proposers = [
        ProposerCount(name=name, drafted=count, accepted=caption.accepted.get(name, 0))
        for name, count in caption.drafted.items()
    ]
    rehearsal = caption.rehearsal
    message.rehearsal_tokens, message.rehearsal_passes = len(rehearsal.token_ids), rehearsal.passes
    message.rehearsal_ms = 1e3 * rehearsal.seconds
    message.rehearsal_equal = bool(rehearsal.token_ids) and rehearsal.token_ids == caption.token_ids
    message.link_bytes_up, message.link_bytes_down = caption.traffic
    message.link_round_trip_ms = 1e3 * caption.round_trip_s
    message.stages = [Stage(name=name, ms=ms) for name, ms in latencies(trace).items()]
    closed_ns = trace.marks["closed"]
    message.spans = [
        SpanMessage(
            name=span.name, start_ms=(span.start_ns - closed_ns) / 1e6, end_ms=(span.end_ns - closed_ns) / 1e6
        )
        for span in trace.spans
    ]
    return message


def caption_message(caption: Caption, end_ns: int, frame_id: str = "") -> CaptionMessage:
    """Return the message of a caption. `end_ns` is the end of its window."""
    return CaptionMessage(
        header=Header(stamp=to_time(end_ns), frame_id=frame_id),
        text=caption.text,
        source=caption.source,
        verified=caption.source == "target",
        tokens=len(caption.token_ids),
        target_passes=caption.target_passes,
    )


def annotated(window: Window, lines: Sequence[str]) -> np.ndarray:
    """Draw a window's last frame and last event image side by side, over these lines.

    A missing image is grey. Returns (H, W, 3) uint8 RGB.
    """
    panels = [_panel(images) for images in (window.frames, window.event_images)]
    width = sum(panel.width for panel in panels) + 3 * _MARGIN
    font = ImageFont.load_default(_TEXT)
    columns = max(1, int((width - 2 * _MARGIN) / font.getlength("n")))
    text = [row for line in lines for row in textwrap.wrap(line, columns) or [""]]
    step = _TEXT * 5 // 4
    picture = Image.new("RGB", (width, _HEIGHT + 3 * _MARGIN + step * len(text)), _BACKGROUND)
    left = _MARGIN
    for panel in panels:
        picture.paste(panel, (left, _MARGIN))
        left += panel.width + _MARGIN
    draw = ImageDraw.Draw(picture)
    for i, row in enumerate(text):
        draw.text((_MARGIN, _HEIGHT + 2 * _MARGIN + step * i), row, _INK, font)
    return np.asarray(picture)


def _panel(images: np.ndarray) -> Image.Image:
    if not len(images):
        return Image.new("RGB", (_HEIGHT * 4 // 3, _HEIGHT), _ABSENT)
    # The maximum aspect ratio of an image is 200.
    return ImageOps.contain(Image.fromarray(images[-1]), (_MAX_WIDTH, _HEIGHT))
