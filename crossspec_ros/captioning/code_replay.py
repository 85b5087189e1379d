"""A recording replayed in code: the same objects as in the nodes, without topics, threads or time."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import astuple, dataclass
from types import SimpleNamespace
from typing import Any

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.decoders import enough_memory
from crossspec_ros.captioning.model_loading import free_memory
from crossspec_ros.captioning.setup import ReplaySetup
from crossspec_ros.errors import InputError
from crossspec_ros.events.messages import RecordedMessage, typestore
from crossspec_ros.events.stamps import Break, parts
from crossspec_ros.recordings.camera_images import camera_array, compressed_array
from crossspec_ros.recordings.recording import tell_losses, tell_remarks
from crossspec_ros.ros.event_stream import make_stream
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.assembler import WindowAssembler
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.quality import flags, trustworthy
from crossspec_ros.windows.resize import resize_shortest
from crossspec_ros.windows.slices import CountSlices, TimeSlices
from crossspec_ros.windows.synchronizer import (
    EVENTS,
    EventImageReady,
    FrameReady,
    Synchronizer,
    Update,
)
from crossspec_ros.windows.window import Window

_REASONS = 3
"""Why messages could not be used, the most common ones, are told."""


@dataclass(frozen=True)
class Captioned:
    """A window, its caption, the spans of its stages, and what was wrong with it, by `windows.quality`."""

    window: Window
    event_image_stamps_ns: list[int]
    faults: Sequence[str]
    caption: Caption
    trace: Trace


class CodeReplay:
    """Captions each window of a recording; what is wrong with its streams is in `counts`.

    The event draft gets the time that it needs, and captions are the target's own in either mode, so two runs
    in float32 give the same records.
    """

    def __init__(self, setup: ReplaySetup, decoder: PrefillHiddenDecoder) -> None:
        self._setup, self._decoder = setup, decoder
        params = setup.params["synchronizer"]
        self._question = setup.params["captioner"].question
        decoder.check_question(self._question)
        self._sizes = {FrameReady: params.frame_size, EventImageReady: params.event_image_size}
        self._stream = make_stream(params.event_type)
        self._read_image = camera_array if params.image_transport == "raw" else compressed_array
        self._grid = WindowGrid(slots=params.frames)
        self._synchronizer = Synchronizer(
            self._grid,
            params.event_images,
            round(params.max_lateness_s * SECOND),
            TimeSlices if params.event_slicing == "time" else CountSlices,
        )
        self._assembler = WindowAssembler(self._grid)
        self._event_image_stamps: dict[int, list[int]] = {}
        self._draft: Future[None] | None = None
        self._unusable: Counter[str] = Counter()

    @property
    def counts(self) -> dict[str, int]:
        """How often anything was wrong so far, by kind."""
        counts = Counter(unusable_messages=self._unusable.total())
        counts += self._stream.problems + self._synchronizer.counts + self._assembler.counts
        return dict(sorted(counts.items()))

    def windows(self, tick: Callable[[float], None] = lambda share: None) -> Iterator[Captioned]:
        """Every window in order; `tick` is told which share of the recording has been read, 0 to 1.

        Raises InputError where the recording is damaged.
        """
        with closing(self._setup.open()) as recording:
            tell_remarks(recording)
            length_ns = max(1, recording.end_ns - recording.start_ns)
            for message in parts(recording.messages(), recording.end_ns):
                for update in self._updates(message):
                    yield from self._take(update)
                if isinstance(message, RecordedMessage) and not message.stray:
                    tick((message.stamp_ns - recording.start_ns) / length_ns)
            tell_losses(recording)
        for reason, count in self._unusable.most_common(_REASONS):
            print(f"crossspec: {count} messages could not be used: {reason}", file=sys.stderr)

    def _updates(self, message: RecordedMessage | Break) -> Iterator[Update]:
        try:
            if isinstance(message, Break):
                over_ns = self._grid.closing(message.last_ns, self._synchronizer.lateness_ns)
                yield from self._synchronizer.advance(EVENTS, over_ns)
            elif message.kind == EVENTS:
                yield from self._take_events(message)
            else:
                image: Any = typestore().deserialize_cdr(message.data, message.type)
                yield from self._synchronizer.add_frame(message.stamp_ns, lambda: self._read_image(image))
        except InputError as error:
            self._unusable[str(error)] += 1

    def _take_events(self, message: RecordedMessage) -> Iterator[Update]:
        packet: Any = message.data
        if not self._stream.raw:
            packet = typestore().deserialize_cdr(message.data, message.type)
        stamp_ns, batch = self._stream.decode(packet)
        if len(batch):
            yield from self._synchronizer.add_events(batch, self._stream.take_lost_packets())
        else:
            yield from self._synchronizer.advance(EVENTS, stamp_ns, is_camera=batch.width > 0)

    def _take(self, update: Update) -> Iterator[Captioned]:
        windows = []
        if isinstance(update, FrameReady):
            frame = resize_shortest(update.image, self._sizes[FrameReady])
            read = self._decoder.stream_frame(self._grid.index(update.stamp_ns), frame, update.stamp_ns)
            # What takes its time here would be forgotten once too many windows are open.
            wait([read] if read else [])
            windows = self._assembler.add_frame(update.stamp_ns, frame)
        elif isinstance(update, EventImageReady):
            image = resize_shortest(update.image, self._sizes[EventImageReady])
            index = self._grid.index(update.stamp_ns - 1)
            self._wait_for_draft()  # another one would end it
            self._event_image_stamps.setdefault(index, []).append(update.stamp_ns)
            self._draft = self._decoder.stream_event_image(index, image, self._question) or self._draft
            windows = self._assembler.add_event_image(update.stamp_ns, image)
        else:
            windows = self._assembler.close(*astuple(update))
        yield from map(self._caption, windows)

    def _caption(self, window: Window) -> Captioned:
        self._wait_for_draft()
        trace = Trace()
        trace.mark("closed")
        faults = flags(window)
        caption = self._decoder.caption(trustworthy(window, faults), self._question, trace)
        stamps = self._event_image_stamps.pop(window.index, [])
        return Captioned(window, stamps, faults, caption, trace)

    def _wait_for_draft(self) -> None:
        if self._draft is not None:
            wait([self._draft])


def captions(
    setup: ReplaySetup,
    load: Callable[[SimpleNamespace], PrefillHiddenDecoder],
    tick: Callable[[float], None],
    counts: Counter[str],
) -> Iterator[Captioned]:
    """Every window captioned by the decoder that `load` makes of the captioner's parameters, and which is
    gone afterwards; what is wrong with the recording is added to `counts`.

    `tick` is that of `CodeReplay.windows`. Raises InputError where the recording is damaged, and where memory
    runs out.
    """
    params = setup.params["captioner"]
    with enough_memory(params), closing(load(params)) as decoder:
        replay = CodeReplay(setup, decoder)
        yield from replay.windows(tick)
        counts.update(replay.counts)
    del decoder, replay
    free_memory()
