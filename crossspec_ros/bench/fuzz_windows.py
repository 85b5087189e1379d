"""What must hold of the windows behind a decoder, whatever its events are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from crossspec_ros.bench.fuzz_packets import EPOCH_US, PACKET_US, Dice
from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.clock import SensorClock
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.slices import Slices
from crossspec_ros.windows.synchronizer import (
    EVENTS,
    FRAMES,
    EventImageReady,
    FrameReady,
    Synchronizer,
    Update,
)

_STEP_NS = PACKET_US * 1000
_FRAME = np.zeros((4, 6, 3), np.uint8)


class Downstream:
    """One stream's clock and synchronizer.

    Raises AssertionError, which tells what was broken, when windows are out of order though no stream jumped,
    when a window has other images than it says, or when an event is neither in one nor counted as dropped.
    """

    def __init__(self, slicing: type[Slices]) -> None:
        self.windows = 0
        self._clock = SensorClock()
        self._synchronizer = Synchronizer(WindowGrid(), slicing=slicing)
        self._grid = self._synchronizer.grid
        self._stamp_ns = EPOCH_US * 1000
        self._end_ns: int | None = None
        self._descents = 0
        self._pushed = self._dropped = self._seen = 0
        self._lost = 0
        self._frames: Counter[int] = Counter()
        self._images: Counter[int] = Counter()

    def push(self, batch: EventBatch, in_ros_time: bool, dice: Dice) -> None:
        """Take a packet's batch, and now and then a frame; `in_ros_time` says that its t needs no clock."""
        self._move(dice)
        t = batch.t * 1000 if in_ros_time else self._clock.to_ros_ns(batch.t, self._stamp_ns)
        assert t.dtype == np.int64 and len(t) == len(batch), "the clock changed the number or type of times"
        counts = self._synchronizer.counts
        impossible = counts["events_with_impossible_times"]
        self._pushed += len(batch)
        lost = 0 if dice.below(32) else dice.below(1 << 32)
        self._lost += lost
        try:
            self._take(self._synchronizer.add_events(replace(batch, t=t), lost))
        except InputError:  # Another size than before.
            self._dropped += len(batch) - (counts["events_with_impossible_times"] - impossible)
        what = dice.below(32)
        if what < 4:
            self._take(self._synchronizer.add_frame(self._stamp_ns - dice.below(SECOND // 10), _FRAME))
        elif what == 4:
            stream = (EVENTS, FRAMES)[dice.below(2)]
            self._take(self._synchronizer.advance(stream, self._stamp_ns))

    def finish(self) -> None:
        """Close all windows and see that every event has been accounted for; more may follow."""
        self._take(self._synchronizer.restart())
        self._end_ns = None
        counts = self._synchronizer.counts
        uncounted = sum(counts[f"{kind}_events"] for kind in ("late", "stray"))
        known = self._seen + self._dropped + uncounted + counts["events_with_impossible_times"]
        assert known == self._pushed, f"of {self._pushed} events {known} are in windows or counted as dropped"
        assert self._lost >= 0, "windows miss more packets than were lost"
        assert not self._images and not self._frames, "images came for windows that never closed"

    def _move(self, dice: Dice) -> None:
        """Go to the next stamp: mostly 10 ms later, at times anywhere near, rarely anywhere at all."""
        what = dice.below(2048)
        if what == 0:
            self._stamp_ns = (dice.below(1 << 32) - (1 << 31)) * SECOND + dice.below(1 << 32)
        elif what < 8:
            self._stamp_ns += dice.below(30 * SECOND) - 15 * SECOND
        else:
            self._stamp_ns += dice.below(2 * _STEP_NS)
        # As a header can carry it.
        self._stamp_ns = min(max(self._stamp_ns, -(1 << 31) * SECOND), (1 << 31) * SECOND)

    def _take(self, updates: Iterable[Update]) -> None:
        for update in updates:
            if isinstance(update, FrameReady):
                assert update.image is _FRAME, "a frame was changed"
                self._frames[self._grid.index(update.stamp_ns)] += 1
            elif isinstance(update, EventImageReady):
                self._check_order(update.stamp_ns, "an event image")
                assert update.image.ndim == 3 and update.image.dtype == np.uint8, "an event image is none"
                self._images[self._grid.index(update.stamp_ns - 1)] += 1
            else:
                index = self._grid.index(update.end_ns - 1)
                self._descents += self._check_order(update.end_ns, "a window")
                images = (self._frames.pop(index, 0), self._images.pop(index, 0))
                said = (update.frames, update.event_images)
                assert images == said, f"a window has {images} frames and event images, but says {said}"
                self._end_ns = update.end_ns
                self._seen += update.events
                self._lost -= update.lost_packets
                self.windows += 1

    def _check_order(self, stamp_ns: int, what: str) -> bool:
        """Whether this is a descent: from one window to an earlier one, of which every jump allows one."""
        descends = self._end_ns is not None and stamp_ns <= self._end_ns
        jumps = self._synchronizer.counts["backward_jumps"] + self._synchronizer.counts["forward_jumps"]
        assert not descends or self._descents < jumps, f"{what} of {stamp_ns} comes after {self._end_ns}"
        return descends
