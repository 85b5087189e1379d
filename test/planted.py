"""A small recording, and a decoder that needs no models."""

from __future__ import annotations

import fakes
import numpy as np
from crossspec_lab.evt3_encoder import encode_evt3

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.code_replay import CodeReplay
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import EVENT_PACKET, IMAGE, RecordedMessage, event_packet, image
from crossspec_ros.recordings.bag import write_bag
from crossspec_ros.regress.golden import Golden, record

SECOND = 10**9
START_NS = 50 * SECOND
WINDOWS = 3
WIDTH, HEIGHT = 32, 24


def write_drive(path, seed=7, broken_frame=None, blind=(), silent=(0, 0), size=(WIDTH, HEIGHT), still=False):
    """Write a bag with frames at 20 Hz and event packets at 100 Hz.

    Each frame has a colour of its own, or the same colour if all is `still`. The frame `broken_frame` has an
    invalid encoding. The windows in `blind` (from 0) have no frames, and the packets from `silent[0]` to
    `silent[1]` are missing.
    """
    rng = np.random.default_rng(seed)
    width, height = size
    with write_bag(path) as write:
        for tick in range(WINDOWS * 100):
            stamp_ns = START_NS + tick * SECOND // 100
            t = tick * 10_000 + np.sort(rng.integers(0, 10_000, 50))
            x, y, p = (rng.integers(0, most, 50, np.uint16) for most in (width, height, 2))
            payload = encode_evt3(EventBatch(t, x, y, p.astype(np.uint8), width, height))
            packet = event_packet(stamp_ns, payload, "evt3", size, tick)
            if not silent[0] <= tick < silent[1]:
                write("/events", RecordedMessage(stamp_ns, "events", EVENT_PACKET, packet))
            if tick % 5 == 0 and tick // 100 not in blind:
                colour = (40, 120, 200) if still else rng.permutation((40, 120, 200))
                pixels = np.full((height, width, 3), colour, np.uint8)
                encoding = "rgb8" if tick // 5 != broken_frame else "smell8"
                write("/image", RecordedMessage(stamp_ns, "image", IMAGE, image(stamp_ns, pixels, encoding)))
    return path


class FakeDecoder(fakes.FakeDecoder):
    """Captions a window with its index; expects `images` streamed images before it closes (None: any)."""

    def __init__(self, caption="a red van in window {}", images=8 + 5):
        super().__init__()
        self._caption, self._images = caption, images

    def caption(self, window, *how):
        streamed = sum(index == window.index for index, _ in self.streamed)
        assert self._images is None or streamed == self._images
        source = super().caption(window, *how).source
        return Caption(self._caption.format(window.index), (1, 2, 3), source, 1)


def captured(setup, decoder=None):
    """Return the golden of a replay in code."""
    run = CodeReplay(setup, decoder or FakeDecoder())
    windows = [record(captioned) for captioned in run.windows()]
    return Golden(windows, run.counts, setup.origin_ns)
