"""The timelines that the rqt plugin paints, without rqt."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from xml.etree import ElementTree

import pytest
from builtin_interfaces.msg import Time
from crossspec_msgs.msg import Caption, ProposerCount, Span, Stage, WindowReport
from std_msgs.msg import Header

from crossspec_ros.paths import share_dir
from crossspec_ros.ros.rqt_timelines import (
    FAINT,
    HIDDEN,
    INK,
    MARGIN,
    MAX_WINDOWS,
    WRONG,
    LastWindows,
    draw,
    legend,
    series,
)
from crossspec_ros.telemetry.trace import STAGE_COLOURS

MS = 10**6
SPANS = {
    "frame_encode[0]": (-900.0, -890.0),
    "draft_decode": (-300.0, 40.0),
    "target_prefill[7]": (10.0, 20.0),
    "verify[0]": (20.0, 30.0),
    "total": (0.0, 50.0),
}
"""The draft decodes from 300 ms before the close to 40 ms after it. The target works from 10 ms on."""
LONG = "The key elements in this scene include " + "a red car and a person in green, " * 12
CHAR, LINE = 7, 15
"""Pixels of the font on `Paper`."""


def message(index=3, text="a red car", spans=SPANS, **fields):
    report = WindowReport(
        header=Header(stamp=Time(sec=index + 1)),
        window_start=Time(sec=index),
        outcome="captioned",
        message=text,
        caption=Caption(text=text, source="target", verified=True, tokens=50, target_passes=8),
        proposers=[ProposerCount(name="memory", drafted=40, accepted=12)],
        stages=[Stage(name="total", ms=50.4), Stage(name="hidden", ms=320.0)],
        spans=[Span(name=name, start_ms=start, end_ms=end) for name, (start, end) in spans.items()],
    )
    for name, value in fields.items():
        setattr(report, name, value)
    return report


class Paper:
    """Records rectangles and texts, and breaks lines between words as Qt does."""

    def __init__(self):
        self.rects, self.texts = [], []

    def rect(self, x, y, width, height, colour):
        self.rects.append((x, y, width, height, colour))

    def text(self, x, y, width, colour, text):
        self.texts.append((x, y, width, colour, text))

    def lines(self, text, width):
        width = max(1, int(width // CHAR))
        return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]

    def size(self, text, width):
        lines = self.lines(text, width)
        return CHAR * max(map(len, lines)), LINE * len(lines)

    def bars(self, colour):
        """Return left and right edges of the bars below the ruler."""
        (ruler,) = [y for _, y, _, _, text in self.texts if text == "close"]
        return [(x, x + width) for x, y, width, _, c in self.rects if c == colour and y > ruler]


def painted(*messages, width=1000, height=400):
    windows, paper = LastWindows(), Paper()
    for each in messages:
        windows.add(each)
    draw(paper, windows, width, height)
    return paper


def boxes(paper):
    """Yield left, top, right and bottom of every drawn text, with its lines."""
    for x, y, max_width, _, text in paper.texts:
        width, height = paper.size(text, max_width)
        yield x, y, x + width, y + height, paper.lines(text, max_width)


def test_window_shows_caption_figures_and_stages():
    paper = painted(message())
    texts = [text for *_, text in paper.texts]
    assert "0-1 s · total 50 ms · hidden 320 ms · 50 tokens in 8 target passes · 12 of 40 by memory" in texts
    assert any(colour == INK and text == "a red car" for *_, colour, text in paper.texts)
    ((left, right), *_) = paper.bars(STAGE_COLOURS["draft_decode"])
    ((hidden_left, close), *later) = paper.bars(HIDDEN)
    assert hidden_left == left and left < close < right and len(later) == 1
    assert (1000 * 0.5) < close < (1000 * 0.62)
    (middle,) = [text for text in texts if text.endswith(" ms") and "·" not in text and text != "-1000 ms"]
    assert middle == "26 ms"


@pytest.mark.parametrize("width", [500, 1000])
def test_texts_wrap_within_the_view_without_overlap(width):
    spans = dict.fromkeys(STAGE_COLOURS, (0.0, 1.0))
    paper = painted(*(message(index, LONG, spans) for index in range(2)), width=width, height=900)
    drawn = list(boxes(paper))
    assert all(left >= MARGIN and right <= width - MARGIN + 1 for left, _, right, _, _ in drawn)
    for a in drawn:
        for b in drawn:
            apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] + 2 or b[3] <= a[1] + 2
            assert a is b or apart, (a, b)
    captions = [lines for *_, lines in drawn if lines[0].startswith("The key")]
    assert [" ".join(lines) for lines in captions] == [LONG.strip()] * 2
    assert len(captions[0]) == (7 if width == 500 else 4)


def test_fitting_windows_are_drawn_newest_first():
    paper = painted(*(message(index) for index in range(9)), height=300)
    heads = [lines[0].split(" ")[0] for *_, lines in boxes(paper) if "·" in lines[0]]
    assert heads == ["8-9", "7-8", "6-7"]
    assert all(bottom <= 300 for _, _, _, bottom, _ in boxes(paper))
    assert all(y + height <= 300 for _, y, _, height, _ in paper.rects)


def test_skipped_windows_are_shown_too():
    skipped = message(
        text="skipped: a newer window closed", level=WindowReport.WARN, spans={}, stages=[], proposers=[]
    )
    skipped.caption = Caption()
    paper = painted(skipped)
    assert any(colour == WRONG for *_, colour, text in paper.texts if text.startswith("skipped"))
    assert any(colour == FAINT and text == "0-1 s" for *_, colour, text in paper.texts)
    assert all(0 <= x <= 1000 and x + width <= 1000 for x, _, width, _, _ in paper.rects)


def test_series_has_the_windows_with_that_figure():
    windows = LastWindows()
    skipped = message(4, stages=[])
    for each in (message(3, acceptance_length=6.5), skipped, message(5)):
        windows.add(each)
    assert series(windows, "total") == ([0.0, 2.0], [50.4, 50.4])
    assert series(windows, "acceptance_length") == ([0.0], [6.5])


def test_series_begins_anew_with_a_replayed_recording():
    """Otherwise the curves would run backwards."""
    windows = LastWindows()
    for index in (3, 4, 5, 3, 4):
        windows.add(message(index))
    assert series(windows, "total")[0] == [0.0, 1.0]


def test_names_of_a_legend_stay_in_one_line():
    assert legend({"frame_encode": "#123456"}) == (
        '<span style="color: #123456">\N{BLACK SQUARE}</span>&nbsp;frame&nbsp;encode'
    )


@pytest.mark.parametrize("others", [(), (3, 4, 5, 6), ("skipped", "skipped", "skipped")])
def test_slow_newest_window_fits_the_view(others):
    empty = {"spans": {}} | dict(outcome="skipped", message="skipped", caption=Caption())
    before = [message(**empty) if other == "skipped" else message(other) for other in others]
    paper = painted(*before, message(9, spans={"verify[0]": (0.0, 9000.0)}), height=400)
    ((_, right), *_) = paper.bars(STAGE_COLOURS["verify"])
    assert right < 1000 - MARGIN - 10


def test_number_of_reports_is_bounded():
    windows = LastWindows()
    for index in range(1000):
        windows.add(message(index))
    assert len(windows.newest()) == MAX_WINDOWS and windows.newest()[0].header.stamp.sec == 1000
    windows.clear("no captioner")
    assert windows.newest() == [] and windows.hint == "no captioner"


def test_plugin_manifest_names_the_class():
    (named,) = ElementTree.parse(share_dir() / "plugin.xml").iter("class")
    module, name = named.attrib["type"].rsplit(".", 1)
    source = share_dir() / (module.replace(".", "/") + ".py")
    assert f"\nclass {name}(Plugin):\n" in source.read_text()
    assert named.attrib["base_class_type"] == "rqt_gui_py::Plugin"


def test_rqt_timelines_need_the_standard_library_only():
    program = (
        "import sys; before = set(sys.modules);"
        "import crossspec_ros.ros.rqt_timelines;"
        "print({name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "{'crossspec_ros'}"
