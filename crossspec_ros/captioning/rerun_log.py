"""Windows for Rerun's viewer: images, captions, answers, a lane for each stage, figures; on ROS time.

Needs the package `rerun-sdk`. Recordings of several runs have one application, so a viewer compares them.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
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

_SPANS_MS = {"answer": "from the last frame to the caption", "total": "from the close to the caption"}
"""Plots of spans, by their stages."""
_LANES = (*DRAFT_STAGES, *TARGET_STAGES, "answer")
_SHOWN_S = 2.0
"""Seconds of stages before the cursor."""
VIEWER = "viewer"
"""Value of the parameter that opens a viewer here, in place of a file's or a viewer's address."""
_ADDRESS = "rerun+http"
_APPLICATION, _TIMELINE = "crossspec", "ros_time"
_JPEG_QUALITY = 85
_MOST_WAITING = 16
"""Windows, answers and texts that wait for the viewer."""
_FAREWELL_S = 5.0
_LOG = logging.getLogger(__name__)


class RerunLog:
    """Tells windows to a viewer, or writes them into a file, in a thread of its own: a viewer that hangs
    blocks whoever tells it.

    What does not fit into its queue within `patience_s` is dropped, which is told once.
    """

    def __init__(self, where: str, patience_s: float = 0.0) -> None:
        """Open a viewer, connect to the one at an address `rerun+http://HOST:PORT/proxy`, or begin a file.

        Raises InputError where Rerun is not installed, cannot be opened, or its file cannot be written.
        """
        try:
            import rerun
        except ImportError:
            raise InputError(
                "rerun needs the package rerun-sdk: install it with pip install rerun-sdk==0.41.0"
            ) from None
        self._rerun: Any = rerun
        self._out = rerun.RecordingStream(_APPLICATION)
        try:
            if where == VIEWER:
                self._out.spawn(default_blueprint=_blueprint())
            elif where.startswith(_ADDRESS):
                self._out.connect_grpc(where, default_blueprint=_blueprint())
            else:
                # The library writes in a thread of its own, which tells nobody that it cannot.
                with open(where, "wb"):
                    pass
                self._out.save(where, default_blueprint=_blueprint())
        except (OSError, RuntimeError, ValueError) as error:
            raise InputError(
                f"rerun cannot use '{where[:200]}' ({getattr(error, 'strerror', None) or error}): name a "
                f"file that can be written, {VIEWER}, or a viewer's address {_ADDRESS}://HOST:9876/proxy"
            ) from None

        self._patience_s = patience_s
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(_MOST_WAITING)
        self._is_told = False
        # Without a pulse: a node must not end with its viewer.
        self._thread = threading.Thread(target=self._work, name="rerun", daemon=True)
        self._thread.start()

    def captioned(self, window: Window, caption: Caption, trace: Trace, times_sooner: float = 0.0) -> None:
        """Tell a window, its caption and stages; and how much sooner than the target alone it came, where
        that was measured."""
        self._later(partial(self._captioned, window, caption, trace, times_sooner))

    def other(self, window: Window, kind: str, text: str) -> None:
        """Tell a window, and the text of this kind that became of it."""
        self._later(partial(self._window, window, kind, text))

    def text(self, kind: str, text: str, end_ns: int) -> None:
        """Tell a text of this kind about the window that ends there."""
        self._later(partial(self._text, kind, text, end_ns))

    def answer(self, standing: Standing, answered: Answered, end_ns: int) -> None:
        """Tell the answer to a standing question about the window that ends there."""
        self._later(partial(self._answer, standing, answered, end_ns))

    def close(self) -> None:
        """Write what is left, as far as that takes no longer than a few seconds."""
        with suppress(queue.Full):
            self._jobs.put(None, timeout=_FAREWELL_S)
        self._thread.join(_FAREWELL_S)

    def _later(self, job: Callable[[], None]) -> None:
        try:
            self._jobs.put(job, timeout=self._patience_s or None, block=self._patience_s > 0)
        except queue.Full:
            self._complain("does not keep up, and lacks some windows")

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as error:
                self._complain(f"lacks what could not be told ({one_line(error)})")
        self._out.disconnect()

    def _complain(self, what: str) -> None:
        if not self._is_told:
            self._is_told = True
            _LOG.warning("the log for Rerun %s", what)

    def _captioned(self, window: Window, caption: Caption, trace: Trace, times_sooner: float) -> None:
        kind = {"target": "verified", "unchanged": "unchanged"}.get(caption.source, "unverified")
        self._window(window, kind, caption.text)
        self._stages(window, trace)
        self._at(window.end_ns)
        stages = trace.stages
        figures = {("ms", label): stages[stage] for stage, label in _SPANS_MS.items() if stage in stages}
        figures |= {
            ("ratios", "tokens a pass"): caption.mean_acceptance_length,
            ("ratios", "times sooner than the target alone"): times_sooner,
        }
        for path, value in figures.items():
            if value:
                self._scalar(path, value)

    def _window(self, window: Window, kind: str, text: str) -> None:
        self._images(window)
        self._text(kind, text, window.end_ns)
        self._out.log("caption", self._rerun.TextDocument(text))

    def _text(self, kind: str, text: str, end_ns: int) -> None:
        self._at(end_ns)
        levels = self._rerun.TextLogLevel
        level = levels.DEBUG if kind == "draft" else levels.WARN if kind == "unverified" else levels.INFO
        self._out.log(f"log/{kind}", self._rerun.TextLog(text, level=level))

    def _answer(self, standing: Standing, answered: Answered, end_ns: int) -> None:
        self._text("answers", answered.line(standing), end_ns)
        for choice, probability in zip(standing.choices, answered.probabilities, strict=True):
            self._scalar(("answers", standing.question, choice), probability)

    def _scalar(self, path: Sequence[str], value: float) -> None:
        # Names with spaces are escaped.
        self._out.log(self._rerun.new_entity_path(list(path)), self._rerun.Scalars(value))

    def _at(self, ns: int) -> None:
        self._out.set_time(_TIMELINE, timestamp=np.datetime64(ns, "ns"))

    def _images(self, window: Window) -> None:
        slices = max(1, len(window.event_images))
        ends = [
            window.start_ns + (i + 1) * (window.end_ns - window.start_ns) // slices for i in range(slices)
        ]
        kinds = ((FRAMES, window.frames, window.frame_stamps_ns), (EVENTS, window.event_images, ends))
        for kind, images, stamps_ns in kinds:
            for image, stamp_ns in zip(images, stamps_ns, strict=False):
                self._at(stamp_ns)
                self._out.log(kind, self._rerun.Image(image).compress(jpeg_quality=_JPEG_QUALITY))

    def _stages(self, window: Window, trace: Trace) -> None:
        """Lanes of the stages: each span sets its stage's state, and its end takes it away."""
        known_ns, stamp_ns = trace.marks.get("closed", 0), window.end_ns
        answers_ns = [span.start_ns for span in trace.spans if span.stage == "answer"]
        # A window may be closed late, for want of data; an answer that began before that began at a frame.
        if answers_ns and answers_ns[0] < known_ns and window.frame_stamps_ns:
            known_ns, stamp_ns = answers_ns[0], window.frame_stamps_ns[-1]
        for span in trace.spans if known_ns else ():
            if span.stage in _LANES:
                for ns, state in ((span.start_ns, span.name), (span.end_ns, "")):
                    self._at(stamp_ns + ns - known_ns)
                    self._out.log(f"stages/{span.stage}", self._rerun.StateChange(state=state))


