"""Reports become timelines: what rqt paints, without rqt."""

from __future__ import annotations

from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus

from crossspec_ros.nodes.messages import key_values
from crossspec_ros.nodes.reports import report
from crossspec_ros.paths import share_dir
from crossspec_ros.rqt.timelines import HEIGHT, HIDDEN, INK, WRONG, draw, fits
from crossspec_ros.rqt.windows import KEPT, LastWindows
from crossspec_ros.telemetry.span_text import read_spans, write_spans
from crossspec_ros.telemetry.timeline import COLOURS
from crossspec_ros.telemetry.trace import Trace

SECOND, MS = 10**9, 10**6


def trace(closed_ns=5 * SECOND):
    """The draft decodes from 300 ms before the close to 40 ms after it, the target works from 10 ms on."""
    made = Trace()
    made.mark("closed", closed_ns)
    for name, start_ms, end_ms in (
        ("frame_encode[0]", -900, -890),
        ("draft_decode", -300, 40),
        ("target_prefill[7]", 10, 20),
        ("verify[0]", 20, 30),
        ("total", 0, 50),
    ):
        made.add(name, closed_ns + start_ms * MS, closed_ns + end_ms * MS)
    return made


def message(index=3, level=DiagnosticStatus.OK, text="a red car", **values):
    counts = {"events": 7, "lost_packets": 0, "late_events": 0, "late_frames": 0}
    window = SimpleNamespace(start_ns=index * SECOND, end_ns=(index + 1) * SECOND, **counts)
    figures = {"total_ms": 50.4, "hidden_ms": 320.0, "tokens": 50, "mean_acceptance_length": 6.25}
    figures |= {"drafted/memory": 40, "accepted/memory": 12, "spans": write_spans(trace())}
    return report(window, level, text, {**figures, **values})


class Paper:
    """Remembers what is drawn on it."""

    def __init__(self):
        self.rects, self.texts = [], []

    def rect(self, x, y, width, height, colour):
        self.rects.append((x, y, width, height, colour))

    def text(self, x, y, width, height, colour, text):
        self.texts.append((y, colour, text))

    def bars(self, colour):
        """Left and right edges of the bars above the legend."""
        return [(x, x + width) for x, _, width, height, c in self.rects if c == colour and height > 10 - 1e-9]


def painted(*messages, width=1000, height=400):
    windows, paper = LastWindows(), Paper()
    for each in messages:
        windows.add(each)
    draw(paper, windows.newest(fits(height)), width, height)
    return paper


def test_spans_come_back_from_their_line():
    spans = read_spans(write_spans(trace()))
    assert [(s.name, s.start_ns, s.end_ns) for s in spans] == [
        (s.name, s.start_ns - 5 * SECOND, s.end_ns - 5 * SECOND) for s in trace().spans
    ]
    assert read_spans("") == read_spans("draft_decode later; and so on") == []


def test_hidden_time_is_that_which_the_trace_counts():
    windows = LastWindows()
    windows.add(message())
    (window,) = windows.newest(9)
    assert window.hidden == [(-300 * MS, 0), (10 * MS, 20 * MS), (20 * MS, 30 * MS)]
    assert sum(end - start for start, end in window.hidden) / MS == pytest.approx(trace().hidden)


def test_a_window_shows_its_caption_its_figures_and_when_each_stage_ran():
    paper = painted(message())
    texts = [text for _, _, text in paper.texts]
    assert "3-4 s   total 50 ms · hidden 320 ms · 50 tokens, 6.2 a target pass · 12 of 40 by memory" in texts
    assert any(colour == INK and text == "a red car" for _, colour, text in paper.texts)
    ((left, right), *_) = paper.bars(COLOURS["draft_decode"])
    ((hidden_left, close), *later) = paper.bars(HIDDEN)[:3]
    assert hidden_left == left and left < close < right and len(later) == 2
    assert (1000 * 0.5) < close < (1000 * 0.62)
    (total,) = [text for text in texts if text.endswith(" ms") and text != "-1000 ms"]
    assert total == "25 ms"


def test_windows_are_drawn_newest_first_and_as_many_as_fit():
    paper = painted(*(message(index) for index in range(9)), height=3 * HEIGHT + 40)
    heads = [text.split(" s")[0] for _, _, text in paper.texts if " s   " in text]
    assert heads == ["8-9", "7-8", "6-7"]
    assert all(0 <= y <= 3 * HEIGHT + 40 for y, _, _ in paper.texts)


def test_skipped_windows_and_old_captioners_without_spans_are_shown_too():
    skipped = message(text="skipped: a newer window closed", level=DiagnosticStatus.WARN, spans="")
    paper = painted(skipped)
    assert any(colour == WRONG for _, colour, text in paper.texts if text.startswith("skipped"))
    assert all(0 <= x <= 1000 and x + width <= 1000 for x, _, width, _, _ in paper.rects)


def test_one_slow_window_does_not_flatten_the_others():
    slow = message(5, spans="verify[0] 0.0 9000.0")
    ((left, right),) = painted(message(3), message(4), slow).bars(COLOURS["verify"])[:1]
    assert right == 1000 - 8 and left < right
    assert all(x + width <= 1000 for x, _, width, _, _ in painted(message(3), message(4), slow).rects)


def test_an_empty_view_says_so():
    assert [text for _, _, text in painted().texts] == ["no report has come yet"]


def test_a_flood_of_reports_is_kept_short_and_other_diagnostics_are_left_out():
    windows = LastWindows()
    windows.add(DiagnosticArray(status=[DiagnosticStatus(name="battery", values=key_values({"volt": "12"}))]))
    assert windows.newest(9) == [] and windows.added == 0
    for index in range(1000):
        windows.add(message(index))
    assert len(windows.newest(1000)) == KEPT and windows.newest(1)[0].end_s == 1000
    assert windows.added == 1000
    windows.clear()
    assert windows.newest(9) == [] and windows.added == 1001


def test_rqt_finds_the_class_that_the_manifest_names():
    (named,) = ElementTree.parse(share_dir() / "plugin.xml").iter("class")
    module, name = named.attrib["type"].rsplit(".", 1)
    source = share_dir() / (module.replace(".", "/") + ".py")
    assert f"\nclass {name}(Plugin):\n" in source.read_text()
    assert named.attrib["base_class_type"] == "rqt_gui_py::Plugin"
