"""Text tables: documented layouts, headers, options, and what stays unknown."""

from __future__ import annotations

import numpy as np
import pytest
from recording_samples import check_info, clustered, read
from refusals import refused

from crossspec_ros.recordings import tables, text
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.text import TextEvents

EPOCH_US = 1_468_939_993_067_416
V2E = "# Format is time (float s), x, y, polarity (0=off, 1=on) as specified at http://x.y/davis_data.html\n"


S, US = "t x y p, times in s", "x y p t, times in us"
LAYOUTS = {
    "Event Camera Dataset": ("", "{s} {x} {y} {p}", S),
    "E2VID": ("640 480\n", "{s}000 {x} {y} {p}", S),
    "v2e": (V2E, "{s} {x} {y} {p}", S),
    "Prophesee": ("%geometry:640,480\n", "{x},{y},{p},{t}", US),
    "pandas": (",x,y,polarity,timestamp_ns\n", "7,{x},{y},{p},{t}999", "x y p t, times in ns"),
    "semicolons": ("# size: 640x480\nx;y;t_us;p\n", "{x};{y};{t};{p}\r", "x y t p"),
    "numpy.savetxt": ("# t (s) x y p\n", "{f:.18e} {x:.18e} {y:.18e} {p:.18e}", S),
    "signs": ("# p x y time [us]\n", " {sign}  {x} {y} {t}", "p x y t, times in us"),
    "seconds in a column by name": ('"camera","t_s",x,y,p\n', "0,{s},{x},{y},{p}", S),
}
"""Header, line, and how it is read; s is the time in seconds as text, f as a float."""


@pytest.mark.parametrize("block", [tables.BLOCK, 99])
@pytest.mark.parametrize(("header", "line", "named"), LAYOUTS.values(), ids=LAYOUTS)
def test_known_layouts_are_read_exactly(tmp_path, monkeypatch, header, line, named, block):
    monkeypatch.setattr(text, "BLOCK", block)
    events = clustered(np.random.default_rng(2), 500, EPOCH_US)
    lines = (
        line.format(t=t, s=f"{t // 10**6}.{t % 10**6:06d}", f=t / 1e6, x=x, y=y, p=p, sign=2 * p - 1)
        for t, x, y, p in events
    )
    path = tmp_path / "events.csv"
    path.write_text(header + "".join(f"{one}\n" for one in lines))
    assert read(TextEvents(path)) == (events, None)
    assert check_info(path, events).startswith(f"text, {named}")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("5 1 2 1\n9 1 2 0\n", "text-no-columns"),
        ("when,x,y,p\n0.5,1,2,1\n", "text-no-columns"),
        ("t_us x y p\n0 5 1 2 1\n", "text-no-columns"),
        ("5.0e+0 1.0e+0 2.0e+0 1.0e+0\n", "text-no-columns"),
        ("t_offset,x,y,p\n0.5,1,2,1\n", "text-no-columns"),
        ("t,x,y,p\n5,1,2,1\n", "text-no-time-unit"),
        ("t (100 ns),x,y,p\n5,1,2,1\n", "text-no-time-unit"),
        ("", "text-no-numbers"),
        ("hello\n", "text-no-numbers"),
        ("1 2 3\n4 5 6\n", "text-no-numbers"),
        ("\0" * 99, "text-no-numbers"),
        ("640 480\n" + "0.5 1 2 3\n" * 9, "text-p-invalid"),
        ("640 480\n" + "0.5 1000 2 1\n" * 9, "text-x-outside"),
        ("".join(f"{i * 37 % 100}.5 1 2 1\n" for i in range(100)), "text-unsorted"),
    ],
)
def test_texts_without_readable_events_are_refused(tmp_path, content, code):
    path = tmp_path / "x.txt"
    path.write_text(content)
    with refused(code):
        open_here(path)


