"""A replay of a recording gives the windows, counts and captions that `crossspec caption` gives.

Each kind of topics is a row of `FORMATS`, every odd stream one of `ODDITIES`; the nodes are real but for the
models. Tests of recordings hold that all formats give such messages.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from dataclasses import replace

import cv2
import numpy as np
import pytest
from crossspec_lab.evt3_encoder import encode_evt3
from fakes import FakeDecoder
from outsider import outsider, spinning, to_ns
from rclpy.parameter import Parameter
from rosbags.rosbag2 import StoragePlugin, Writer

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.code_replay import CodeReplay
from crossspec_ros.captioning.replay_setup import ReplaySetup
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import (
    COMPRESSED_IMAGE,
    DVS_EVENTS,
    EVENT_PACKET,
    IMAGE,
    RecordedMessage,
    compressed_image,
    event_packet,
    image,
    typestore,
)
from crossspec_ros.events.dvs import encode_dvs
from crossspec_ros.ros.captioner_node import CaptionerNode
from crossspec_ros.ros.messages import closed_window
from crossspec_ros.ros.player_node import PlayerNode
from crossspec_ros.ros.replay import INPUTS
from crossspec_ros.ros.synchronizer_node import SynchronizerNode

SECOND, MS = 10**9, 10**6
START_US = 100_300_000
DURATION_US = 1_900_000
HALF_US = START_US + DURATION_US // 2
SIZE = (32, 24)
YEAR_NS = 365 * 86400 * SECOND


def events():
    rng = np.random.default_rng(3)
    n = 6000
    t = START_US + np.sort(rng.integers(0, DURATION_US, n))
    x, y, p = (rng.integers(0, limit, n) for limit in (*SIZE, 2))
    return EventBatch(t, x.astype(np.uint16), y.astype(np.uint16), p.astype(np.uint8), *SIZE)


def frames():
    """[(time in us, BGR pixels)] at 20 Hz, all different."""
    rng = np.random.default_rng(4)
    times = range(START_US + 7_000, START_US + DURATION_US, 50_000)
    return [(t, rng.integers(0, 255, (SIZE[1], SIZE[0], 3), np.uint8)) for t in times]


def packets(by_us=10_000):
    whole = events()
    for i in range(DURATION_US // by_us):
        since = START_US + i * by_us
        yield since, whole[(whole.t >= since) & (whole.t < since + by_us)]


def evt3_messages(jump_us=0):
    """All packets; sensor and host jump by so much in the middle."""
    made = []
    for seq, (t, batch) in enumerate(packets()):
        by_us = jump_us * (t > HALF_US)
        data = event_packet(
            (t + by_us) * 1000, encode_evt3(replace(batch, t=batch.t + by_us)), "evt3", SIZE, seq
        )
        made.append(RecordedMessage((t + by_us) * 1000, "events", EVENT_PACKET, data))
    return made


def png_messages(jump_us=0):
    made = []
    for t, pixels in frames():
        stamp_ns = (t + jump_us * (t > HALF_US)) * 1000
        data = compressed_image(stamp_ns, png(pixels), "png")
        made.append(RecordedMessage(stamp_ns, "image", COMPRESSED_IMAGE, data))
    return made


def png(pixels):
    return cv2.imencode(".png", pixels)[1].tobytes()


def in_order(*streams):
    return sorted((m for stream in streams for m in stream), key=lambda m: m.stamp_ns)


def write_bag(path, messages, storage=StoragePlugin.MCAP):
    """In this order, which is that of recording whatever the stamps say."""
    recorded_ns = START_US * 1000
    with Writer(path, version=8, storage_plugin=storage) as writer:
        topics = {
            kind: writer.add_connection(f"/{kind}", type_name, typestore=typestore())
            for kind, type_name in sorted({(message.kind, message.type) for message in messages})
        }
        for message in messages:
            if START_US * 1000 <= message.stamp_ns < YEAR_NS:
                recorded_ns = max(recorded_ns, message.stamp_ns)
            writer.write(topics[message.kind], recorded_ns, message.data)
    return path


def sqlite3(path):
    raw = [
        RecordedMessage(t * 1000, "image", IMAGE, image(t * 1000, pixels, "bgr8")) for t, pixels in frames()
    ]
    return write_bag(path / "bag", in_order(evt3_messages(), raw), StoragePlugin.SQLITE3)


def dvs(path):
    arrays = [
        RecordedMessage(t * 1000, "events", DVS_EVENTS, encode_dvs(batch, t * 1000)) for t, batch in packets()
    ]
    return write_bag(path / "bag", in_order(arrays, png_messages()))


def csv(path):
    """In microseconds of the header's order, with its images beside it."""
    batch = events()
    rows = np.stack((batch.x, batch.y, batch.p, batch.t), 1)
    np.savetxt(path / "drive.csv", rows, "%d", ",", header="x,y,p,t_us", comments="")
    return path / "drive.csv"


