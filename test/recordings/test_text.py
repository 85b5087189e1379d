"""Text files as the common data sets and tools write them."""

from __future__ import annotations

import numpy as np
import pytest
from event_files import check_info, clustered, read

from crossspec_ros.errors import InputError
from crossspec_ros.recordings import text
from crossspec_ros.recordings.recording import open_recording
from crossspec_ros.recordings.text import TextEvents

EPOCH_US = 1_468_939_993_067_416


def seconds(t, digits=6):
    return f"{t // 10**6}.{t % 10**6:06d}" + "0" * (digits - 6)


def lines(events, line):
    return "".join(line(*event) + "\n" for event in events)


LAYOUTS = {
    "Event Camera Dataset": (lambda t, x, y, p: f"{seconds(t)} {x} {y} {p}", "", "t x y p, times in s"),
    "E2VID": (lambda t, x, y, p: f"{seconds(t, 9)} {x} {y} {p}", "640 480\n", "t x y p, times in s"),
    "Prophesee": (lambda t, x, y, p: f"{x},{y},{p},{t}", "", "x y p t, times in us"),
    "numpy": (lambda t, x, y, p: f"{t / 1e6:.18e} {x:.18e} {y:.18e} {p:.18e}", "", "t x y p, times in s"),
    "pandas": (
        lambda t, x, y, p: f"{x},{y},{bool(p)},{t * 1000}",
        "x,y,polarity,timestamp_ns\n",
        "x y p t, times in ns",
    ),
    "nanoseconds": (lambda t, x, y, p: f"{t * 1000}\t{x}\t{y}\t{2 * p - 1}", "", "t x y p, times in ns"),
    "Tonic": (lambda t, x, y, p: f"{x};{y};{t};{p}\r", "# size: 640x480\n", "x y t p, times in us"),
    "comment": (lambda t, x, y, p: f" {p}  {x} {y} {t}", "# p x y time [us]\n\n", "p x y t, times in us"),
}


@pytest.mark.parametrize("block", [text._BLOCK, 1000])
@pytest.mark.parametrize(("line", "header", "told"), LAYOUTS.values(), ids=LAYOUTS)
def test_layouts(tmp_path, line, header, told, block, monkeypatch):
    monkeypatch.setattr(text, "_BLOCK", block)
    events = clustered(np.random.default_rng(2), 500, EPOCH_US)
    path = tmp_path / "events.csv"
    path.write_text(header + lines(events, line), newline="")
    source = TextEvents(path)
    assert read(source) == (events, None)
    assert (source.start_us, source.end_us) == (events[0][0], events[-1][0])
    assert check_info(path, events) == f"text, {told}, 640x480"


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("0.0000005 1 2 1", [1, 1, 2, 1]),
        ("1e-3 1.0 +2 -1", [1000, 1, 2, 0]),
        ("123456789.12345649999999999999999 1 2 0", [123456789123456, 1, 2, 0]),
        ("000000000000000000000001.5 1 2 1e0", [1_500_000, 1, 2, 1]),
        ("1.5E+00,1, 2 ,1.000", [1_500_000, 1, 2, 1]),
    ],
)
def test_numbers_are_read_exactly(tmp_path, line, event):
    (tmp_path / "x.txt").write_text("0.0000004 0 0 0\n" + line)
    assert read(TextEvents(tmp_path / "x.txt"))[0] == [[0, 0, 0, 0], event]


@pytest.mark.parametrize(
    "line",
    [
        "0.5 1 2", "0.5 1 2 7", "0.5 1 2.5 1", "nan 1 2 1", "0.5 -1 2 1", "0.5 x 2 1", "1e400 1 2 1",
        "--1 1 2 1", "1.2.3 1 2 1", "0.5 1 2 1x", "9e99999999999 1 2 1", "-0.5 1 2 1", "0.5 1 99999999999 1",
        "0x1f 1 2 1", "\x00\xff", "0.5 1 2 -", "1e 1 2 1", "0.5 3000 2 1", "3e9 1 2 1",
    ],
)  # fmt: skip
@pytest.mark.parametrize("stated", ["", "640 480\n"])
def test_a_line_that_is_no_event_is_told_and_skipped(tmp_path, line, stated):
    good = [[100_000 + i, 7 - i, i % 5, i % 2] for i in range(8)]
    rest = lines(good[1:], lambda t, x, y, p: f"{seconds(t)} {x} {y} {p}")
    (tmp_path / "x.txt").write_text(f"{stated}0.1 7 0 0\n{line}\n\n{rest}")
    events, damage = read(TextEvents(tmp_path / "x.txt"))
    assert events == good
    assert "x.txt' could not be decoded (" in damage and " 1)" in damage


@pytest.mark.parametrize(("keep", "left"), [(-1, 2), (-2, 1), (-4, 1), (-8, 1), (-14, 1)])
def test_a_cut_line_is_told(tmp_path, keep, left):
    (tmp_path / "x.csv").write_text("3,4,1,1000001\n3,4,0,1000002\n"[:keep])
    events, damage = read(TextEvents(tmp_path / "x.csv"))
    assert len(events) == left and (damage is None) == (keep in (-1, -14))


@pytest.mark.parametrize(
    "content", ["", "\n\n", "hello\n", "640 480\n", "t x y p\n", "1 2 3\n4 5 6\n", "\0" * 99]
)
def test_a_file_without_events_is_named(tmp_path, content):
    (tmp_path / "x.txt").write_text(content)
    with pytest.raises(InputError, match=r"no line of '.*x\.txt' is an event: give a text file"):
        open_recording(tmp_path / "x.txt")


def test_a_line_without_end_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_BLOCK", 1000)
    (tmp_path / "x.txt").write_text("1.5 1 2 1\n" + "7" * 2500)
    events, damage = read(TextEvents(tmp_path / "x.txt"))
    assert len(events) == 1 and "lines that are no event" in damage