@pytest.mark.parametrize(
    ("content", "options", "event"),
    [
        ("5 1 2 1\n", ReadOptions(columns="t,y,x,p", time_unit="ms"), [5000, 2, 1, 1]),
        ("5 1 2 1\n", ReadOptions(columns="t_ms,x,y,p"), [5000, 1, 2, 1]),
        ("0 9 5 1 2 1\n", ReadOptions(columns="id,host,t_us,x,y,p"), [5, 1, 2, 1]),
        ("t,x,y,p\n5,1,2,1\n", ReadOptions(time_unit="us"), [5, 1, 2, 1]),
        ("t_us,x,y,p\n5,1,2,1\n", ReadOptions(columns="t_us,y,x,p"), [5, 2, 1, 1]),
        ("0.000500 1 2 1\n", ReadOptions(time_unit="ms"), [0, 1, 2, 1]),
        ("1.5e6 1.0 2.0 1.0\n", ReadOptions(columns="t,x,y,p", time_unit="us"), [1_500_000, 1, 2, 1]),
    ],
)
def test_options_name_columns_and_unit(tmp_path, content, options, event):
    (tmp_path / "x.txt").write_text(content)
    assert read(TextEvents(tmp_path / "x.txt", options)) == ([event], None)


@pytest.mark.timeout(20)
def test_long_line_of_brackets_takes_no_time(tmp_path):
    path = tmp_path / "events.txt"
    path.write_text("#" + "[" * 100_000 + "\n0.001 3 4 1\n")
    events, damage = read(TextEvents(path, ReadOptions("t,x,y,p", "s")))
    assert (events, damage) == ([[1000, 3, 4, 1]], None)


@pytest.mark.parametrize("columns", ["t,x,y", "a,b,t,x,y,p", "t,x,y,q"])
def test_options_that_do_not_fit_are_refused(tmp_path, columns):
    (tmp_path / "x.txt").write_text("5 1 2 1\n")
    with refused("text-columns-misfit", columns=f"'{columns}'"):
        open_here(tmp_path / "x.txt", ReadOptions(columns=columns, time_unit="us"))


@pytest.mark.parametrize(
    "line", ["0.5 1 2", "0.5 x 2 1", "1.2.3 1 2 1", "\x00\xff", "0x1f 1 2 1", "7" * 2500]
)
def test_reading_ends_at_a_damaged_line(tmp_path, line):
    (tmp_path / "x.txt").write_text(f"640 480\n0.1 7 0 0\n\n0.2 7 0 0\n{line}\n0.3 7 0 0\n")
    events, damage = read(TextEvents(tmp_path / "x.txt"))
    assert [event[0] for event in events] == [100_000, 200_000]
    assert "line 5 " in damage


@pytest.mark.parametrize(
    "line", ["nan 1 2 1", "0.5 1 2 7", "0.5 1 2.5 1", "0.5 -1 2 1", "0.5 1 999 1", "3e9 1 2 1"]
)
def test_invalid_events_are_dropped_and_counted(tmp_path, line):
    good = "".join(f"{0.1 + i / 1e6:.6f} {i} 0 1\n" for i in range(9))
    (tmp_path / "x.txt").write_text(f"640 480\n{good}{line}\n")
    events, damage = read(TextEvents(tmp_path / "x.txt"))
    assert len(events) == 9 and " 1)" in damage


@pytest.mark.parametrize(
    ("header", "size"),
    [("", "346x260 assumed"), ("700 500\n", "700x500"), ("# sensor size: 700 500\n", "700x500")],
)
def test_size_is_stated_or_assumed(tmp_path, header, size):
    """One stray pixel in a thousand does not make a larger sensor."""
    lines = [f"{i / 1000:.3f} {i % 346} {i % 260} 1\n" for i in range(3000)]
    lines[7] = "0.007 699 3 1\n"
    (tmp_path / "x.txt").write_text(header + "".join(lines))
    assert TextEvents(tmp_path / "x.txt").format == f"text, t x y p, times in s, {size}"
