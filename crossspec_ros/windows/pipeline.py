"""Messages of an event stream and of a camera become updates of windows, live and recorded ones alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from crossspec_ros.events.camera_images import camera_array, compressed_array
from crossspec_ros.events.cdr import RecordedMessage, is_end_mark, to_ns, typestore
from crossspec_ros.events.images import Canvas, DenseCanvas
from crossspec_ros.events.stamps import Break
from crossspec_ros.events.stream import make_stream
from crossspec_ros.settings import SynchronizerSettings
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.resize import resize_shortest, scaled_size
from crossspec_ros.windows.slices import MakeCanvas
from crossspec_ros.windows.synchronizer import FrameReady, Synchronizer, Update
from crossspec_ros.windows.window import EVENTS, FRAMES, WindowClosed


class Pipeline:
    """Decode messages, cut them into windows, and resize their images as the settings require.

    `take_events`, `take_image` and `take_recorded` are generators: they work while the caller takes their
    updates. They raise InputError for an unusable message, which the caller logs, and counts by `refuse`; the
    next message may follow then. `reached` is called with the stream (EVENTS or FRAMES) and the stamp in ns
    of each message that goes on from those before. Only `counts` and `findings` are thread-safe.
    """

    def __init__(
        self,
        settings: SynchronizerSettings,
        reached: Callable[[str, int], None] = lambda stream, stamp_ns: None,
    ) -> None:
        self.grid = WindowGrid.at(settings.window_phase_s, settings.frames)
        self.stream = make_stream(settings.event_type)
        self.frame_id = ""
        """Frame id of the camera."""
        self._frame_size, self._event_image_size = settings.frame_size, settings.event_image_size
        lateness_ns = round(settings.max_lateness_s * SECOND)
        dense_ms = settings.event_image_ms
        canvas: MakeCanvas = partial(DenseCanvas, dense_ms) if dense_ms else Canvas
        self._synchronizer = Synchronizer(self.grid, settings.event_images, lateness_ns, canvas)
        self._judge = self._synchronizer.judge
        self._reached = reached
        self._unstamped: set[str] = set()
        self._problems = Counter(unusable_messages=0)

    @property
    def counts(self) -> dict[str, int]:
        """Totals of everything that was wrong with the messages."""
        return {**self._problems, **self.stream.problems, **self._synchronizer.counts}

    @property
    def findings(self) -> dict[str, str]:
        """Sentences that explain counters with a clear cause."""
        return self._judge.findings.copy()

    def refuse(self) -> None:
        """Count a message that could not be used."""
        self._problems["unusable_messages"] += 1

    def take_events(self, message: Any) -> Iterator[Update]:
        """Take an EventPacket, or a serialized `dvs_msgs/EventArray` if `stream.raw` is set."""
        clock = self.stream.clock
        if clock and not is_end_mark(message) and self._is_unstamped(EVENTS, to_ns(message.header.stamp)):
            return
        stamp_ns, batch = self.stream.decode(message, self._judge.image_step_ns())
        if not len(batch):
            yield from self._resized(self._synchronizer.add_silence(stamp_ns, is_camera=batch.width > 0))
            return
        self._hear(EVENTS, int(batch.t[0]))
        if clock:
            self._judge.note_odd_packets(clock.odd_ns)
        # Before the synchronizer takes it: no window is to close without the images it counts.
        scaled_size(batch.width, batch.height, self._event_image_size)
        lost_packets, step_ns = self.stream.take_lost_packets(), clock.step_ns if clock else 0
        yield from self._resized(self._synchronizer.add_events(batch, lost_packets, step_ns))

    def take_image(self, message: Any) -> Iterator[Update]:
        """Take a camera's Image or CompressedImage."""
        stamp_ns, self.frame_id = to_ns(message.header.stamp), message.header.frame_id
        if not self._is_unstamped(FRAMES, stamp_ns):
            self._hear(FRAMES, stamp_ns)
            yield from self._resized(self._synchronizer.add_frame(stamp_ns, lambda: self._read(message)))

    def _hear(self, stream: str, stamp_ns: int) -> None:
        if self._judge.fits(stream, stamp_ns):
            self._reached(stream, stamp_ns)

    def _is_unstamped(self, stream: str, stamp_ns: int) -> bool:
        """Return whether a stream's stamps are zero, and count such a message; a first one may be right."""
        if stamp_ns:
            self._unstamped.discard(stream)
        elif stream in self._unstamped:
            self._problems[f"unstamped_{stream}"] += 1
            self._judge.refuse_unstamped(stream)
            return True
        else:
            self._unstamped.add(stream)
        return False

    def take_recorded(self, message: RecordedMessage | Break) -> Iterator[Update]:
        """Take the next of a recording's `parts`."""
        if isinstance(message, Break):
            over_ns = self.grid.closing(message.last_ns, self._synchronizer.lateness_ns)
            yield from self._resized(self._synchronizer.advance(EVENTS, over_ns))
            if message.next_ns is not None:
                # The streams need not confirm it.
                yield from self._resized(self._synchronizer.advance(EVENTS, message.next_ns))
        elif message.kind == EVENTS and self.stream.raw:
            yield from self.take_events(message.data)
        else:
            take = self.take_events if message.kind == EVENTS else self.take_image
            yield from take(typestore().deserialize_cdr(message.data, message.type))

    def _read(self, message: Any) -> np.ndarray:
        # Only CompressedImage has a format.
        image = compressed_array(message) if hasattr(message, "format") else camera_array(message)
        scaled_size(image.shape[1], image.shape[0], self._frame_size)
        return image

    def _resized(self, updates: Iterator[Update]) -> Iterator[Update]:
        for update in updates:
            if isinstance(update, WindowClosed):
                yield update
            else:
                size = self._frame_size if isinstance(update, FrameReady) else self._event_image_size
                yield replace(update, image=resize_shortest(update.image, size))
