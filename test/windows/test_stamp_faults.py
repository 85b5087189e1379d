"""Wrong, set and jumping clocks of live streams: the kept data, and the sentence that names the cause."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.dvs import encode_dvs
from crossspec_ros.events.fixed import encode_mono
from crossspec_ros.events.stamp_judge import amount, guess_clock
from crossspec_ros.settings import SynchronizerSettings
from crossspec_ros.windows.pipeline import Pipeline
from crossspec_ros.windows.window import WindowClosed

SECOND = 10**9
WIDTH, HEIGHT = 16, 12
SECONDS, PACKET_S, EVENTS_PER_PACKET = 8.0, 0.01, 10
YEAR_S = 365.25 * 86400
SETTINGS = SynchronizerSettings(frames=8, frame_size=12, event_images=5, event_image_size=6)


def header(stamp_ns):
    stamp = SimpleNamespace(sec=stamp_ns // SECOND, nanosec=stamp_ns % SECOND)
    return SimpleNamespace(stamp=stamp, frame_id="camera")


def batch(start_us):
    t = start_us + np.arange(EVENTS_PER_PACKET, dtype=np.int64) * 900
    x = np.arange(EVENTS_PER_PACKET, dtype=np.uint16)
    return EventBatch(t, x, np.zeros_like(x), (x % 2).astype(np.uint8), WIDTH, HEIGHT)


def packet(seq, seconds, stamp_ns):
    sensor_us = 7_000_000 + round(seconds * 1e6)
    return SimpleNamespace(
        header=header(stamp_ns),
        seq=seq,
        width=WIDTH,
        height=HEIGHT,
        encoding="mono",
        is_bigendian=False,
        time_base=sensor_us * 1000,
        events=encode_mono(batch(sensor_us), sensor_us * 1000),
    )


def image(stamp_ns):
    return SimpleNamespace(
        header=header(stamp_ns),
        width=WIDTH,
        height=HEIGHT,
        step=3 * WIDTH,
        encoding="rgb8",
        is_bigendian=0,
        data=bytes(3 * WIDTH * HEIGHT),
    )


class Live:
    """Two streams on a host, by functions from seconds to the seconds that their stamps are off."""

    def __init__(
        self, events, images, camera_hz=20, is_dvs=False, seconds=SECONDS, arrives=lambda at_s, is_image: at_s
    ):
        settings = replace(SETTINGS, event_type="dvs_msgs/EventArray") if is_dvs else SETTINGS
        self.pipeline = Pipeline(settings)
        self.sentences, self.windows, self.reads = {}, [], []
        # A third of a second before a full one.
        begin_ns = time.time_ns() // SECOND * SECOND + 2 * SECOND // 3
        packets, frames = round(seconds / PACKET_S), round(seconds * camera_hz)
        arrivals = [(i * PACKET_S + 0.011, 0, i, i * PACKET_S) for i in range(packets)]
        arrivals += [(i / camera_hz + 0.035, 1, i, i / camera_hz) for i in range(frames)]
        arrivals = [(came_s, *one[1:]) for one in arrivals if (came_s := arrives(one[0], one[1])) is not None]
        now_ns = [begin_ns]
        self.pipeline._judge._host_ns = lambda: now_ns[0]
        for arrival_s, is_image, number, at_s in sorted(arrivals):
            now_ns[0] = begin_ns + round(arrival_s * 1e9)
            # As diagnostics do, once a second.
            if arrival_s > len(self.reads):
                self.read()
            off_s = (images if is_image else events)(at_s)
            stamp_ns = begin_ns + round((at_s + off_s) * 1e9) if off_s is not None else 0
            if is_image:
                updates = self.pipeline.take_image(image(stamp_ns))
            elif is_dvs:
                updates = self.pipeline.take_events(encode_dvs(batch(stamp_ns // 1000), stamp_ns))
            else:
                updates = self.pipeline.take_events(packet(number, at_s, stamp_ns))
            self.windows += [one for one in updates if isinstance(one, WindowClosed)]
        self.read()

    def read(self):
        counts, before = self.pipeline.counts, self.reads[-1] if self.reads else {}
        for name, count in counts.items():
            if count > before.get(name, 0):
                self.sentences[name] = self.pipeline.findings.get(name, "")
        self.reads.append(counts)

    @property
    def with_both(self):
        return [one.end_ns // SECOND for one in self.windows if one.events > 950 and one.frames >= 6]

    @property
    def with_events(self):
        return [one.end_ns // SECOND for one in self.windows if one.events > 950]


def constant(offset_s):
    return lambda at_s: offset_s


steady = constant(0)


def set_by(*steps):
    """Return steps of (time, seconds)."""
    return lambda at_s: sum(by_s for since_s, by_s in steps if at_s >= since_s)


def to_and_fro(by_s):
    return lambda at_s: by_s * (int(at_s / 0.7) % 2)


BOOT_S = 5423 - time.time()
YEARS = amount(-BOOT_S * 1e9)


@pytest.mark.parametrize(
    ("stream", "offset_s", "fault"),
    [
        ("images", BOOT_S, f"are stamped {YEARS} before the events (time since boot?): let the driver"),
        ("images", 37, "are stamped 37.0 s after the events (TAI?): "),
        ("images", -18, "are stamped 18.0 s before the events (GPS time?): "),
        ("images", 7200, "are stamped 2.0 hours after the events (local time in place of UTC?): "),
        ("images", -3, "are stamped 3.0 s before the events: "),
        ("images", None, "have no stamps (header.stamp is 0): "),
        ("events", BOOT_S, f"are stamped {YEARS} before the images (time since boot?): "),
        ("events", 37, "are stamped 37.0 s after the images (TAI?): "),
        ("events", 3, "are stamped 3.0 s after the images: "),
        ("events", -3, "are stamped 3.0 s before the images: "),
        ("events", None, "have no stamps (header.stamp is 0): "),
    ],
    ids=itertools.count(),
)
def test_a_stream_with_another_clock_is_named(stream, offset_s, fault):
    is_image = stream == "images"
    counter = f"{'stray' if offset_s is not None else 'unstamped'}_{'frames' if is_image else 'events'}"
    for is_dvs in (False, True) if is_image else (False,):
        clocks = (steady, constant(offset_s)) if is_image else (constant(offset_s), steady)
        live = Live(*clocks, is_dvs=is_dvs)
        assert live.sentences[counter].startswith(f"the {stream} {fault}")
        kept = live.with_events if is_image else [one for one in live.windows if one.frames == 8]
        assert len(kept) >= 6 and not (is_image and "late_frames" in live.sentences)


def test_first_stream_may_be_the_odd_one():
    def arrives(at_s, is_image):
        return at_s if is_image else max(at_s, 0.4)

    live = Live(steady, constant(-3), arrives=arrives)
    assert live.sentences["stray_frames"].startswith("the images are stamped 3.0 s before the events: ")
    assert len(live.with_events) >= 6 and "late_frames" not in live.sentences


STEPS_S = [0.4, -0.4, 0.7, -0.7, -0.9, 1.0, 5.0, -5.0, -3600.0, 56 * YEAR_S]


@pytest.mark.parametrize("camera_hz", [20, 7])
@pytest.mark.parametrize("by_s", STEPS_S)
def test_set_clock_costs_its_window(by_s, camera_hz):
    step = set_by((3.55, by_s))
    live = Live(step, step, camera_hz)
    assert live.pipeline.counts["clock_steps"] == 1
    sentence_begin = f"the clock was set by {amount(by_s * 1e9)}: "
    assert all(sentence.startswith(sentence_begin) for sentence in live.sentences.values()), live.sentences
    # The first window, that of the step in the old and in the new time, and the last are not complete.
    assert len(live.with_both) >= SECONDS - 4


@pytest.mark.parametrize("steps", [((2.5, 0.5), (4.5, -0.5)), ((2.5, -4.0), (4.5, 9.0))])
def test_a_clock_may_be_set_twice(steps):
    live = Live(set_by(*steps), set_by(*steps))
    assert live.pipeline.counts["clock_steps"] == 2 and len(live.with_both) >= SECONDS - 6


def test_a_clock_that_was_set_shows_without_images():
    live = Live(set_by((3.5, 0.5)), steady, camera_hz=0.01)
    assert live.sentences["clock_steps"].startswith("the clock was set by 0.5 s: ")
    assert len(live.with_events) >= SECONDS - 4


@pytest.mark.parametrize("by_s", [-5.0, 3600.0])
def test_both_streams_of_dvs_may_jump(by_s):
    """Their events have no clock of their own."""
    live = Live(set_by((3.5, by_s)), set_by((3.5, by_s)), is_dvs=True)
    name = "backward_jumps" if by_s < 0 else "forward_jumps"
    assert live.sentences == {name: live.sentences[name]}
    assert "the clock was set, " in live.sentences[name] and len(live.with_both) >= SECONDS - 4


@pytest.mark.parametrize("by_s", [1.0, -1.5, 4.4, -4.4, 40.0, "two cameras"])
@pytest.mark.parametrize("is_dvs", [False, True], ids=["packets", "dvs"])
def test_jumping_images_leave_the_events(by_s, is_dvs):
    """Of two cameras on one topic, one on a host whose clock is 5 s ahead sends every second image."""
    jumps = to_and_fro(by_s) if by_s != "two cameras" else lambda at_s: 5.0 * (round(at_s * 20) % 2)
    live, by_s = Live(steady, jumps, is_dvs=is_dvs), 5.0 if by_s == "two cameras" else by_s
    assert live.sentences.keys() == {"stray_frames"}
    sentence_begin = live.sentences["stray_frames"]
    assert sentence_begin.startswith(f"the images' stamps jump by {by_s:.1f} s and the events' do not: ")
    assert len(live.with_events) >= SECONDS - 2


@pytest.mark.parametrize("by_s", [1.0, -1.5, 4.4])
@pytest.mark.parametrize("is_dvs", [False, True], ids=["packets", "dvs"])
def test_jumping_events_leave_the_images(by_s, is_dvs):
    live = Live(to_and_fro(by_s), steady, is_dvs=is_dvs)
    counter = "stray_events" if is_dvs else "late_packets"
    sentence_begin = f"the events' stamps jump by {by_s:.1f} s and the images' do not: "
    assert live.sentences[counter].startswith(sentence_begin) and live.sentences.keys() == {counter}
    # The sensor's clock assigns the packets.
    assert len(live.with_both if not is_dvs else [one for one in live.windows if one.frames == 8]) >= 6


def test_steady_streams_have_no_findings():
    live = Live(steady, steady)
    assert not live.sentences and len(live.with_both) >= SECONDS - 2


@pytest.mark.parametrize(
    ("offset_s", "guess"),
    [(37, "TAI"), (18, "GPS time"), (5 * 3600 + 1800, "local time in place of UTC"), (12.3, "")],
)
def test_offsets_have_guesses(offset_s, guess):
    now_ns = 1_790_000_000 * SECOND
    for stamp_ns in (now_ns + offset_s * SECOND, now_ns - offset_s * SECOND):
        assert guess_clock(round(stamp_ns), now_ns) == (f" ({guess}?)" if guess else "")


@pytest.mark.parametrize("is_late", [lambda is_image: is_image, lambda is_image: not is_image])
def test_delayed_messages_are_late_and_no_jump(is_late):
    def arrives(at_s, is_image):
        return max(at_s, 5.0) if is_late(is_image) and 3.0 < at_s < 5.0 else at_s

    live = Live(steady, steady, arrives=arrives)
    ends = [one.end_ns for one in live.windows]
    assert ends == sorted(set(ends))
    assert not live.pipeline.counts.get("backward_jumps")


def test_backlog_after_a_pause_is_used():
    """The middleware keeps the newest ten images, and gives them first."""

    def arrives(at_s, is_image):
        if not 3.0 < at_s < 5.0:
            return at_s
        return 5.0 if not is_image else 4.999 if at_s > 4.5 else None

    live = Live(steady, steady, arrives=arrives)
    assert not live.pipeline.counts.get("stray_frames")
