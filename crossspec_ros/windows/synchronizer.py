"""Cut an event stream and a frame stream into windows by the stamps of the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.images import Canvas
from crossspec_ros.events.stamp_judge import LiveMessage, StampJudge, Verdict
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.slices import REORDER_NS, MakeCanvas, TimeSlices, span, split
from crossspec_ros.windows.window import EVENTS, FRAMES, WindowClosed

LATENESS_NS = SECOND // 5
MAX_PACKET_NS = 2 * SECOND
"""Maximum time between the events of one packet."""


@dataclass(frozen=True)
class FrameReady:
    """The frame chosen for a slot: (H, W, 3) RGB uint8 and its capture time."""

    stamp_ns: int
    image: np.ndarray


@dataclass(frozen=True)
class EventImageReady:
    """One event image (H, W, 3) RGB uint8; its stamp is the end of its slice, never the window's start."""

    stamp_ns: int
    image: np.ndarray


Update = FrameReady | EventImageReady | WindowClosed


@dataclass
class _Open:
    """A window still being filled."""

    slices: TimeSlices
    slots: set[int] = field(default_factory=set)
    events: int = 0
    lost_packets: int = 0


class Synchronizer:
    """Fills windows from both streams and closes each one exactly once and in order.

    A window closes when both streams have passed its end, or when one has passed it by `lateness_ns`. Windows
    without data between others close, too. Data for a closed window count as late.

    Time may jump back by more than a second or ahead by more than ten, or a stream may change its size. Then
    the open windows close and everything starts anew. `judge` separates jumps from strays, and `counts` has
    the number of each event. The methods are generators: they work while the caller takes their updates. Not
    thread-safe.

    A window's events make `images` event images of equal times on canvases of `make_canvas`, each rendered as
    soon as the events have passed it. A window without any event has no event image.
    """

    slices = TimeSlices

    def __init__(
        self,
        grid: WindowGrid,
        images: int = 5,
        lateness_ns: int = LATENESS_NS,
        make_canvas: MakeCanvas = Canvas,
    ) -> None:
        self.grid = grid
        self.images, self._make_canvas = images, make_canvas
        self.lateness_ns = lateness_ns
        self.counts: Counter[str] = Counter()
        self._reported_late: Counter[str] = Counter()
        self.judge = StampJudge(lambda ns: grid.closing(ns, lateness_ns), lateness_ns)
        self._reached = self.judge.reached
        self._forget()

    def _forget(self) -> None:
        self._open: dict[int, _Open] = {}
        self._next: int | None = None
        self._first = 0
        self._sizes: dict[str, tuple[int, int]] = {}
        self._recorded: tuple[int, int] | None = None

    def add_events(self, batch: EventBatch, lost_packets: int = 0, step_ns: int = 0) -> Iterator[Update]:
        """Take a batch whose `t` is ROS time in ns, not us.

        Before it, `lost_packets` are missing, and the host's clock was set by `step_ns`. Raises InputError if
        its events are more than `MAX_PACKET_NS` apart.
        """
        if not len(batch):
            return
        earliest_ns, latest_ns = span(batch)
        if latest_ns - earliest_ns > MAX_PACKET_NS:
            raise InputError(
                f"the events of a packet are {(latest_ns - earliest_ns) / SECOND:.0f} s apart: restart the "
                f"driver"
            )
        take = partial(self._take_events, batch, earliest_ns, latest_ns, lost_packets)
        yield from self._hear(LiveMessage(take, EVENTS, int(batch.t[0]), len(batch), step_ns=step_ns))

    def add_frame(self, stamp_ns: int, image: np.ndarray | Callable[[], np.ndarray]) -> Iterator[Update]:
        """Take a frame (H, W, 3), or a function that makes it and is called for the first of a slot only.

        Raises what the function raises; the frame then counts as not received.
        """
        yield from self._hear(LiveMessage(partial(self._take_frame, stamp_ns, image), FRAMES, stamp_ns))

    def add_silence(self, stamp_ns: int, is_camera: bool) -> Iterator[Update]:
        """Take the stamp of a packet that has no events, of a camera or as a player's sign."""
        take = partial(self._reach, EVENTS, stamp_ns, is_camera)
        yield from self._hear(LiveMessage(take, EVENTS, stamp_ns, is_silence=not is_camera))

    def advance(self, stream: str, stamp_ns: int) -> Iterator[Update]:
        """Learn for certain that a stream (EVENTS or FRAMES) has reached `stamp_ns` without data there."""
        take = partial(self._reach, stream, stamp_ns)
        yield from self._hear(LiveMessage(take, stream, stamp_ns, is_certain=True))

    def _hear(self, heard: LiveMessage) -> Iterator[Update]:
        """Process the judged messages: this one, and held ones that it confirms."""
        for message, verdict in self.judge.judge(heard):
            if verdict is Verdict.STRAY:
                self.counts[f"stray_{message.stream}"] += message.count
            else:
                if verdict is not Verdict.TAKE:
                    self.counts["backward_jumps" if verdict is Verdict.JUMP_BACK else "forward_jumps"] += 1
                    yield from self._start_anew()
                try:
                    yield from message.item()
                except InputError:
                    if message is heard:
                        raise
                    # What confirmed it is not to suffer for it.
                    self.counts[f"stray_{message.stream}"] += message.count

    def _take_events(
        self, batch: EventBatch, earliest_ns: int, latest_ns: int, lost_packets: int
    ) -> Iterator[Update]:
        first_ns = int(batch.t[0])
        if lost_packets and (window := self._window(self.grid.index(first_ns))):
            window.lost_packets += lost_packets
        yield from self._set_size(EVENTS, (batch.width, batch.height))
        first, last = self.grid.index(earliest_ns), self.grid.index(latest_ns)
        if first == last:
            self._fill(first, batch, earliest_ns, latest_ns)
        else:
            edges = [self.grid.start(index) for index in range(first, last + 2)]
            for i, part in split(batch, edges, earliest_ns, latest_ns):
                since_ns, until_ns = max(earliest_ns, edges[i]), min(latest_ns, edges[i + 1] - 1)
                self._fill(first + i, part, since_ns, until_ns)
        self._record(earliest_ns, latest_ns)
        yield from self._pass(EVENTS, latest_ns)

    def _take_frame(self, stamp_ns: int, image: np.ndarray | Callable[[], np.ndarray]) -> Iterator[Update]:
        slot, index = self.grid.slot(stamp_ns), self.grid.index(stamp_ns)
        was_open, first = index in self._open, self._next
        window = self._window(index)
        if window is None:
            self._count_late("late_frames", index, 1)
        elif slot not in window.slots:
            try:
                pixels = image() if callable(image) else image
            except BaseException:
                # An unreadable frame opens no window: one far back would close all later ones.
                if not was_open:
                    del self._open[index]
                    self._next = first
                raise
            yield from self._set_size(FRAMES, (pixels.shape[1], pixels.shape[0]))
            # After a change of size this window has closed.
            if window := self._window(index):
                window.slots.add(slot)
                yield FrameReady(stamp_ns, pixels)
        self._record(stamp_ns, stamp_ns)
        yield from self._pass(FRAMES, stamp_ns)

    def _reach(self, stream: str, stamp_ns: int, is_camera: bool = False) -> Iterator[Update]:
        self._window(self.grid.index(stamp_ns))
        if is_camera:
            self._record(stamp_ns, stamp_ns)
        yield from self._pass(stream, stamp_ns)

    def _set_size(self, stream: str, size: tuple[int, int]) -> Iterator[Update]:
        """Start anew if the size of a stream has changed; windows that close now do not open again."""
        if self._sizes.setdefault(stream, size) == size:
            return
        self.counts[f"{stream}_of_another_size"] += 1
        last = max((i for i, window in self._open.items() if window.events or window.slots), default=-1)
        self.judge.forget()
        yield from self._start_anew()
        self._first, self._sizes[stream] = last + 1, size

    def _start_anew(self) -> Iterator[Update]:
        while any(window.events or window.slots for window in self._open.values()):
            yield from self._close()
        self._forget()

    def _window(self, index: int) -> _Open | None:
        """Return the window to fill, or None when it has closed already."""
        if index < self._first or self._is_over(self.grid.end(index)):
            return None
        if self._next is None or index < self._next:
            self._next = index
        if index not in self._open:
            self._open[index] = self._empty(index)
        return self._open[index]

    def _empty(self, index: int) -> _Open:
        start_ns, end_ns = self.grid.start(index), self.grid.end(index)
        return _Open(self.slices(start_ns, end_ns, self.images, self._make_canvas))

    def _is_over(self, end_ns: int) -> bool:
        if not self._reached:
            return False
        both = len(self._reached) == 2 and min(self._reached.values()) >= end_ns
        return both or max(self._reached.values()) >= end_ns + self.lateness_ns

    def _count_late(self, kind: str, index: int, count: int) -> None:
        # Data of a window that a change of size has closed are not late.
        if index >= self._first:
            self.counts[kind] += count

    def _fill(self, index: int, batch: EventBatch, since_ns: int, until_ns: int) -> None:
        count, window = len(batch), self._window(index)
        if window is None:
            self._count_late("late_events", index, count)
            return
        if since_ns < (rendered_ns := window.slices.rendered_ns):
            batch, since_ns = batch[batch.t >= rendered_ns], rendered_ns
            if late := count - len(batch):
                self.counts["late_events"] += late
        if len(batch):
            window.slices.add(batch, since_ns, until_ns)
            window.events += len(batch)

    def _record(self, since_ns: int, until_ns: int) -> None:
        first_ns, last_ns = self._recorded or (since_ns, until_ns)
        self._recorded = min(first_ns, since_ns), max(last_ns, until_ns)

    def _covered_ms(self, index: int) -> int:
        first_ns, last_ns = self._recorded or (0, 0)
        since_ns, until_ns = max(first_ns, self.grid.start(index)), min(last_ns, self.grid.end(index))
        return max(0, round((until_ns - since_ns) / 1e6))

    def _pass(self, stream: str, stamp_ns: int) -> Iterator[Update]:
        self._reached[stream] = max(stamp_ns, self._reached.get(stream, stamp_ns))
        while self._next is not None and self._is_over(self.grid.end(self._next)):
            yield from self._close()
        # The event images need not wait for the frames.
        for _, window in sorted(self._open.items()):
            for stamp, image in window.slices.images(self._reached.get(EVENTS, 0)):
                yield EventImageReady(stamp, image)

    def _close(self) -> Iterator[Update]:
        assert self._next is not None
        index, self._next = self._next, self._next + 1
        window = self._open.pop(index, None) or self._empty(index)
        end_ns = self.grid.end(index)
        for stamp_ns, image in window.slices.images(end_ns + REORDER_NS):
            yield EventImageReady(stamp_ns, image)
        yield WindowClosed(
            end_ns,
            len(window.slots),
            window.slices.rendered,
            window.events,
            window.lost_packets,
            self._take_late("late_events"),
            self._take_late("late_frames"),
            self._covered_ms(index),
        )

    def _take_late(self, kind: str) -> int:
        late = self.counts[kind] - self._reported_late[kind]
        self._reported_late[kind] += late
        return late
