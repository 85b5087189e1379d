"""`.npz` files, folders of numbered ones, and what they hold in place of events."""

from __future__ import annotations

import io
import itertools
import os
import pickle
import zipfile

import numpy as np
import pytest
from crossspec_lab.samples.event_files import columns_of, random_batch
from event_samples import assert_equal
from recording_samples import decode, packets_of, saved
from refusals import refused

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import EVENT_PACKET
from crossspec_ros.events.packets import MAX_EVENTS, PacketCutter
from crossspec_ros.recordings import tables
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.recording import open_here
from crossspec_ros.recordings.survey import survey

START_US = 3 << 24
FIELDS = [("x", "u2"), ("y", "u2"), ("p", "i1"), ("timestamp_us", "i8")]
US_TABLE, S_TABLE = ({"columns": f"t_{unit},x,y,p"} for unit in ("us", "s"))


@pytest.fixture(scope="module")
def events():
    return random_batch(5000, t_start=START_US, duration_us=95_000, width=346, height=260)


@pytest.mark.parametrize("polarity", [np.uint8, bool, np.int64])
def test_events_of_any_type_play(tmp_path, events, polarity):
    arrays = {"t_us": events.t.astype(np.uint64), "x": events.x.astype(np.int32), "y": events.y.astype(float)}
    recording = open_here(saved(tmp_path, **arrays, p=events.p.astype(polarity)))
    assert (recording.event_type, recording.image_topic) == (EVENT_PACKET, None)
    assert recording.start_ns == events.t[0] * 1000
    messages = list(recording.messages())
    assert_equal(decode(messages), events)
    assert len(messages) == 11 and list(recording.messages()) == messages


@pytest.mark.parametrize(
    ("arrange", "unit", "options"),
    [
        (lambda t, x, y, p: {"ts": t / 1e6, "x": x, "y": y, "pol": p > 0}, "s", {"time_unit": "s"}),
        (lambda t, x, y, p: {"timestamp_ns": t * 1000, "x": x, "y": y, "polarity": p}, "ns", {}),
        (lambda t, x, y, p: {"t": t, "x": x, "y": y, "p": p, "time_unit": "us"}, "us", {}),
        (lambda t, x, y, p: {"t": t, "x": x, "y": y, "p": p}, "us", {"time_unit": "us"}),
        (lambda t, x, y, p: {"events": np.rec.fromarrays([x, y, p, t], dtype=FIELDS)}, "us", {}),
        (lambda t, x, y, p: {"arr_0": np.stack([t, y, x, p], 1)}, "us", {"columns": "t_us,y,x,p"}),
        (lambda t, x, y, p: {"K": np.eye(3), "e": np.stack([t, x, y, p], 1)}, "us", US_TABLE),
        (lambda t, x, y, p: {"a": np.stack([t / 1e6, x, y, 2.0 * p - 1, t], 1)}, "s", S_TABLE),
    ],
)
def test_named_arrays_and_tables_play(tmp_path, events, arrange, unit, options):
    arrays = arrange(events.t, events.x.astype(int), events.y.astype(int), events.p.astype(int))
    recording = open_here(saved(tmp_path, **arrays), ReadOptions(**options))
    assert recording.format == f"npz, times in {unit}, 346x260 assumed"
    assert_equal(decode(recording.messages()), events)
    if len(arrays) == 1:
        np.save(tmp_path / "events.npy", *arrays.values())
        assert_equal(decode(open_here(tmp_path / "events.npy", ReadOptions(**options)).messages()), events)


BINS = [("p", "u1"), ("t", "<i8"), ("x", "<u2"), ("y", "<u2")]


def binned(events, cuts):
    """Return the events as EventBench stores them: objects, each a structured array."""
    tables = np.empty(len(cuts) - 1, object)
    for i, (start, stop) in enumerate(itertools.pairwise(cuts)):
        tables[i] = np.empty(stop - start, BINS)
        for name, _ in BINS:
            tables[i][name] = getattr(events, name)[start:stop]
    return tables


