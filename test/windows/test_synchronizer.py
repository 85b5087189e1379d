"""The windows depend on the data alone, not on the order in which the two streams happen to arrive."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from crossspec_lab.world.event_images import render
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.synchronizer import EventImageReady, FrameReady, Synchronizer
from crossspec_ros.windows.window import EVENTS, FRAMES, WindowClosed

MS = 1_000_000
GRID = WindowGrid()


def batch(*times_ms, width=8, height=4):
    t = np.asarray(times_ms, np.int64) * MS
    n = len(t)
    x = np.arange(n, dtype=np.uint16) % width
    return EventBatch(t, x, np.zeros(n, np.uint16), np.ones(n, np.uint8), width, height)


def frame(value=0, width=8, height=4):
    return np.full((height, width, 3), value, np.uint8)


def feed(synchronizer, items):
    take = {EVENTS: lambda batch: synchronizer.add_events(batch), FRAMES: synchronizer.add_frame}
    take |= {"silence": synchronizer.add_silence, "advance": synchronizer.advance}
    return [
        update
        for kind, data in items
        for update in take[kind](*(data if isinstance(data, tuple) else (data,)))
    ]


def contents(updates):
    """Return the output by window: ends, counts, and the images' stamps and bytes."""
    windows = {update.end_ns: [update, [], []] for update in closed(updates)}
    for update in updates:
        if isinstance(update, FrameReady):
            index, place = GRID.index(update.stamp_ns), 1
        elif isinstance(update, EventImageReady):
            index, place = GRID.index(update.stamp_ns - 1), 2
        else:
            continue
        windows[GRID.end(index)][place].append((update.stamp_ns, update.image.tobytes()))
    return windows


def closed(updates):
    return [update for update in updates if isinstance(update, WindowClosed)]