WRITERS = (sqlite3, dvs, csv)
FORMATS = {write.__name__: write for write in WRITERS}


def stray_frames(path):
    """One frame is stamped with zero, another one a year ahead, a third one five seconds."""
    images = png_messages()
    for i, stamp_ns in ((3, 0), (9, YEAR_NS), (20, 105 * SECOND)):
        stamp = np.array(divmod(stamp_ns, SECOND), np.uint32).tobytes()
        data = images[i].data[:4] + stamp + images[i].data[12:]
        images[i] = images[i]._replace(stamp_ns=stamp_ns, data=data)
    return write_bag(path / "bag", evt3_messages() + images)


def pause(path):
    """Both cameras pause for less than makes a gap: windows without anything close in between."""
    return write_bag(path / "bag", in_order(evt3_messages(4_500_000), png_messages(4_500_000)))


def set_back(path):
    """Both cameras begin again in between, with seconds that have been before."""
    return write_bag(path / "bag", evt3_messages(-1_200_000) + png_messages(-1_200_000))


ODDITIES = {write.__name__: write for write in (stray_frames, pause, set_back)}


class Witness(FakeDecoder):
    """A decoder whose captions are all that a window shows."""

    def caption(self, window, *_, **named):
        shown = hashlib.sha256(window.frames.tobytes() + window.event_images.tobytes()).hexdigest()[:12]
        # As if the event draft had spoken alone, which needs no marks of a target's passes.
        text = f"{len(window.frames)} frames, {len(window.event_images)} event images, {shown}"
        return Caption(text, (1,), "event_draft")


def captioned(setup):
    """[(end of the window, events, caption)] as `crossspec caption` gives them."""
    replay = CodeReplay(setup, Witness())
    return [
        (one.window.end_ns, one.window.events, one.caption.text) for one in replay.windows()
    ], replay.counts


def replayed(setup, rate, windows):
    """Likewise from the nodes, by their reports and what was announced of each window."""
    makers = {
        "synchronizer": SynchronizerNode,
        "captioner": lambda **options: CaptionerNode(lambda params: Witness(), **options),
        "dsec_player": PlayerNode,
    }
    with ExitStack() as stack:
        observer = stack.enter_context(outsider())
        for name, make in makers.items():
            values = dict(setup.nodes[name])
            if name == "dsec_player":
                values |= {"rate": rate, "every_window": True, "caption_timeout_s": 20.0}
            overrides = [Parameter(name, value=value) for name, value in values.items()]
            rules = [word for topic in INPUTS.items() for word in ("-r", ":=".join(topic))]
            node = stack.enter_context(
                spinning(
                    lambda make=make, values=overrides, rules=rules: make(
                        parameter_overrides=values, cli_args=["--ros-args", *rules]
                    )
                )
            )
        node.play()
        closed = observer["/synchronizer/window_closed"]
        observer.wait(lambda: len(closed) == len(observer.reports()) >= windows)
        counts = [closed_window(message) for message in closed]
        assert sum(count.late_events + count.late_frames for count in counts) == 0
        return [
            (to_ns(message.header.stamp), count.events, text)
            for message, count, (_, _, text, _) in zip(closed, counts, observer.reports(), strict=True)
        ]


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)
def test_a_replay_gives_the_windows_of_caption(write, tmp_path):
    setup = ReplaySetup(write(tmp_path))
    expected, counts = captioned(setup)
    assert [end // SECOND for end, *_ in expected] == [101, 102, 103] and counts == {}
    assert sum(number for _, number, _ in expected) == len(events())
    assert replayed(setup, 2.0, len(expected)) == expected


@pytest.mark.parametrize(
    ("write", "ends", "told"),
    [
        (stray_frames, [101, 102, 103], {"stray_frames": 3}),
        (pause, [101, 102, 103, 104, 105, 106, 107], {}),
        (set_back, [101, 102, 101], {"backward_jumps": 1}),
    ],
    ids=ODDITIES,
)
def test_odd_stamps_neither_hang_a_replay_nor_make_windows(write, ends, told, tmp_path):
    setup = ReplaySetup(write(tmp_path))
    expected, counts = captioned(setup)
    assert [end // SECOND for end, *_ in expected] == ends
    assert {name: count for name, count in counts.items() if name in told} == told
    assert replayed(setup, 2.0, len(expected)) == expected
