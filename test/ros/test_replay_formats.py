"""A replay gives the same windows, counts and captions as `crossspec caption`.

Each case is a kind of topics or of streams. The nodes are real but for the models. Tests of recordings check
that all formats give such messages.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from dataclasses import replace

import cv2
import numpy as np
import pytest
from crossspec_lab.evt3_encoder import encode_evt3
from crossspec_lab.samples.event_files import random_batch
from fakes import FakeDecoder
from outsider import outsider, spinning, to_ns
from rclpy.parameter import Parameter
from rosbags.rosbag2 import StoragePlugin, Writer

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.code_replay import CodeReplay
from crossspec_ros.captioning.replay_setup import ReplaySetup
from crossspec_ros.events import cdr
from crossspec_ros.events.cdr import RecordedMessage
from crossspec_ros.events.dvs import encode_dvs
from crossspec_ros.ros.captioner_node import CaptionerNode
from crossspec_ros.ros.messages import closed_window
from crossspec_ros.ros.player_node import PlayerNode
from crossspec_ros.ros.replay import INPUTS
from crossspec_ros.ros.synchronizer_node import SynchronizerNode

SECOND = 10**9
START_US, DURATION_US = 100_300_000, 1_900_000
HALF_US = START_US + DURATION_US // 2
SIZE = (32, 24)
YEAR_NS = 365 * 86400 * SECOND
EVENTS = random_batch(6000, 3, START_US, DURATION_US, *SIZE)


def packets(jump_us=0, is_dvs=False):
    """Yield packets of 10 ms. The times of sensor and host jump by `jump_us` in the middle."""
    for seq, t in enumerate(range(START_US, START_US + DURATION_US, 10_000)):
        by_us = jump_us * (t > HALF_US)
        batch = EVENTS[(EVENTS.t >= t) & (EVENTS.t < t + 10_000)]
        batch, stamp_ns = replace(batch, t=batch.t + by_us), (t + by_us) * 1000
        if is_dvs:
            yield RecordedMessage(stamp_ns, "events", cdr.DVS_EVENTS, encode_dvs(batch, stamp_ns))
        else:
            data = cdr.event_packet(stamp_ns, encode_evt3(batch), "evt3", SIZE, seq)
            yield RecordedMessage(stamp_ns, "events", cdr.EVENT_PACKET, data)


def images(jump_us=0, is_raw=False):
    """Yield images at 20 Hz, all different."""
    rng = np.random.default_rng(4)
    for t in range(START_US + 7_000, START_US + DURATION_US, 50_000):
        pixels = rng.integers(0, 255, (SIZE[1], SIZE[0], 3), np.uint8)
        stamp_ns = (t + jump_us * (t > HALF_US)) * 1000
        if is_raw:
            yield RecordedMessage(stamp_ns, "image", cdr.IMAGE, cdr.image(stamp_ns, pixels, "bgr8"))
        else:
            data = cdr.compressed_image(stamp_ns, cv2.imencode(".png", pixels)[1].tobytes(), "png")
            yield RecordedMessage(stamp_ns, "image", cdr.COMPRESSED_IMAGE, data)


def stray_images():
    """Return images of which one has the stamp 0, one is a year ahead and one five seconds ahead."""
    made = list(images())
    for i, stamp_ns in ((3, 0), (9, YEAR_NS), (20, 105 * SECOND)):
        stamp = np.array(divmod(stamp_ns, SECOND), np.uint32).tobytes()
        data = made[i].data[:4] + stamp + made[i].data[12:]
        made[i] = made[i]._replace(stamp_ns=stamp_ns, data=data)
    return made


def in_order(*streams):
    return sorted((m for stream in streams for m in stream), key=lambda m: m.stamp_ns)


def write_bag(path, messages):
    """Write messages in this order. Times of recording rise, even if the stamps do not."""
    recorded_ns = START_US * 1000
    with Writer(path, version=8, storage_plugin=StoragePlugin.MCAP) as writer:
        topics = {
            kind: writer.add_connection(f"/{kind}", type_name, typestore=cdr.typestore())
            for kind, type_name in sorted({(message.kind, message.type) for message in messages})
        }
        for message in messages:
            if START_US * 1000 <= message.stamp_ns < YEAR_NS:
                recorded_ns = max(recorded_ns, message.stamp_ns)
            writer.write(topics[message.kind], recorded_ns, message.data)
    return path


class Witness(FakeDecoder):
    """A decoder whose captions identify the contents of a window."""

    def caption(self, window, *_, **named):
        shown = hashlib.sha256(window.frames.tobytes() + window.event_images.tobytes()).hexdigest()[:12]
        # A caption of the event draft needs no marks of a target's passes.
        text = f"{len(window.frames)} frames, {len(window.event_images)} event images, {shown}"
        return Caption(text, (1,), "event_draft")


MAKERS = {
    "synchronizer": SynchronizerNode,
    "captioner": lambda **options: CaptionerNode(lambda params: Witness(), **options),
    "dsec_player": PlayerNode,
}


def replayed(setup, windows):
    """Return [(end of the window, events, caption)] from the topics of the nodes."""
    with ExitStack() as stack:
        observer = stack.enter_context(outsider())
        rules = [word for topic in INPUTS.items() for word in ("-r", ":=".join(topic))]
        for name, make in MAKERS.items():
            values = dict(setup.nodes[name])
            if name == "dsec_player":
                values |= {"rate": 2.0, "every_window": True, "caption_timeout_s": 20.0}
            options = {"parameter_overrides": [Parameter(key, value=value) for key, value in values.items()]}
            options["cli_args"] = ["--ros-args", *rules]
            node = stack.enter_context(spinning(lambda make=make, options=options: make(**options)))
        node.play()
        closed = observer["/synchronizer/window_closed"]
        observer.wait(lambda: len(closed) == len(observer.reports()) >= windows)
        counts = [closed_window(message) for message in closed]
        assert sum(count.late_events + count.late_frames for count in counts) == 0
        return [
            (to_ns(message.header.stamp), count.events, text)
            for message, count, (_, _, text, _) in zip(closed, counts, observer.reports(), strict=True)
        ]


@pytest.mark.parametrize(
    ("messages", "ends", "faults"),
    [
        (in_order(packets(), images(is_raw=True)), [101, 102, 103], {}),
        (in_order(packets(is_dvs=True), images()), [101, 102, 103], {}),
        # A pause shorter than a gap: empty windows close in between.
        (in_order(packets(4_500_000), images(4_500_000)), [101, 102, 103, 104, 105, 106, 107], {}),
        ([*packets(), *stray_images()], [101, 102, 103], {"stray_frames": 3}),
        # The time of both cameras jumps back.
        ([*packets(-1_200_000), *images(-1_200_000)], [101, 102, 101], {"backward_jumps": 1, "restarts": 1}),
    ],
    ids=["packets", "dvs", "pause", "strays", "set back"],
)
def test_replay_equals_caption(messages, ends, faults, tmp_path):
    setup = ReplaySetup(write_bag(tmp_path / "bag", messages))
    replay = CodeReplay(setup, Witness())
    expected = [(one.window.end_ns, one.window.events, one.caption.text) for one in replay.windows()]
    assert [end // SECOND for end, *_ in expected] == ends
    assert {name: count for name, count in replay.counts.items() if count} == faults
    assert faults or sum(number for _, number, _ in expected) == len(EVENTS)
    assert replayed(setup, len(expected)) == expected