def ends(updates):
    """Return the ends in s of the closed windows."""
    return [update.end_ns // SECOND for update in closed(updates)]


def captured(updates):
    """Return the closed windows that have any data: (end in s, frames, events)."""
    found = [(one.end_ns // SECOND, one.frames, one.events) for one in closed(updates)]
    return [(end, frames, events) for end, frames, events in found if frames or events]


def message(kind, ms):
    data = {EVENTS: batch(ms), FRAMES: (ms * MS, frame()), "silence": (ms * MS, False)}
    return kind, data[kind]


def messages(*kinds_and_ms):
    return [message(kind, ms) for kind, ms in kinds_and_ms]


def heartbeats(last_ms):
    end = GRID.end(GRID.index(last_ms * MS)) + SECOND // 4
    return [("advance", (EVENTS, end)), ("advance", (FRAMES, end))]


@st.composite
def streams(draw):
    """Two streams of 0-4 s and, for each message, its delay in ms, below the allowed lateness."""
    packets = draw(st.lists(st.integers(0, 400).map(lambda n: n * 10), max_size=30, unique=True).map(sorted))
    frames = draw(st.lists(st.integers(0, 4000), max_size=40, unique=True).map(sorted))
    items = [(EVENTS, ms, batch(ms, ms + 3, ms + 3, ms + 9)) for ms in packets]
    items += [(FRAMES, ms, (ms * MS, frame(ms % 251))) for ms in frames]
    delays = draw(st.lists(st.integers(0, 180), min_size=len(items), max_size=len(items)))
    return items, delays


def arrival(items, delays):
    """Return the items as they arrive; delays never reorder a stream in itself."""
    latest = {EVENTS: 0, FRAMES: 0}
    order = []
    for (kind, ms, data), delay in zip(items, delays, strict=True):
        latest[kind] = max(latest[kind], ms + delay)
        order.append((latest[kind], kind, data))
    return [(kind, data) for _, kind, data in sorted(order, key=lambda item: item[0])]


@given(streams())
def test_any_interleaving_gives_the_same_windows(case):
    items, delays = case
    end = heartbeats(max((ms for _, ms, _ in items), default=0) + 9)
    punctual = feed(Synchronizer(GRID), arrival(items, [0] * len(items)) + end)
    delayed = feed(Synchronizer(GRID), arrival(items, delays) + end)
    assert contents(delayed) == contents(punctual)


@given(streams())
def test_windows_close_once_in_order(case):
    items, delays = case
    updates = feed(Synchronizer(GRID), arrival(items, delays) + heartbeats(4009))
    stamps = [ms for _, ms, _ in items]
    assert ends(updates) == list(range(min(stamps) // 1000 + 1 if stamps else 6, 6))
    for announced, frames, images in contents(updates).values():
        assert announced.frames == len(frames) and announced.event_images == len(images)
    assert sum(one.events for one in closed(updates)) == 4 * sum(kind == EVENTS for kind, *_ in items)
    closed_so_far = 0
    for update in updates:
        if isinstance(update, WindowClosed):
            closed_so_far = update.end_ns
        else:
            assert update.stamp_ns >= closed_so_far


@given(
    st.lists(
        st.tuples(st.sampled_from([EVENTS, FRAMES, "silence"]), st.integers(-20_000, 20_000)), max_size=40
    )
)
def test_random_stamps_close_windows_in_order(messages):
    """However the stamps jump, the closed windows have no more gaps than there were restarts."""
    synchronizer = Synchronizer(GRID)
    items = [message(kind, 30_000 + ms) for kind, ms in messages]
    updates = feed(synchronizer, items)
    counts, passed = synchronizer.counts, ends(updates)
    breaks = sum(current != previous + 1 for previous, current in itertools.pairwise(passed))
    assert breaks <= counts["backward_jumps"] + counts["forward_jumps"]
    updates += feed(synchronizer, [("advance", (EVENTS, 1000 * SECOND))])
    kinds = [kind for kind, _ in messages]
    found = sum(one.events for one in closed(updates)) + counts["late_events"] + counts["stray_events"]
    # Signs of silence may be strays of the events as well.
    assert kinds.count(EVENTS) <= found <= kinds.count(EVENTS) + kinds.count("silence")


def test_slices_are_rendered_once_events_passed():
    """Slices have equal times."""
    synchronizer = Synchronizer(GRID, images=5)
    before = list(synchronizer.add_events(batch(10, 150, 199)))
    assert before == []
    # Events may be a little behind the latest ones, so that the slice is not certain yet.
    assert list(synchronizer.add_events(batch(204, 198))) == []
    second = list(synchronizer.add_events(batch(205, 210, 405)))
    assert [update.stamp_ns for update in second] == [200 * MS, 400 * MS]
    assert np.array_equal(second[0].image, render(batch(10, 150, 199)))
    assert np.array_equal(second[1].image, render(batch(205, 210)))
    # An event of a slice that is rendered comes too late, one of the open slice does not.
    assert list(synchronizer.add_events(batch(300, 401))) == []
    assert synchronizer.counts == {"late_events": 1}
    rest = feed(synchronizer, heartbeats(999))
    assert [update.stamp_ns for update in rest[:3]] == [600 * MS, 800 * MS, SECOND]
    assert np.all(rest[1].image == 255)
    assert rest[3] == WindowClosed(SECOND, 0, 5, 9, late_events=1, covered_ms=395)


def test_silent_start_is_white():
    """A silent window has no image."""
    synchronizer = Synchronizer(GRID, images=5)
    updates = feed(synchronizer, [("advance", (EVENTS, 500 * MS)), (EVENTS, batch(550)), *heartbeats(1500)])
    images = [update for update in updates if isinstance(update, EventImageReady)]
    assert [bool((image.image != 255).any()) for image in images] == [False, False, True, False, False]
    assert [one.event_images for one in closed(updates)] == [5, 0]


def test_synchronizer_decodes_first_frame_of_slot():
    """It never decodes the other frames of a slot."""
    synchronizer = Synchronizer(GRID)
    decoded = []

    def make(ms):
        return lambda: decoded.append(ms) or frame(ms % 251)

    updates = [u for ms in range(0, 1000, 50) for u in synchronizer.add_frame(ms * MS, make(ms))]
    assert decoded == [0, 150, 250, 400, 500, 650, 750, 900]
    assert [u.stamp_ns // MS for u in updates] == decoded


def test_single_stream_closes_windows_later():
    synchronizer = Synchronizer(GRID)
    assert not any(isinstance(u, WindowClosed) for u in feed(synchronizer, [(EVENTS, batch(100, 1199))]))
    assert feed(synchronizer, [(EVENTS, batch(1200))])[-1] == WindowClosed(SECOND, 0, 5, 1, covered_ms=900)


def test_event_images_do_not_wait_for_the_frames():
    updates = feed(Synchronizer(GRID), [(FRAMES, (10 * MS, frame())), (EVENTS, batch(*range(0, 1020, 10)))])
    assert [type(u) for u in updates] == [FrameReady] + [EventImageReady] * 5


def test_closing_counts_late_data():
    """Late data are in no window."""
    late = [(EVENTS, batch(900, 950, 1301)), (FRAMES, (700 * MS, frame())), (FRAMES, (800 * MS, frame()))]
    synchronizer = Synchronizer(GRID)
    first = [(EVENTS, batch(500)), (EVENTS, batch(1300))]
    updates = feed(synchronizer, [*first, *late, (EVENTS, batch(2300)), *heartbeats(2300)])
    counts = [(one.end_ns // SECOND, one.late_events, one.late_frames) for one in closed(updates)]
    assert counts == [(1, 0, 0), (2, 2, 2), (3, 0, 0)]
    assert synchronizer.counts == {"late_frames": 2, "late_events": 2}


def stragglers(start_ms):
    """Both streams jump back, and a frame from before comes behind the first events."""
    before = (EVENTS, start_ms), (FRAMES, start_ms), (EVENTS, 2_490), (EVENTS, 2_500)
    return [*before, (FRAMES, start_ms + 50), (EVENTS, 2_600), (FRAMES, 2_500)]


ANOTHER_ERA = [(FRAMES, 10**12), *((EVENTS, ms) for ms in range(100, 2000, 100))]


@pytest.mark.parametrize(
    ("items", "windows", "jump"),
    [
        ([(EVENTS, 5_500), (EVENTS, 20_000)], [(6, 0, 1), (21, 0, 1)], "forward"),
        ([(EVENTS, 5_500), (EVENTS, 2_000)], [(6, 0, 1), (3, 0, 1)], "backward"),
        (stragglers(5_500), [(6, 1, 1), (3, 1, 3)], "backward"),
        (stragglers(50_500), [(51, 1, 1), (3, 1, 3)], "backward"),
        (ANOTHER_ERA, [(10**9 + 1, 1, 0), (1, 0, 9), (2, 0, 10)], "backward"),
    ],
)
def test_jump_closes_windows_and_starts_anew(items, windows, jump):
    synchronizer = Synchronizer(GRID)
    updates = feed(synchronizer, [*messages(*items), *heartbeats(items[-1][1])])
    assert captured(updates) == windows and len(closed(updates)) == len(windows)
    assert synchronizer.counts == {f"{jump}_jumps": 1}


@pytest.mark.parametrize("stray_ms", [0, 105_000, 10**12])
@pytest.mark.parametrize("stream", [EVENTS, FRAMES, "silence"])
def test_stray_stamp_closes_no_window(stream, stray_ms):
    """No other data are lost."""
    items = messages(*((kind, ms) for ms in range(100_000, 103_000, 50) for kind in (EVENTS, FRAMES)))
    punctual = feed(Synchronizer(GRID), items + heartbeats(102_999))
    synchronizer = Synchronizer(GRID)
    stray = message(stream, stray_ms)
    updates = feed(synchronizer, [*items[:30], stray, *items[30:], *heartbeats(102_999)])
    assert contents(updates) == contents(punctual)
    assert synchronizer.counts == {f"stray_{FRAMES if stream == FRAMES else EVENTS}": 1}


@pytest.mark.parametrize("later_ns", [3 * SECOND, -(2**62)])
def test_a_packet_with_distant_times_is_refused(later_ns):
    synchronizer = Synchronizer(GRID)
    torn = batch(0, 0).at(np.array([100 * MS, 100 * MS + later_ns]))
    with refused("packet-times-apart", span=f"{abs(later_ns) // SECOND} s"):
        feed(synchronizer, [(EVENTS, batch(100)), (EVENTS, torn)])
    assert closed(feed(synchronizer, heartbeats(100)))[-1].events == 1


def test_lost_packets_count_in_their_window():
    """Packets are lost before the events of that window."""
    synchronizer, updates = Synchronizer(GRID), []
    for ms, lost in ((500, 0), (510, 7), (1900, 2), (2400, 3), (50_100, 5)):
        updates += synchronizer.add_events(batch(ms), lost_packets=lost)
    updates += feed(synchronizer, heartbeats(50_100))
    assert [one.lost_packets for one in closed(updates)] == [7, 2, 3, 5]


@pytest.mark.parametrize("stream", [EVENTS, FRAMES])
def test_a_change_of_size_starts_anew(stream):
    synchronizer, updates = Synchronizer(GRID), []
    for ms in range(0, 5000, 100):
        width = {stream: 16 if ms >= 1500 else 8}
        updates += synchronizer.add_events(batch(ms, width=width.get(EVENTS, 8)))
        updates += synchronizer.add_frame(ms * MS, frame(width=width.get(FRAMES, 8)))
    kind = EventImageReady if stream == EVENTS else FrameReady
    widths = [u.image.shape[1] for u in updates if isinstance(u, kind)]
    assert widths == sorted(widths) and set(widths) == {8, 16}
    assert ends(updates) == [1, 2, 3, 4]
    # What the closed window can take no more is not late.
    assert synchronizer.counts == {f"{stream}_of_another_size": 1}


def test_invalid_frame_uses_no_slot():
    """It opens no window, either."""

    def broken():
        raise InputError("broken")

    synchronizer = Synchronizer(GRID)
    with pytest.raises(InputError):
        feed(synchronizer, [(FRAMES, (1, broken))])
    # Else a thousand million windows would close now.
    updates = itertools.islice(synchronizer.add_events(batch(10**12 + 500, 10**12 + 2500)), 20)
    assert ends(updates) == [10**9 + 1, 10**9 + 2]
    with pytest.raises(InputError):
        feed(synchronizer, [(FRAMES, ((10**12 + 2500) * MS, broken))])
    assert feed(synchronizer, [(FRAMES, ((10**12 + 2510) * MS, frame()))]) != []


def test_windows_report_their_covered_time():
    items = [(EVENTS, batch(700, 900)), (FRAMES, (950 * MS, frame()))]
    items += [(EVENTS, batch(1100, 1150)), (FRAMES, (1400 * MS, frame())), (EVENTS, batch(2050, 2260))]
    synchronizer = Synchronizer(GRID)
    # The player's sign at the end is no data.
    updates = feed(synchronizer, [*items, ("advance", (EVENTS, 3250 * MS))])
    assert [one.covered_ms for one in closed(updates)] == [300, 1000, 260]
    # After a gap everything starts anew; a still camera goes on recording.
    updates = feed(synchronizer, [(EVENTS, batch(t)) for t in (50_400, 50_800, 50_900)])
    updates += feed(synchronizer, [("silence", (51_250 * MS, True))])
    assert [one.covered_ms for one in closed(updates)] == [600]


SPANS = [(102_000, 105_000), (105_000, 120_500)]


@pytest.mark.parametrize("times", [1, 2, 40])
@pytest.mark.parametrize("odd_ms", [0, 50_000, 112_000, 3_700_000, 2**31 * 1000])
@pytest.mark.parametrize("kind", ["silence", EVENTS, FRAMES])
def test_odd_stamps_do_not_stop_other_stream(kind, odd_ms, times):
    """The stream with odd stamps has ended."""
    both = messages(*((one, ms) for ms in range(100_000, 102_000, 100) for one in (EVENTS, FRAMES)))
    other = EVENTS if kind == FRAMES else FRAMES
    before, after = ([message(other, ms) for ms in range(*span, 100)] for span in SPANS)
    updates = feed(Synchronizer(GRID), [*both, *before, *[message(kind, odd_ms)] * times, *after])
    passed = [end for end, *_ in captured(updates)]
    assert passed[:2] == [101, 102] and passed[-6:] == [115, 116, 117, 118, 119, 120]
    lost = set(range(103, 121)) - set(passed)
    assert len(lost) <= (5 if times > 1 else 0)


@pytest.mark.parametrize("stream", [EVENTS, FRAMES])
def test_silence_restarts_a_short_recording(stream):
    once = [message(stream, ms) for ms in range(5_000, 5_800, 100)] + [message("silence", 6_250)]
    updates = feed(Synchronizer(GRID), [*once, message("silence", 5_000), *once])
    first, again = closed(updates)
    assert first == again and first.end_ns == 6 * SECOND and (first.frames or first.events == 8)


@pytest.mark.parametrize("stream", [EVENTS, FRAMES])
def test_stream_set_ahead_waits_for_other(stream):
    other = FRAMES if stream == EVENTS else EVENTS
    before = [message(one, ms) for ms in range(5_000, 7_000, 100) for one in (EVENTS, FRAMES)]
    after = [
        one
        for ms in range(7_000, 17_000, 100)
        for one in (message(stream, 3_600_000 + ms), message(other, ms + (3_600_000 if ms > 12_000 else 0)))
    ]
    synchronizer = Synchronizer(GRID)
    ends = [end for end, *_ in captured(feed(synchronizer, before + after))]
    assert ends == [*range(6, 14), *range(3613, 3617)]
    assert synchronizer.counts["forward_jumps"] == 1 and not synchronizer.counts["backward_jumps"]