def _blueprint() -> Any:
    """Views that fit a window of 1366 by 768."""
    import rerun
    import rerun.blueprint as views

    behind, ahead = (rerun.TimeRangeBoundary.cursor_relative(seconds=s) for s in (-_SHOWN_S, _SHOWN_S / 8))
    near = views.TimeAxis(view_range=rerun.TimeRange(start=behind, end=ahead))
    return views.Blueprint(
        views.Vertical(
            views.Horizontal(
                views.Spatial2DView(origin=FRAMES, name="frames"),
                views.Spatial2DView(origin=EVENTS, name="event images"),
                views.Vertical(
                    views.TextDocumentView(origin="caption", name="caption"),
                    views.TextLogView(origin="log", name="all captions and answers"),
                ),
            ),
            views.Horizontal(
                views.StateTimelineView(origin="stages", name="stages", time_view=near),
                views.Vertical(
                    views.TimeSeriesView(origin="ms", name="milliseconds"),
                    views.TimeSeriesView(origin="ratios", name="ratios"),
                    views.TimeSeriesView(origin="answers", name="probabilities of answers"),
                ),
            ),
            row_shares=[1, 1],
        ),
        views.SelectionPanel(state="hidden"),
        views.BlueprintPanel(state="hidden"),
        views.TimePanel(state="collapsed", timeline=_TIMELINE, play_state="following"),
    )
