"""Text files as the common data sets and tools write them."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from recording_samples import check_info, clustered, read

from crossspec_ros.errors import InputError
from crossspec_ros.recordings import text
from crossspec_ros.recordings.asked import Asked
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey
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
    "lines that end by CR": (lambda t, x, y, p: f"{t},{x},{y},{p}", "t,x,y,p\n", "t x y p, times in us"),
    "an empty cell": (lambda t, x, y, p: f"{t},{y},{x},,{p}", "t,y,x,confidence,p\n", "t y x p, times in us"),
    "empty cells without names": (lambda t, x, y, p: f",{x},{y}, ,{p},{t},", "", "x y p t, times in us"),
    "comment": (lambda t, x, y, p: f" {p}  {x} {y} {t}", "# p x y time [us]\n\n", "p x y t, times in us"),
}


@pytest.mark.parametrize("block", [text._BLOCK, 1000])
@pytest.mark.parametrize(("line", "header", "told"), LAYOUTS.values(), ids=LAYOUTS)
def test_layouts(tmp_path, line, header, told, block, monkeypatch, request):
    monkeypatch.setattr(text, "_BLOCK", block)
    events = clustered(np.random.default_rng(2), 500, EPOCH_US)
    path = tmp_path / "events.csv"
    written = header + lines(events, line)
    path.write_text(written.replace("\n", "\r") if "CR" in request.node.name else written, newline="")
    source = TextEvents(path)
    assert read(source) == (events, None)
    assert (source.start_us, source.end_us) == (events[0][0], events[-1][0])
    assumed = "" if "640" in header else " assumed"
    assert check_info(path, events) == f"text, {told}, 640x480{assumed}"


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
    (tmp_path / "x.txt").write_text("0.0000004 0 0 1\n" + line)
    assert read(TextEvents(tmp_path / "x.txt"))[0] == [[0, 0, 0, 1], event]


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
        open_here(tmp_path / "x.txt")


def test_a_text_in_utf_16_is_named(tmp_path):
    (tmp_path / "x.txt").write_text("1 2 3 1\n" * 9, encoding="utf-16")
    with pytest.raises(InputError, match="is an event: turn it from UTF-16 into UTF-8 with `iconv -f UTF-16"):
        open_here(tmp_path / "x.txt")


def test_a_line_without_end_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_BLOCK", 1000)
    (tmp_path / "x.txt").write_text("1.5 1 2 1\n" + "7" * 2500)
    events, damage = read(TextEvents(tmp_path / "x.txt"))
    assert len(events) == 1 and "lines that are no event" in damage


def drive(seconds=1.3, count=3900):
    """t (us, from zero), x, y and p of so many events on 640x480."""
    rng = np.random.default_rng(7)
    t = np.sort(rng.integers(0, round(seconds * 1e6), count))
    return t, rng.integers(0, 640, count), rng.integers(0, 480, count), rng.integers(0, 2, count)


def table(*columns, between=" "):
    return "".join(between.join(map(str, row)) + "\n" for row in zip(*columns, strict=True))


def one_frame_after_the_other(t, x, y):
    """The order of pixels within 33 ms."""
    return np.lexsort((x, y, t // 33_333))


V2E = "# Format is time (float s), x, y, polarity (0=off, 1=on) as specified at http://x.y/davis_data.html\n"
SURE = {
    "v2e": (lambda t, x, y, p: V2E + table(t / 1e6, x, y, p), "t x y p, times in s"),
    "a column of seconds beside t": (
        lambda t, x, y, p: "second,x,y,p,t\n" + table(t // 1_000_000, x, y, p, t, between=","),
        "x y p t, times in us",
    ),
    "times of something else": (
        lambda t, x, y, p: (
            "# time_window: 10 ms\n# time: 60 s\n# exposure-time: 100 us\n# timestamps (1 us)\n"
            + table(t, x, y, p)
        ),
        "t x y p, times in us",
    ),
    "equal times": (lambda t, x, y, p: table(t // 433_334 * 433_334, x, y, p), "t x y p, times in us"),
    "equal seconds": (lambda t, x, y, p: table(x, y, t // 433_334 * 0.433334, p), "x y t p, times in s"),
    "in order of pixels": (
        lambda t, x, y, p: table(*(c[one_frame_after_the_other(t, x, y)] for c in (t, x, y, p))),
        "t x y p, times in us",
    ),
    "Prophesee": (lambda t, x, y, p: "%geometry:640,480\n" + table(x, y, p, t, between=","), "x y p t"),
    "a camera's number": (lambda t, x, y, p: table(t * 0, x, y, t, p, between=";"), "x y t p"),
    "numbered rows": (
        lambda t, x, y, p: ",x,y,p,t\n" + table(range(len(t)), x, y, p, t, between=","),
        "x y p t, times in us",
    ),
    "numbered rows without names": (
        lambda t, x, y, p: table(range(len(t)), x, y, t / 1e6, p),
        "x y t p, times in s",
    ),
    "capitals in names": (
        lambda t, x, y, p: "timestampUs,pixel_y,pixel_x,polarity\n" + table(t, y, x, p, between=","),
        "t y x p, times in us",
    ),
    "a name that is not known": (
        lambda t, x, y, p: "stamped,y,x,polarity\n" + table(t, y, x, p, between=","),
        "t y x p, times in us",
    ),
    "a size of something else": (
        lambda t, x, y, p: "# grid size: 10x10\n" + table(t, x, y, p),
        "640x480 assumed",
    ),
    "ten columns": (
        lambda t, x, y, p: (
            "id,frame,t,x,y,a,b,c,d,p\n" + table(range(len(t)), t // 9, t, x, y, *[t * 0] * 4, p, between=",")
        ),
        "t x y p, times in us",
    ),
    "two clocks": (lambda t, x, y, p: "# host x y t p\n" + table(t + EPOCH_US, x, y, t, p), "x y t p"),
    "words": (lambda t, x, y, p: table(np.where(p, "ON", "OFF"), t, x, y, between="\t"), "p t x y"),
    "a unit of another time": (
        lambda t, x, y, p: "# accumulation time in ms: 50\n" + table(t / 1e6, x, y, p),
        "t x y p, times in s",
    ),
    "signs": (lambda t, x, y, p: table(2 * p - 1, x, y, t, between=", "), "p x y t, times in us"),
    "milliseconds": (lambda t, x, y, p: "time (ms),x,y,on\n" + table(t / 1e3, x, y, p, between=","), "in ms"),
    "a size": (lambda t, x, y, p: "# size: 640x480\n" + table(t, y, x, p), "t y x p, times in us"),
    "exponents": (lambda t, x, y, p: table([f"{v * 1e-6:.9e}" for v in t], x, y, p), "times in s"),
    "a prose comment": (lambda t, x, y, p: "# columns: x y p t\n" + table(x, y, p, t), "x y p t"),
}


@pytest.mark.parametrize(("written", "told"), SURE.values(), ids=SURE)
def test_the_whole_file_tells_what_is_what(tmp_path, written, told):
    (tmp_path / "x.txt").write_text(written(*drive()))
    report = survey(tmp_path / "x.txt")
    assert told in report["format"] and "640x480" in report["format"]
    (topic,) = report["topics"]
    assert topic["events"] == 3900 and topic["event_times_back"] == 0
    told = any("were sorted" in found for found in report["findings"])
    assert told == (written is SURE["in order of pixels"][0])


OPEN = {
    "nanoseconds": (lambda t, x, y, p: table(t * 1000, x, y, p), "--time-unit ns or --time-unit us"),
    "milliseconds": (lambda t, x, y, p: table(t / 1000, x, y, p), "--time-unit ms or --time-unit s"),
    "whole ms": (lambda t, x, y, p: table(t // 1000, x, y, p), "--time-unit ms or --time-unit us"),
    "ms of the epoch": (lambda t, x, y, p: table((t + EPOCH_US) // 1000, x, y, p), "--time-unit ms"),
    "us with fractions": (lambda t, x, y, p: table(t + 0.25, x, y, p), "--time-unit us or --time-unit s"),
    "y before x": (lambda t, x, y, p: table(t, y, x, p), "either may be x.* --columns t,x,y,p"),
    "parts of a time": (
        lambda t, x, y, p: "ts_sec,ts_nsec,x,y,p\n" + table(t // 10**6, t % 10**6 * 1000, x, y, p),
        "ts_sec and ts_nsec are parts of one time",
    ),
    "ticks": (lambda t, x, y, p: "time (100 ns),x,y,p\n" + table(t * 10, x, y, p), "several of a unit"),
    "a multiple of a unit in a name": (
        lambda t, x, y, p: "ts_100ns,x,y,p\n" + table(t * 10, x, y, p, between=","),
        "'ts_100ns' counts several of a unit: store times in us",
    ),
    "a multiple of a unit in a comment": (
        lambda t, x, y, p: "# time unit: 10 us\n# t x y p\n" + table(t // 10, x, y, p),
        "'time unit: 10 us' counts several of a unit",
    ),
    "parts of one time": (
        lambda t, x, y, p: (
            "sec,nanosec,x,y,polarity\n" + table(t // 1_000_000, t % 1_000_000 * 1000, x, y, p, between=",")
        ),
        "sec and nanosec are parts of one time: store their sum as one t_ns",
    ),
    "decimal commas between blanks": (
        lambda t, x, y, p: table([f"{v / 1e6:.5f}".replace(".", ",") for v in t], x, y, p),
        "its decimals have commas",
    ),
    "a unit that cannot be": (lambda t, x, y, p: "# t [s] x y p\n" + table(t, x, y, p), "--time-unit us"),
    "decimal commas": (
        lambda t, x, y, p: table(t / 1e6, x, y, p, between=";").replace(".", ","),
        "commas: write points, as `tr , . < FILE` does",
    ),
    "two cameras": (lambda t, x, y, p: table(t, x, y, p, t % 2), "columns 4, 5 could each be p.*--columns"),
    "two clocks": (lambda t, x, y, p: table(t, t + 9000, x, y, p), "columns 1, 2 could each be t.*--columns"),
    "one time": (lambda t, x, y, p: table(t * 0 + 5, x, y, p), "no column can be t.*--columns"),
    "height before width": (lambda t, x, y, p: "480 640\n" + table(t, x, y, p), "column 3 may be x.*--col"),
    "before zero": (lambda t, x, y, p: table((t - 600_000) / 1e6, x, y, p), "t from -0.59.* are no events"),
    "bytes": (
        lambda t, x, y, p: table(t, x, y, 255 * p),
        "be p: name them|p, are no polarities",
    ),
    "two kinds of OFF": (lambda t, x, y, p: table(t, x, y, -p), "p from -1.* polarities of 0 and 1 or -1"),
    "three polarities": (lambda t, x, y, p: table(t, x, y, t % 3 - 1), "p from -1.* are no events"),
    "only numbers of rows": (
        lambda t, x, y, p: ",x,y,p\n" + table(range(len(t)), x, y, p, between=","),
        "the column 1 only counts the rows, and none has times",
    ),
    "y before x beside another size": (
        lambda t, x, y, p: "# grid size: 10x10\n" + table(t, y, x, p),
        "either may be x",
    ),
    "names without that of the rows": (
        lambda t, x, y, p: "t y x p\n" + table(range(len(t)), t, y, x, p),
        r"names 4 columns \(t, y, x, p\), and its lines have 5",
    ),
    "quotes": (
        lambda t, x, y, p: '"t","x","y","p"\n"' + table(t, x, y, p, between='","').replace("\n", '"\n"'),
        "its numbers stand in quotes",
    ),
    "numbers of frames": (lambda t, x, y, p: table(t // 33_333, x, y, p), "numbers of frames are no times"),
    "32 bits": (
        lambda t, x, y, p: table((t * 10 - 9_000_000) % 2**32, x, y, p),
        "anew behind 2.*32, add 2.*32",
    ),
    "pixels from the middle": (lambda t, x, y, p: table(t, x - 320, y - 240, p), "2, 3 have numbers below 0"),
    "rectified": (lambda t, x, y, p: table(t, x + 0.5, y + 0.1, p), "columns 2, 3 have fractions, as rect"),
}


@pytest.mark.parametrize(("written", "sentence"), OPEN.values(), ids=OPEN)
def test_what_stays_open_is_refused(tmp_path, written, sentence):
    (tmp_path / "x.txt").write_text(written(*drive()))
    with pytest.raises(InputError, match=sentence):
        open_here(tmp_path / "x.txt")


@pytest.mark.parametrize(
    ("written", "asked", "told"),
    [
        (OPEN["nanoseconds"][0], Asked(time_unit="ns"), "t x y p, times in ns"),
        (OPEN["nanoseconds"][0], Asked(columns="t_ns,x,y,p"), "t x y p, times in ns"),
        (OPEN["y before x"][0], Asked(columns="t,y,x,p"), "t y x p, times in us"),
        (OPEN["height before width"][0], Asked(columns="t,x,y,p"), "t x y p, times in us"),
        (OPEN["two cameras"][0], Asked(columns="t,x,y,p,camera"), "t x y p, times in us"),
        (OPEN["two clocks"][0], Asked(columns="host, t, x, y, p"), "t x y p, times in us"),
    ],
)
def test_an_option_says_what_is_what(tmp_path, written, asked, told):
    (tmp_path / "x.txt").write_text(written(*drive()))
    report = survey(tmp_path / "x.txt", asked=asked)
    assert report["format"].startswith(f"text, {told}, 640x480") and report["topics"][0]["events"] == 3900
    assert report["duration_s"] == pytest.approx(1.29, abs=0.02)


@pytest.mark.parametrize(
    ("header", "unit"),
    [
        ("time (milliseconds),x,y,p", "ms"),
        ("x,y,p,timestamp_milliseconds", "ms"),
        ("# timestamps are in milliseconds", "ms"),
        ("# times: ms", "ms"),
        ("time in ms,x,y,p", "ms"),
        ("t / ms,x,y,p", "ms"),
        ("time (nanoseconds),x,y,p", "ns"),
        ("time [\u00b5s],x,y,p", "us"),
        ("time (\u03bcs),x,y,p", "us"),
        ("# timestamp_microsec x y p", "us"),
        ("t (second),x,y,p", "s"),
        ("time-ms,x,y,p", "ms"),
        ("# t is in ns", "ns"),
    ],
)
def test_a_unit_is_taken_however_it_is_written(tmp_path, header, unit):
    t, x, y, p = drive()
    t = t * {"s": 1e-6, "ms": 1e-3, "us": 1, "ns": 1000}[unit]
    columns = (x, y, p, t) if "x,y,p," in header else (t, x, y, p)
    (tmp_path / "x.csv").write_text(header + "\n" + table(*columns, between=","), encoding="utf-8")
    report = survey(tmp_path / "x.csv")
    assert f"times in {unit}," in report["format"]
    assert report["duration_s"] == pytest.approx(1.29, abs=0.02)


@pytest.mark.parametrize("header", ["", "640 480\n"])
def test_a_stray_pixel_makes_no_other_sensor(tmp_path, header):
    t, x, y, p = drive()
    x[1000], y[2000] = 1500, 1999
    (tmp_path / "x.txt").write_text(header + table(t, x, y, p))
    report = survey(tmp_path / "x.txt")
    assert "640x480" in report["format"] and report["topics"][0]["events"] == 3898
    assert any("(events outside sensor 2)" in finding for finding in report["findings"])


@pytest.mark.parametrize(
    ("header", "size"),
    [
        ("# width: 700\n# height: 500\n", "700x500"),
        ("% Height 500\n% Width 700\n", "700x500"),
        ("# sensor 700x500\n", "700x500"),
        ("# resolution: 500 700\n", "700x500"),
        ("# window size: 50 100\n", "640x480"),
        ("# DAVIS240 resolution: 700x500\n", "700x500"),
        ("# sensor width 700, height 500, weight: 120 g\n", "700x500"),
        ("# size = (700, 500)\n", "700x500"),
        ("# image size: 700, 500\n", "700x500"),
        ("# W=700 H=500\n", "700x500"),
        ("# buffer size 1024, 64\n", "640x480"),
    ],
)
def test_a_size_in_a_comment_is_that_of_the_sensor_where_it_holds_the_events(tmp_path, header, size):
    (tmp_path / "x.txt").write_text(header + "# t x y p\n" + table(*drive()))
    assert survey(tmp_path / "x.txt")["topics"][0]["resolutions"].keys() == {size}


@pytest.mark.parametrize(
    ("header", "others", "named"),
    [
        ("t,x,y,p,camera\n", lambda t: [t % 2], "(camera)"),
        ("ts,x,y,p,time\n", lambda t: [t // 9], "(time)"),
        ("t,x,y,p,gain,id\n", lambda t: [t * 0 + 3, range(len(t))], ""),
        ("t,x,y,p,\n", lambda t: [t % 300], "(column 5)"),
    ],
)
def test_columns_that_are_not_used_are_told(tmp_path, header, others, named):
    t, x, y, p = drive()
    (tmp_path / "x.csv").write_text(header + table(t + EPOCH_US, x, y, p, *others(t), between=","))
    told = [finding for finding in survey(tmp_path / "x.csv")["findings"] if "not played" in finding]
    assert len(told) == bool(named) and all(named in finding for finding in told)


def test_a_unit_is_taken_of_a_text_that_is_not_utf_8(tmp_path):
    (tmp_path / "x.csv").write_text("t [\u00b5s],x,y,p\n" + table(*drive(), between=","), encoding="latin-1")
    assert "times in us" in survey(tmp_path / "x.csv")["format"]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("t,x,y", "must name t, x, y and p"),
        ("x,y,p,t", "column 1, x, are no pixels"),
        ("a,b,t,x,y,p", "more names than the 4 columns"),
    ],
)
def test_an_option_that_cannot_be_is_refused(tmp_path, columns, sentence):
    (tmp_path / "x.txt").write_text(table(*drive()))
    with pytest.raises(InputError, match=sentence):
        open_here(tmp_path / "x.txt", Asked(columns=columns))


@pytest.mark.parametrize("order", [lambda t, x, y: np.lexsort((x, y)), lambda t, x, y: np.argsort(-t)])
@pytest.mark.parametrize(
    ("header", "between", "at"), [("640 480\n", " ", 0), ("# a\n", ",", 3), ("", "\t", 2)]
)
def test_the_command_that_sorts_a_file_works_on_it(tmp_path, header, between, at, order):
    t, x, y, p = drive(seconds=10)
    columns = [x, y, p]
    columns.insert(at, t)
    path = tmp_path / "it's.csv"
    path.write_text(header + table(*(column[order(t, x, y)] for column in columns), between=between))
    with pytest.raises(InputError, match="times go back by more than a second") as refused:
        open_here(path)
    command = str(refused.value).partition(": sort it, with ")[2]
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    events, damage = read(TextEvents(tmp_path / "sorted.csv"))
    assert [event[0] for event in events] == t.tolist() and damage is None
