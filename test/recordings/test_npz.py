"""Arrays of events in .npz files: what plays, and what is said about the rest."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from event_samples import assert_equal, random_batch
from recording_samples import arrays_of, decode, packets_of, saved

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import EVENT_PACKET
from crossspec_ros.events.packets import MAX_EVENTS, PacketCutter
from crossspec_ros.recordings.fields import choose_unit
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey

START_US = 3 << 24


@pytest.fixture(scope="module")
def events():
    return random_batch(5000, t_start=START_US, duration_us=95_000, width=346, height=260)


@pytest.mark.parametrize(
    "polarity",
    [
        lambda p: p,
        lambda p: p.astype(bool),
        lambda p: p.astype(np.int8) * 2 - 1,
        lambda p: p.astype(np.int64),
    ],
)
def test_events_play_whatever_their_types(tmp_path, events, polarity):
    arrays = {"t": events.t.astype(np.uint64), "x": events.x.astype(np.int32), "y": events.y.astype(np.int16)}
    recording = open_here(saved(tmp_path, **arrays, p=polarity(events.p)))
    assert (recording.event_type, recording.image_topic, recording.image_type) == (EVENT_PACKET, None, None)
    assert (recording.start_ns, recording.end_ns) == (events.t[0] * 1000, events.t[-1] * 1000)
    messages = list(recording.messages())
    assert_equal(decode(messages), events)
    assert len(messages) == 10 and list(recording.messages()) == messages


TABLE = [("x", "u2"), ("y", "u2"), ("p", "i1"), ("t", "i8")]


@pytest.mark.parametrize(
    ("arrange", "told"),
    [
        (lambda t, x, y, p: {"ts": t / 1e6, "x": x, "y": y, "pol": p > 0}, "s"),
        (lambda t, x, y, p: {"timestamp_ns": t * 1000, "x": x, "y": y, "polarity": p}, "ns"),
        (lambda t, x, y, p: {"t": t.astype(float), "x": x, "y": y, "p": p}, "us"),
        (lambda t, x, y, p: {"events": np.array(list(zip(x, y, p, t, strict=True)), TABLE)}, "us"),
        (lambda t, x, y, p: {"arr_0": np.stack([t / 1e6, x, y, p * 2.0 - 1], axis=1)}, "s"),
        (lambda t, x, y, p: {"t": t * 1000, "x": x, "y": y, "p": p, "unit": "ns"}, "ns"),
        (lambda t, x, y, p: {"ts": t / 1e3, "x": x, "y": y, "p": p, "units": b"milliseconds"}, "ms"),
        (lambda t, x, y, p: {"columns": np.array([*"tyxp"]), "z": np.stack([t, y, x, p], axis=1)}, "us"),
        (lambda t, x, y, p: {"header": np.array("q,y,x,p"), "z": np.stack([t, y, x, p], axis=1)}, "us"),
        (lambda t, x, y, p: {"t": t - 9000, "x": x, "y": y, "p": p, "t_offset": 9000}, "us"),
        (lambda t, x, y, p: {"arr_0": np.stack([x, y, p, t], axis=1)}, "us"),
        (lambda t, x, y, p: {"arr_0": np.stack([x, y, t, p], axis=1), "width": 346, "height": 260}, "us"),
    ],
)
def test_other_arrangements(tmp_path, events, arrange, told):
    arrays = arrange(events.t, events.x.astype(int), events.y.astype(int), events.p.astype(int))
    path = saved(tmp_path, **arrays)
    recording = open_here(path)
    assert recording.format.startswith(f"npz, times in {told}, 346x260")
    assert (recording.start_ns, recording.end_ns) == (events.t[0] * 1000, events.t[-1] * 1000)
    assert_equal(decode(recording.messages()), events)
    tables = [array for array in arrays.values() if isinstance(array, np.ndarray)]
    if len(tables) == 1:
        np.save(tmp_path / "events.npy", tables[0])
        assert_equal(decode(open_here(tmp_path / "events.npy").messages()), events)


@pytest.mark.parametrize(
    ("largest", "stated", "size"),
    [
        ((127, 127), {}, (128, 128)),
        ((239, 100), {}, (240, 180)),
        ((300, 259), {}, (346, 260)),
        ((319, 319), {}, (320, 320)),
        ((639, 479), {}, (640, 480)),
        ((640, 479), {}, (768, 640)),
        ((640, 640), {}, (1280, 720)),
        ((1280, 719), {}, (1281, 720)),
        ((127, 127), {"width": 1000, "height": np.uint16(500)}, (1000, 500)),
        ((303, 239), {"W": 304, "H": 240}, (304, 240)),
        ((303, 239), {"size": (304, 240)}, (304, 240)),
        ((303, 239), {"image_size": (304, 240)}, (304, 240)),
        ((303, 239), {"resolution": np.array([240, 304])}, (304, 240)),
        ((239, 303), {"sensor_size": np.array([304, 240])}, (240, 304)),
        ((303, 239), {"size": 5000}, (346, 260)),
    ],
)
def test_the_sensor_is_as_stated_or_the_smallest_that_fits(tmp_path, largest, stated, size):
    x, y = ([value] for value in largest)
    recording = open_here(saved(tmp_path, t=[5], x=x, y=y, p=[1], **stated))
    (packet,) = packets_of(recording.messages())
    assert (packet.width, packet.height) == size


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"t": None}, "has no array t among x, y, p: store t"),
        ({"x": np.array(["1", "2", "3"])}, r"has x of shape \(3,\) and type <U1: store a list of integers"),
        ({"x": np.array([1.5, 2.5, 3.5])}, r"x from 1\.5 to 3\.5.* are no events: store .* whole pixels"),
        ({"t": np.ones((3, 1), int)}, r"has t of shape \(3, 1\)"),
        ({"y": [1, 2]}, "has 3 t, 3 x, 2 y and 3 p: store as many of each"),
        ({"t": [-1, 0, 1]}, r"t from -1 to 1, .* as times in us .* store microseconds"),
        ({"t": np.full(3, 1 << 63, np.uint64)}, "t from 9223372036854775808 .* the year 2038"),
        ({"x": [0, -1, 0]}, "x from -1 to 0, y from 1 to 3, .* store .* pixels from 0 to 2047"),
        ({"y": np.array([0, 1, 1 << 40])}, "y from 0 to 1099511627776"),
        ({"p": [0, 1, 2]}, "p from 0 to 2, .* polarities of 0 and 1"),
        ({"p": [0, 1, -1]}, "p from -1 to 1, .* polarities of 0 and 1 or -1"),
        ({"width": 4}, "width = 4 and height = None: store two integers"),
        ({"width": 3, "height": 9}, "x from 1 to 3, .* a sensor of 3x9"),
        ({"t": [0.5, np.nan, 2.0]}, r"t from 0.5 to 2.0, .* as times in s"),
        ({"t": [0.5, 1e300, 2.0]}, r"t from 0\.5 to 1e\+300, .* as times in s"),
        ({"width": [4, 4], "height": [4]}, r"width = \[4 4\]"),
        ({"width": 4, "height": 4000}, "height = 4000"),
        ({name: np.empty(0, int) for name in "txyp"}, "has no events"),
        ({"t": np.array([{}, {}, {}])}, "is damaged or no .npz of plain arrays .*allow_pickle"),
    ],
)
def test_what_is_wrong_with_the_arrays_is_said(tmp_path, wrong, sentence):
    arrays = {name: [1, 2, 3] for name in "txy"} | {"p": [0, 1, 1]} | wrong
    path = saved(tmp_path, **{name: values for name, values in arrays.items() if values is not None})
    with pytest.raises(InputError, match=rf"events\.npz' .*{sentence}"):
        open_here(path)


@pytest.mark.parametrize("keep", [0.0, 0.02, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_named(tmp_path, events, keep):
    path = saved(tmp_path, **arrays_of(events))
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(InputError, match=r"events\.npz' is damaged or no \.npz"):
        open_here(path)


def test_a_damaged_or_renamed_file_is_named(tmp_path, events):
    path = saved(tmp_path, **arrays_of(events))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InputError, match="is damaged"):
        open_here(path)
    with open(path, "wb") as file:
        np.save(file, events.t)
    with pytest.raises(InputError, match=r"is damaged or no \.npz"):
        open_here(path)


def test_a_burst_is_cut_into_packets_that_dds_carries(events):
    burst = random_batch(1_000_000, 3, t_start=START_US, duration_us=10_000, width=1280, height=720)
    messages = list(PacketCutter("burst").cut(burst))
    assert len(messages) == -(-len(burst) // MAX_EVENTS)
    assert max(len(message.data) for message in messages) < 1_000_000
    assert_equal(decode(messages), burst)


def test_stillness_is_filled_but_not_a_jump(events):
    t = np.array([0, 1_000_000, 4_000_000_000]) + START_US
    batch = EventBatch(t, *(np.zeros(3, kind) for kind in (np.uint16, np.uint16, np.uint8)), 640, 480)
    cutter = PacketCutter("clock")
    whole = list(cutter.cut(batch))
    assert [message.stamp_ns for message in whole[:2]] == [START_US * 1000, START_US * 1000 + 10_000_000]
    assert len(whole) == 102 and [packet.seq for packet in packets_of(whole)] == list(range(102))
    # However the batches are cut, and also when the clock goes back.
    again = PacketCutter("clock")
    assert [message for i in range(3) for message in again.cut(batch[i : i + 1])] == whole
    assert [message.stamp_ns for message in cutter.cut(batch[:1])] == [START_US * 1000]


def test_few_events_of_months_are_no_flood_of_packets(monkeypatch):
    monkeypatch.setattr("crossspec_ros.events.packets.STILL_PACKETS", 100)
    t = np.arange(100_000) * 59_000_000
    batch = EventBatch(t, *(np.zeros(len(t), kind) for kind in (np.uint16, np.uint16, np.uint8)), 640, 480)
    assert len(list(PacketCutter("clock").cut(batch[:1000]))) < 2 * 5900 + 1000 + 14 * 100


def test_short_gaps_of_long_recordings_cost_no_packets(monkeypatch):
    monkeypatch.setattr("crossspec_ros.events.packets.STILL_PACKETS", 100)
    t = np.arange(10_000) * 30_000
    batch = EventBatch(t, *(np.zeros(len(t), kind) for kind in (np.uint16, np.uint16, np.uint8)), 640, 480)
    assert len(list(PacketCutter("clock").cut(batch))) == len(t) + 200


def test_events_outside_their_sensor_are_refused():
    batch = random_batch(10, width=640, height=480)
    small = EventBatch(batch.t, batch.x, batch.y, batch.p, 100, 100)
    with pytest.raises(
        InputError, match=r"'cam' has events up to x = \d+, y = \d+ outside its sensor of 100x100"
    ):
        list(PacketCutter("cam").cut(small))
    with pytest.raises(InputError, match="'cam' comes from a sensor of 4000x480"):
        list(PacketCutter("cam").cut(EventBatch(batch.t, batch.x, batch.y, batch.p, 4000, 480)))


def drive(events, since_us=0):
    """Other times of the same events, over 1.23 s."""
    return events.at((events.t - events.t[0]) * 13 + since_us)


@pytest.mark.parametrize(
    ("bend", "left", "told"),
    [
        (lambda a: np.put(a["t"], 3000, a["t"][3000] - 300_000), 5000, "were sorted within each second"),
        (lambda a: np.put(a["t"], 0, 0), 5000, "1 stamps lie far from those"),
        (lambda a: np.put(a["t"], 4999, 9_000_000_000), 5000, "1 stamps lie far from those"),
        (lambda a: np.put(a["t"], 4800, 0), 5000, "1 stamps lie far from those"),
        (lambda a: np.put(a["y"], 3000, 33_014), 4999, "(events outside sensor 1)"),
        (lambda a: np.put(a["x"], 3000, 1500), 4999, "(events outside sensor 1)"),
        (lambda a: np.put(a["x"], 3000, -1), 4999, "(events outside sensor 1)"),
        (lambda a: np.put(a["t"], 3000, 1 << 62), 4999, "(times before 1970 or after 2038 1)"),
        (lambda a: np.put(a["p"], 3000, 7), 4999, "(polarities that are none 1)"),
    ],
)
def test_one_event_that_is_none_or_late_costs_no_other(tmp_path, events, bend, left, told):
    arrays = {name: array.astype(np.int64) for name, array in arrays_of(drive(events, 1_000_000_000)).items()}
    bend(arrays)
    report = survey(saved(tmp_path, **arrays))
    assert [topic["events"] for topic in report["topics"]] == [left]
    assert any(told in finding for finding in report["findings"])
    assert (
        report["format"] == "npz, times in us, 346x260 assumed"
        and "346x260" in report["topics"][0]["resolutions"]
    )
    assert report["duration_s"] == pytest.approx(1.23, abs=0.02)
    assert report["topics"][0]["events_per_s"] == pytest.approx(4050, rel=0.02)


@pytest.mark.parametrize("arrange", [np.random.default_rng(1).permutation, np.flip])
def test_times_in_no_order_are_refused(tmp_path, events, arrange):
    arrays = arrays_of(drive(events))
    arrays["t"] = arrange(arrays["t"] * 5)
    with pytest.raises(InputError, match=r"go back by more than a second: sort its events by t"):
        open_here(saved(tmp_path, **arrays))


def test_what_else_is_in_the_file_is_told(tmp_path, events):
    pictures, table = np.zeros((30, 4, 5), np.uint8), np.zeros((300, 4))
    path = saved(tmp_path, **arrays_of(events), aps=pictures, fps=30, events_right=table)
    (remark,) = open_here(path).remarks
    assert "has more that is not played (aps, events_right): give other events a file of their own" in remark


def test_fields_and_columns_that_are_not_used_are_told(tmp_path, events):
    arrays = {name: array.astype(np.int64) for name, array in arrays_of(events).items()}
    arrays |= {"camera": np.arange(5000) % 2}
    np.save(tmp_path / "fields.npy", np.rec.fromarrays([*arrays.values()], names=[*arrays]))
    (remark,) = open_here(tmp_path / "fields.npy").remarks
    assert "has more that is not played (camera): " in remark
    columns = ["t", "x", "y", "p", "camera"]
    path = saved(tmp_path, events=np.stack([*arrays.values()], axis=1), columns=columns)
    (of_table,) = open_here(path).remarks
    assert "has more that is not played (camera of the table): " in of_table
    # Its name may be that of something else of the events.
    path = saved(tmp_path, events=np.stack([*arrays.values()], axis=1), columns=[*columns[:4], "width"])
    (of_table,) = open_here(path).remarks
    assert "(width of the table)" in of_table


def test_files_with_several_offsets_are_refused(tmp_path, events):
    for number in range(2):
        part = events[number * 2500 : number * 2500 + 2500]
        np.savez(tmp_path / f"{number}.npz", **arrays_of(part), t_offset=number * 500)
    with pytest.raises(InputError, match="has t_offset = 0 to 500, which is no time in us"):
        open_here(tmp_path)


def test_a_unit_that_is_none_is_asked_for(tmp_path, events):
    path = saved(tmp_path, **arrays_of(events), time_unit="ticks")
    with pytest.raises(InputError, match="its unit is stated as 'ticks': say s, ms, us or ns with --time-u"):
        open_here(path)
    assert "times in us" in open_here(path, ReadOptions(time_unit="us")).format
    assert "times in us" in open_here(saved(tmp_path, **arrays_of(events), unit="px")).format


def test_the_unit_may_have_to_be_said(tmp_path, events):
    arrays = arrays_of(drive(events))
    path = saved(tmp_path, **arrays | {"t": arrays["t"] * 1000})
    with pytest.raises(InputError, match=r"as us they are .* say which with --time-unit ns"):
        open_here(path)
    heard = decode(open_here(path, ReadOptions(time_unit="ns")).messages(), 0)
    assert heard.t.tolist() == arrays["t"].tolist()
    with pytest.raises(InputError, match="have names: leave out --columns"):
        open_here(path, ReadOptions(columns="t,x,y,p"))


@pytest.mark.parametrize(
    ("seconds", "count", "size", "unit", "is_asked"),
    [
        (1.0, 1_500_000, (346, 260), "ns", True),
        (0.5, 1_000_000, (240, 180), "ns", True),
        (60.0, 1_000_000, (640, 480), "ms", True),
        (0.5, 60_000, (64, 48), "us", False),
        (1.0, 10_000_000, (640, 480), "us", False),
        (60.0, 30_000, (64, 48), "us", False),
        (300.0, 3_000_000, (346, 260), "us", False),
    ],
)
def test_a_unit_that_would_be_as_usual_as_another_is_asked_for(seconds, count, size, unit, is_asked):
    times = np.linspace(0, seconds * {"ms": 1e3, "us": 1e6, "ns": 1e9}[unit], 10_000)
    choose = partial(choose_unit, times, True, count, size)
    if is_asked:
        with pytest.raises(ValueError, match=f"say which with --time-unit {unit} or --time-unit us"):
            choose()
    else:
        assert choose() == unit


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"9": (0, 2000), "10": (2000, 5000)}, ""),
        ({"a_01": (0, 2000), "a_02": (2000, 2000), "a_03": (2000, 5000)}, ""),
        ({"cat": (0, 2000), "dog": (2000, 5000)}, "names do not only differ by a number"),
        (
            {"1": (0, 2000), "2": (0, 2000)},
            "follow each other: number 2 .* begins at about [0-9]{4} us",
        ),
        ({"1": (0, 0), "2": (9, 9)}, "has no events"),
    ],
)
def test_a_folder_of_numbered_files_is_one_recording(tmp_path, events, files, sentence):
    whole = drive(events)
    for name, (start, stop) in files.items():
        np.savez(tmp_path / f"{name}.npz", **arrays_of(whole[start:stop]))
    if sentence:
        with pytest.raises(InputError, match=sentence):
            open_here(tmp_path)
        return
    recording = open_here(tmp_path)
    assert recording.format == f"{len(files)} files npz, times in us, 346x260 assumed"
    assert_equal(decode(recording.messages(), 0), whole)


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ((0, 1, 2, 5, 6, 8), "numbered 3 to 4, 7 are not there"),
        ((10, 20, 30, 40), ""),
        ((1, 3, 5, 7), ""),
        ((0, 1, 2, 9), "numbered 3 to 8 are not there"),
        ((1700000000, 1700000123), ""),
    ],
)
def test_files_of_a_folder_that_are_missing_are_told(tmp_path, events, numbers, told):
    whole = drive(events)
    for place, number in enumerate(numbers):
        np.savez(tmp_path / f"{number:04}.npz", **arrays_of(whole[place * 500 : place * 500 + 500]))
    findings = survey(tmp_path)["findings"]
    assert any("are not there" in finding and told in finding for finding in findings) == bool(told)


@pytest.mark.parametrize(
    ("index", "time"), [(2499, 9_000_000_000), (2000, 9_000_000_000), (2500, 0), (4999, 0)]
)
def test_one_stray_time_does_not_part_the_files_of_a_folder(tmp_path, events, index, time):
    whole = drive(events, 1_000_000_000)
    whole.t[index] = time
    for number in range(2):
        np.savez(tmp_path / f"{number}.npz", **arrays_of(whole[number * 2500 : number * 2500 + 2500]))
    report = survey(tmp_path)
    assert report["topics"][0]["events"] == 5000 and report["duration_s"] == pytest.approx(1.23, abs=0.02)
    assert any("1 stamps lie far from those" in finding for finding in report["findings"])


CASES = [
    ("v2e_text_of_equal_times/v2e-dvs-events.txt", ReadOptions(), "t x y p, times in s", 3600, 0.07),
    ("unsorted_text/seconds.txt", ReadOptions(), "t x y p, times in s", 3900, 1.29),
    ("metavision_csv_of_few_lines/decoded.csv", ReadOptions(), "x y p t, times in us, 1280x720", 3, 1.04),
    ("esim_nanoseconds/0000000000.npz", ReadOptions(time_unit="ns"), "times in ns", 3900, 1.29),
    ("h5_that_states_its_size_in_events/gen1_td.h5", ReadOptions(), "304x240", 3900, 1.29),
    ("h5_with_a_table_of_events/v2e.h5", ReadOptions(), "table, times in us, 64x48", 3900, 1.29),
    ("h5_with_one_event_outside/train_day_0024_td.h5", ReadOptions(), "1280x720", 3899, 1.29),
    ("folder_of_npz/events_aligned", ReadOptions(), "13 files npz, times in us", 3900, 1.29),
]


@pytest.mark.parametrize(("name", "asked", "told", "count", "seconds"), CASES, ids=[c[0] for c in CASES])
def test_files_that_people_had_are_read(shared, name, asked, told, count, seconds):
    report = survey(shared / "data/cases" / name, asked=asked)
    assert told in report["format"]
    assert [topic["events"] for topic in report["topics"] if topic["kind"] == "events"] == [count]
    assert report["duration_s"] == pytest.approx(seconds, abs=0.02)