def with_pickle(folder, pickled):
    """Write an .npz whose event_bins are these bytes, under a header that promises one object."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    with zipfile.ZipFile(folder / "events.npz", "w") as file:
        file.writestr("event_bins.npy", buffer.getvalue() + pickled)
    return folder / "events.npz"


@pytest.mark.parametrize("renamed", [False, True], ids=["this numpy", "older numpy"])
def test_bins_of_eventbench_play(tmp_path, events, renamed):
    bins = binned(events, (0, 1000, 1000, 4000, 5000))
    path = saved(tmp_path, event_bins=bins)
    if renamed:
        path = with_pickle(tmp_path, pickle.dumps(bins, 3).replace(b"numpy._core", b"numpy.core"))
    recording = open_here(path)
    assert recording.format == "npz, times in us, 346x260 assumed"
    stated = open_here(saved(tmp_path, event_bins=bins, width=640, height=480))
    assert {(packet.width, packet.height) for packet in packets_of(stated.messages())} == {(640, 480)}
    assert_equal(decode(recording.messages()), events)


@pytest.mark.parametrize(
    "bins",
    [
        [{"t": 1}, np.zeros(3, BINS)],
        [np.zeros(3), np.zeros(3, BINS)],
        [np.array([{}, 1], object), 1],
        [],
    ],
)
def test_bins_of_other_kinds_are_refused(tmp_path, bins):
    objects = np.empty(len(bins), object)
    for i, one in enumerate(bins):
        objects[i] = one
    with refused("npz-bins-no-tables"):
        open_here(saved(tmp_path, event_bins=objects))


@pytest.mark.parametrize("function", [os.system, eval, np.load])
def test_bins_call_nothing(tmp_path, function):
    canary = tmp_path / "canary"

    class Call:
        def __reduce__(self):
            return function, (f"touch {canary}",)

    tables = binned(random_batch(3), (0, 3, 3))
    tables[1] = Call()
    with refused("npz-bins-call", name=f"{function.__module__}.{function.__name__}"):
        open_here(with_pickle(tmp_path, pickle.dumps(tables)))
    assert not canary.exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Objects, whose bytes would become pointers; a field outside the row; longer rows; text.
        (b"i8", b"O8"),
        (b"K\x09", b"K\x7f"),
        (b"K\rK\x01", b"KcK\x01"),
        (b"V13", b"S13"),
        (b"u2", b"U2"),
    ],
)
def test_states_of_bins_are_checked(tmp_path, events, old, new):
    pickled = pickle.dumps(binned(events, (0, 10)), 3)
    assert old in pickled
    with refused("npz-bins-state", library_text=True):
        open_here(with_pickle(tmp_path, pickled.replace(old, new)))


def test_nanoseconds_need_a_unit(tmp_path):
    """An earlier reader took 0.12 s of nanoseconds for 120 s of microseconds."""
    count = 1_200_000
    t = np.arange(count, dtype=np.int64) * 100
    path = tmp_path / "events.npz"
    # Fractions may be of any unit, too.
    for times in (t / 1000 + 0.5, t):
        np.savez(path, t=times, x=t // 100 % 346, y=t // 100 % 260, p=t // 100 % 2)
        with refused("npz-no-time-unit"):
            open_here(path)
    recording = open_here(path, ReadOptions(time_unit="ns"))
    *_, last = (message.stamp_ns for message in recording.messages())
    assert recording.start_ns == 0 and last < 120_000_000


def test_events_outside_assumed_sensor_end_reading(tmp_path):
    """The first block may lie in a corner of a larger sensor."""
    t = np.arange(tables.BLOCK + 1000)
    x = np.where(t < tables.BLOCK, 100, 1000)
    recording = open_here(saved(tmp_path, t_us=t, x=x, y=x // 10, p=t % 2))
    assert sum(len(packet.events) for packet in packets_of(recording.messages())) > 0
    assert "128x128, the smallest that holds the first events" in recording.losses[0]


@pytest.mark.parametrize(
    ("largest", "stated", "size"),
    [
        ((127, 127), {}, (128, 128)),
        ((239, 100), {}, (240, 180)),
        ((319, 319), {}, (320, 320)),
        ((640, 480), {}, (768, 640)),
        ((640, 640), {}, (1280, 720)),
        ((1280, 719), {}, (1281, 720)),
        ((127, 127), {"width": 1000, "height": np.uint16(500)}, (1000, 500)),
    ],
)
def test_sensor_is_stated_or_smallest_fitting(tmp_path, largest, stated, size):
    x, y = ([value] for value in largest)
    recording = open_here(saved(tmp_path, t_us=[5], x=x, y=y, p=[1], **stated))
    (packet,) = packets_of(recording.messages())
    assert (packet.width, packet.height) == size


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"t_us": None}, "npz-without-t"),
        ({"x": np.array(["1", "2", "3"])}, "npz-x-text"),
        ({"y": [1, 2]}, "npz-y-short"),
        ({"t_us": np.full(3, 1 << 63, np.uint64)}, "npz-t-huge"),
        ({"x": [-1, -1, 0]}, "npz-x-negative"),
        ({"width": 4, "height": 5000}, "npz-sensor-impossible"),
        ({name: np.empty(0, int) for name in ("t_us", "x", "y", "p")}, "npz-no-events"),
        ({"t_us": np.array([{}, {}, {}])}, "npz-objects"),
        ({"t_us": np.array([0, 5, 1]) * 2_000_000}, "npz-unsorted"),
    ],
)
def test_invalid_arrays_are_refused(tmp_path, wrong, code):
    arrays = {"t_us": [1, 2, 3], "x": [1, 2, 3], "y": [1, 2, 3], "p": [0, 1, 1]} | wrong
    path = saved(tmp_path, **{name: values for name, values in arrays.items() if values is not None})
    with refused(code, library_text=code == "npz-objects"):
        open_here(path)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.999, None])
def test_damaged_files_are_refused(tmp_path, events, keep):
    path = saved(tmp_path, **columns_of(events))
    data = bytearray(path.read_bytes())
    if keep is None:
        data[len(data) // 2] ^= 0xFF
    path.write_bytes(data if keep is None else data[: int(len(data) * keep)])
    with refused("npz-damaged", library_text=True):
        open_here(path)


def test_burst_is_cut_into_dds_packets(events):
    burst = random_batch(1_000_000, 3, t_start=START_US, duration_us=10_000, width=1280, height=720)
    messages = list(PacketCutter("burst").cut(burst))
    assert len(messages) == -(-len(burst) // MAX_EVENTS)
    assert max(len(message.data) for message in messages) < 1_000_000
    assert_equal(decode(messages), burst)


def test_stillness_is_filled_but_not_a_jump(events):
    t = np.array([0, 1_000_000, 4_000_000_000]) + START_US
    batch = EventBatch(t, *(np.zeros(3, kind) for kind in (np.uint16, np.uint16, np.uint8)), 640, 480)
    cutter = PacketCutter("clock")
    all_events = list(cutter.cut(batch))
    assert [message.stamp_ns for message in all_events[:2]] == [START_US * 1000, START_US * 1000 + 10_000_000]
    assert len(all_events) == 102 and [packet.seq for packet in packets_of(all_events)] == list(range(102))
    # However the batches are cut, and also when the clock goes back.
    again = PacketCutter("clock")
    assert [message for i in range(3) for message in again.cut(batch[i : i + 1])] == all_events
    assert [message.stamp_ns for message in cutter.cut(batch[:1])] == [START_US * 1000]


def test_events_over_months_need_few_packets(monkeypatch):
    monkeypatch.setattr("crossspec_ros.events.packets.STILL_PACKETS", 100)
    t, zeros = np.arange(1000) * 59_000_000, np.zeros(1000, np.uint16)
    batch = EventBatch(t, zeros, zeros, zeros.astype(np.uint8), 640, 480)
    assert len(list(PacketCutter("clock").cut(batch))) < 2 * 5900 + 1000 + 14 * 100


@pytest.mark.parametrize(
    ("size", "code"), [((100, 100), "events-outside-sensor"), ((5000, 480), "sensor-too-large")]
)
def test_events_outside_their_sensor_are_refused(size, code):
    batch = random_batch(10, width=640, height=480)
    with refused(code):
        list(PacketCutter("cam").cut(EventBatch(batch.t, batch.x, batch.y, batch.p, *size)))


def drive(events, since_us=0):
    """Return the same events over 1.23 s."""
    return events.at((events.t - events.t[0]) * 13 + since_us)


@pytest.mark.parametrize(
    ("name", "index", "value", "left", "finding"),
    [
        ("t_us", 3000, 1_400_000_000, 5000, "sorted"),
        ("t_us", 0, 0, 5000, "1 stamps lie far"),
        ("y", 3000, 33_014, 4999, "(events outside sensor 1)"),
        ("t_us", 3000, 1 << 62, 4999, "after 2038 1)"),
        ("p", 3000, 7, 4999, "(invalid polarities 1)"),
    ],
)
def test_invalid_event_costs_no_other(tmp_path, events, name, index, value, left, finding):
    arrays = columns_of(drive(events, 1_400_200_000))
    arrays = {name: array.astype(np.int64) for name, array in arrays.items()}
    arrays[name][index] = value
    report = survey(saved(tmp_path, **arrays))
    assert [topic["events"] for topic in report["topics"]] == [left]
    assert any(finding in found for found in report["findings"])


@pytest.mark.parametrize("names", [("9", "10"), ("a_01", "a_02"), ("0", "7")])
def test_numbered_files_are_one_recording(tmp_path, events, names):
    all_events = drive(events)
    for name, part in zip(names, (all_events[:2000], all_events[2000:]), strict=True):
        np.savez(tmp_path / f"{name}.npz", **columns_of(part))
    np.savez(tmp_path / f"{names[0][:-1]}8.npz", **columns_of(all_events[:0]))
    recording = open_here(tmp_path)
    assert recording.format == "3 files npz, times in us, 346x260 assumed"
    assert_equal(decode(recording.messages()), all_events)


def test_files_of_other_names_are_refused(tmp_path, events):
    for name in ("cat", "dog"):
        np.savez(tmp_path / f"{name}.npz", **columns_of(events))
    with refused("npz-names-differ"):
        open_here(tmp_path)


def test_restarted_numbered_files_are_a_loss(tmp_path, events):
    for number in range(2):
        np.savez(tmp_path / f"{number}.npz", **columns_of(drive(events[:2000] if number else events)))
    recording = open_here(tmp_path)
    assert_equal(decode(recording.messages()), drive(events))
    assert "earlier times" in recording.losses[0]


CASES = [
    ("v2e_text_of_equal_times/v2e-dvs-events.txt", ReadOptions(), "t x y p, times in s", 3600, 0.07),
    ("unsorted_text/seconds.txt", ReadOptions(), "t x y p, times in s", 3900, 1.29),
    ("metavision_csv_of_few_lines/decoded.csv", ReadOptions(), "x y p t, times in us, 1280x720", 3, 1.04),
    ("esim_nanoseconds/0000000000.npz", ReadOptions(time_unit="ns"), "times in ns", 3900, 1.29),
    ("h5_that_states_its_size_in_events/gen1_td.h5", ReadOptions(), "304x240", 3900, 1.29),
    ("h5_with_a_table_of_events/v2e.h5", ReadOptions(), "v2e, times in us, 64x48", 3900, 1.29),
    ("h5_with_one_event_outside/train_day_0024_td.h5", ReadOptions(), "1280x720", 3899, 1.29),
    ("folder_of_npz/events_aligned", ReadOptions(time_unit="us"), "13 files npz, times in us", 3900, 1.29),
]


@pytest.mark.parametrize(("name", "options", "format", "count", "seconds"), CASES, ids=[c[0] for c in CASES])
def test_files_of_the_field_are_read(shared, name, options, format, count, seconds):
    report = survey(shared / "data/cases" / name, options=options)
    assert format in report["format"]
    assert [topic["events"] for topic in report["topics"] if topic["kind"] == "events"] == [count]
    assert report["duration_s"] == pytest.approx(seconds, abs=0.02)


@pytest.mark.parametrize("name", ["esim_nanoseconds/0000000000.npz", "folder_of_npz/events_aligned"])
def test_files_without_unit_are_refused(shared, name):
    with refused("npz-case-no-time-unit", name=shared / "data/cases" / name):
        open_here(shared / "data/cases" / name)
