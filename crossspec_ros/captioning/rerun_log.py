"""Log windows to Rerun: images, captions, answers, stages and figures, on ROS time."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.telemetry.trace import DRAFT_STAGES, TARGET_STAGES
from crossspec_ros.windows.window import EVENTS, FRAMES, Window

if TYPE_CHECKING:
    from crossspec_ros.captioning.caption import Caption
    from crossspec_ros.captioning.standing import Answered, Standing
    from crossspec_ros.telemetry.trace import Trace

VIEWER = "viewer"
"""Sink that opens a viewer on this machine."""
_ADDRESS, _TIMELINE = "rerun+http", "ros_time"
_PLOTTED = {"answer": "from the last frame to the caption", "total": "from the close to the caption"}
_LANES = (*DRAFT_STAGES, *TARGET_STAGES, "answer")
_MAX_ROWS = 1024
"""Maximum values that wait for the viewer, about 16 windows."""
_CLOSE_S = 5.0
_LOG = logging.getLogger(__name__)


class RerunLog:
    """Sends windows to a viewer or a file from its own thread, because a viewer may hang."""

    def __init__(self, where: str, patience_s: float = 0.0) -> None:
        """Open a viewer, connect to one at `rerun+http://HOST:PORT/proxy`, or begin a file.

        The log drops a value that does not fit into its queue within `patience_s`. Raises InputError without
        the package rerun-sdk, and for a viewer or file that cannot be opened.
        """
        try:
            import rerun
        except ImportError:
            raise InputError("rerun needs the package rerun-sdk: run pip install rerun-sdk==0.41.0") from None
        self._rerun: Any = rerun
        # A viewer compares runs that have the same application ID.
        self._out = rerun.RecordingStream("crossspec")
        try:
            if where == VIEWER:
                self._out.spawn(default_blueprint=_blueprint())
            elif where.startswith(_ADDRESS):
                self._out.connect_grpc(where, default_blueprint=_blueprint())
            else:
                # Rerun's writing thread reports no errors, so this tests whether the file can be written.
                open(where, "wb").close()
                self._out.save(where, default_blueprint=_blueprint())
        except (OSError, RuntimeError, ValueError) as error:
            raise InputError(
                f"rerun cannot use '{where[:200]}' ({getattr(error, 'strerror', None) or error}): name a "
                f"file that can be written, {VIEWER}, or a viewer's address {_ADDRESS}://HOST:9876/proxy"
            ) from None
        self._patience_s, self._has_warned = patience_s, False
        self._rows: queue.Queue[tuple[str, int, Callable[[], Any]] | None] = queue.Queue(_MAX_ROWS)
        # Without a watchdog, because a node must not end if its viewer hangs.
        self._thread = threading.Thread(target=self._work, name="rerun", daemon=True)
        self._thread.start()

    def captioned(self, window: Window, caption: Caption, trace: Trace, speedup: float = 0.0) -> None:
        """Log a window, its caption and stages, and the speedup over the target alone if it was measured."""
        kind = {"target": "verified", "unchanged": "unchanged"}.get(caption.source, "unverified")
        self.other(window, kind, caption.text)
        figures = {("ms", name): trace.stages.get(stage, 0.0) for stage, name in _PLOTTED.items()}
        figures["ratios", "tokens a pass"] = caption.mean_acceptance_length
        figures["ratios", "times faster than the target alone"] = speedup
        for path, value in figures.items():
            if value:
                self._scalar(path, window.end_ns, value)
        self._stages(window, trace)

    def other(self, window: Window, kind: str, text: str) -> None:
        """Log a window, and a text of this kind in place of its caption."""
        for path, images, stamps_ns in (
            (FRAMES, window.frames, window.frame_stamps_ns),
            (EVENTS, window.event_images, window.event_image_stamps_ns),
        ):
            for image, stamp_ns in zip(images, stamps_ns, strict=False):
                self._log(path, stamp_ns, partial(self._rerun.Image, image))
        self.text(kind, text, window.end_ns)
        self._log("caption", window.end_ns, partial(self._rerun.TextDocument, text))

    def text(self, kind: str, text: str, end_ns: int) -> None:
        """Log a text of this kind about the window that ends at `end_ns`."""
        levels = self._rerun.TextLogLevel
        level = {"draft": levels.DEBUG, "unverified": levels.WARN}.get(kind, levels.INFO)
        self._log(f"log/{kind}", end_ns, partial(self._rerun.TextLog, text, level=level))

    def answer(self, standing: Standing, answered: Answered, end_ns: int) -> None:
        """Log the answer to a standing question about the window that ends at `end_ns`."""
        self.text("answers", answered.line(standing), end_ns)
        for choice, probability in zip(standing.choices, answered.probabilities, strict=True):
            self._scalar(("answers", standing.question, choice), end_ns, probability)

    def close(self) -> None:
        """Write the remaining values, and wait a few seconds at most."""
        with suppress(queue.Full):
            self._rows.put(None, timeout=_CLOSE_S)
        self._thread.join(_CLOSE_S)

    def _stages(self, window: Window, trace: Trace) -> None:
        """Log the stages as lanes. The start of a span sets the state of its lane, and its end clears it."""
        offsets_ns = [window.end_ns - ns for mark, ns in trace.marks.items() if mark == "closed"]
        # The trace has another clock. A window may close late, but no answer begins before the last frame.
        for stamp_ns in window.frame_stamps_ns[-1:]:
            offsets_ns += [stamp_ns - span.start_ns for span in trace.spans if span.stage == "answer"]
        for span in trace.spans if offsets_ns else ():
            if span.stage in _LANES:
                for ns, state in ((span.start_ns, span.name), (span.end_ns, "")):
                    value = partial(self._rerun.StateChange, state=state)
                    self._log(f"stages/{span.stage}", ns + max(offsets_ns), value)

    def _scalar(self, path: tuple[str, ...], ns: int, value: float) -> None:
        # Rerun escapes names with spaces.
        self._log(self._rerun.new_entity_path(list(path)), ns, partial(self._rerun.Scalars, value))

    def _log(self, path: str, ns: int, make: Callable[[], Any]) -> None:
        try:
            self._rows.put((path, ns, make), timeout=self._patience_s)
        except queue.Full:
            self._patience_s = 0.0
            self._warn("is too slow, and lacks some windows")

    def _work(self) -> None:
        while (row := self._rows.get()) is not None:
            path, ns, make = row
            try:
                self._out.set_time(_TIMELINE, timestamp=np.datetime64(ns, "ns"))
                value = make()
                is_image = path in (FRAMES, EVENTS)
                self._out.log(path, value.compress(jpeg_quality=85) if is_image else value)
            except Exception as error:
                self._warn(f"lacks some values ({one_line(error)})")
        self._out.disconnect()

    def _warn(self, what: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning("the log for Rerun %s", what)


def _blueprint() -> Any:
    """Return views that fit a window of 1366x768 pixels."""
    import rerun
    import rerun.blueprint as views

    behind, ahead = (rerun.TimeRangeBoundary.cursor_relative(seconds=s) for s in (-2.0, 0.25))
    near = views.TimeAxis(view_range=rerun.TimeRange(start=behind, end=ahead))
    images = (views.Spatial2DView(origin=path) for path in (FRAMES, EVENTS))
    texts = views.TextDocumentView(origin="caption"), views.TextLogView(origin="log")
    plots = (views.TimeSeriesView(origin=path) for path in ("ms", "ratios", "answers"))
    above = views.Horizontal(*images, views.Vertical(*texts))
    below = views.Horizontal(views.StateTimelineView(origin="stages", time_view=near), views.Vertical(*plots))
    return views.Blueprint(
        views.Vertical(above, below, row_shares=[1, 1]),
        views.SelectionPanel(state="hidden"),
        views.BlueprintPanel(state="hidden"),
        views.TimePanel(state="collapsed", timeline=_TIMELINE, play_state="following"),
    )
