"""Messages about windows: captions, answers and reports, for ROS and for bags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crossspec_ros.captioning.caption import RESTS_ON
from crossspec_ros.captioning.wording import absent_text, latencies
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.quality import HARMLESS, trustworthy

if TYPE_CHECKING:
    from crossspec_ros.captioning.caption import Caption, Holding
    from crossspec_ros.captioning.standing import Answered, Standing
    from crossspec_ros.windows.window import Window

_WARN = 1
_LEVELS = {"captioned": 0, "unchanged": 0, "unasked": 0, "skipped": _WARN, "inactive": _WARN, "failed": 2}
"""Level of a report by its outcome: OK, WARN or ERROR of WindowReport."""


@dataclass(frozen=True)
class WindowMessages:
    """Makes messages with `new`, of a type such as std_msgs/msg/Header. All other fields are zero."""

    new: Callable[..., Any]

    def report(
        self,
        window: Window,
        outcome: str,
        text: str,
        degraded: Sequence[str] = (),
        holds: Holding | None = None,
        frame_id: str = "",
    ) -> Any:
        """Return the report of a window with this outcome. `holds` is the caption that is still valid."""
        level, usable = _LEVELS[outcome], trustworthy(window, degraded)
        if set(degraded) - HARMLESS:
            level = max(level, _WARN)
        message = self._message(
            "WindowReport",
            header=self._header(window.end_ns),
            window_start=self.stamp(window.start_ns),
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
        if holds is not None:
            message.caption = self.caption(holds.caption, holds.window.end_ns, frame_id)
            if not message.caption.verified:
                message.level = _WARN
        return message

    def captioned_report(
        self, window: Window, caption: Caption, trace: Trace, degraded: Sequence[str], frame_id: str = ""
    ) -> Any:
        """Return the report of a window with this caption."""
        message = self.report(window, "captioned", caption.text or absent_text(caption, degraded), degraded)
        if caption.source != "target" or not caption.text:
            message.level = _WARN
        message.caption = self.caption(caption, window.end_ns, frame_id)
        message.rests_on = RESTS_ON[caption.source]
        message.cut_by_deadline = caption.late
        message.acceptance_length = float(caption.mean_acceptance_length)
        message.proposers = [
            self._message("ProposerCount", name=name, drafted=count, accepted=caption.accepted.get(name, 0))
            for name, count in caption.drafted.items()
        ]
        rehearsal = caption.rehearsal
        message.rehearsal_tokens, message.rehearsal_passes = len(rehearsal.token_ids), rehearsal.passes
        message.rehearsal_ms = 1e3 * rehearsal.seconds
        message.rehearsal_equal = bool(rehearsal.token_ids) and rehearsal.token_ids == caption.token_ids
        message.link_bytes_up, message.link_bytes_down = caption.traffic
        message.link_round_trip_ms = 1e3 * caption.round_trip_s
        message.stages = [self._message("Stage", name=name, ms=ms) for name, ms in latencies(trace).items()]
        closed_ns = trace.marks["closed"]
        times = [(one.name, one.start_ns - closed_ns, one.end_ns - closed_ns) for one in trace.spans]
        message.spans = [
            self._message("Span", name=name, start_ms=start_ns / 1e6, end_ms=end_ns / 1e6)
            for name, start_ns, end_ns in times
        ]
        return message

    def caption_topics(self, caption: Caption, report: Any) -> Iterator[tuple[str, Any]]:
        """Yield the topics of a caption below `~/`, and their messages."""
        if report.caption.verified:
            yield "caption", self.new("std_msgs/msg/String", data=caption.text)
            yield "acceptance_length", self.new("std_msgs/msg/Float64", data=report.acceptance_length)
        elif caption.text:
            yield "caption_draft", report.caption
        if caption.is_json:
            yield "caption_json", self.new("std_msgs/msg/String", data=caption.text)
        yield "caption_stamped", report.caption

    def caption(self, caption: Caption, end_ns: int, frame_id: str = "") -> Any:
        """Return the message of a caption. `end_ns` is the end of its window."""
        return self._message(
            "Caption",
            header=self._header(end_ns, frame_id),
            text=caption.text,
            source=caption.source,
            verified=caption.source == "target",
            tokens=len(caption.token_ids),
            target_passes=caption.target_passes,
        )

    def answer(self, standing: Standing, answered: Answered, end_ns: int, frame_id: str = "") -> Any:
        """Return the message of an answer. `end_ns` is the end of its window."""
        caption = self.caption(answered.caption, end_ns, frame_id)
        # Without the choices, the target might have written another text.
        caption.verified = False
        lists = {"choices": list(standing.choices), "probabilities": list(answered.probabilities)}
        return self._message("Answer", question=standing.question, answer=caption, **lists)

    def stamp(self, stamp_ns: int) -> Any:
        """Return the message of a stamp, at least of the earliest one that ROS can represent."""
        sec, nanosec = divmod(max(stamp_ns, -(2**31) * 10**9), 10**9)
        return self.new("builtin_interfaces/msg/Time", sec=sec, nanosec=nanosec)

    def _header(self, stamp_ns: int, frame_id: str = "") -> Any:
        return self.new("std_msgs/msg/Header", stamp=self.stamp(stamp_ns), frame_id=frame_id)

    def _message(self, kind: str, **fields: Any) -> Any:
        return self.new(f"crossspec_msgs/msg/{kind}", **fields)
