"""Join the images of each window on the captioner's side, where the topics have no order among them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.window import Counts, Window

PATIENCE = 8
"""A window is emitted incomplete once so many later ones have closed: as many as the topics' queues hold."""
MAX_IMAGES = 64
"""Images of one kind that a window may have; the synchronizer makes far fewer."""
MAX_DISORDER_NS = SECOND // 2
"""A topic whose stamps fall by more has jumped back; the synchronizer jumps at falls of a second."""

Images = list[tuple[int, np.ndarray]]


class _Key(NamedTuple):
    """A window: how often the clock had jumped back before it, and its index."""

    era: int
    index: int


@dataclass(eq=False)
class _Topic:
    """One topic's images, by window, and the jumps back of its stamps, which it keeps in order."""

    era: int = 0
    reached_ns: int | None = None
    images: dict[_Key, Images] = field(default_factory=dict)

    def reach(self, stamp_ns: int) -> None:
        """Note how far the topic is, and count a jump back."""
        if self.reached_ns is not None and stamp_ns < self.reached_ns - MAX_DISORDER_NS:
            self.era += 1
            self.reached_ns = stamp_ns
        self.reached_ns = max(stamp_ns, self.reached_ns or stamp_ns)

    def has_passed(self, key: _Key) -> bool:
        """Return whether there is an image of a later window; a stamp far ahead is no sign of that."""
        return any(key < other and other.index <= key.index + PATIENCE for other in self.images)


class WindowAssembler:
    """Emit every closed window exactly once and in order, as soon as all its images are there.

    Each topic keeps its order, so an image that is still missing when its topic has moved on to a later
    window is lost; the window is then emitted without it. After a jump back of the clock (a recording that
    loops) the same windows come again. Each topic counts its own jumps, and images and closings of the same
    count belong together.
    """

    def __init__(self, grid: WindowGrid) -> None:
        self.grid = grid
        self.counts: Counter[str] = Counter()
        self._frames, self._event_images = _Topic(), _Topic()
        self._topics = self._frames, self._event_images
        self._announced: dict[_Key, Counts] = {}
        self._newest, self._emitted = _Key(0, -1), _Key(0, -1)
        self._closings_of_era = 0
        self.taken = 0
        """Images that were kept for their window; the others are in no caption."""

    def add_frame(self, stamp_ns: int, image: np.ndarray) -> list[Window]:
        """Add an RGB frame (H, W, 3) with its capture time; return the windows that this completes."""
        return self._add(self._frames, self.grid.index(stamp_ns), stamp_ns, image)

    def add_event_image(self, stamp_ns: int, image: np.ndarray) -> list[Window]:
        """Add an event image (H, W, 3) with the end of its slice; return the windows that this completes."""
        return self._add(self._event_images, self.grid.index(stamp_ns - 1), stamp_ns, image)

    def close(self, end_ns: int, *counts: int) -> list[Window]:
        """Add the `Counts` of the window ending at `end_ns`; return the windows that this completes.

        Raises InputError for a window of another grid.
        """
        index = self.grid.index(end_ns - 1)
        if end_ns != self.grid.end(index):
            raise InputError(
                f"a window ends {end_ns % SECOND / SECOND:g} s after the full second, but "
                f"{self.grid.phase_ns / SECOND:g} s are expected: give all nodes the same window_phase_s"
            )
        has_jumped = index <= self._newest.index
        self.counts["restarts"] += has_jumped
        # A closing that comes twice is no jump, unless the images jump: a recording of one window loops.
        if index == self._newest.index and all(topic.era <= self._newest.era for topic in self._topics):
            return []
        self._newest = _Key(self._newest.era + has_jumped, index)
        self._closings_of_era = 1 if has_jumped else self._closings_of_era + 1
        if self._closings_of_era == PATIENCE:
            self._align()
        self._announced[self._newest] = Counts(*counts)
        return self._ready()

    def clear(self) -> list[Window]:
        """Forget all windows, but not the counts; return those that had closed and were incomplete."""
        incomplete = [self._emit(key) for key in sorted(self._announced)]
        for topic in self._topics:
            topic.images.clear()
            topic.era, topic.reached_ns = 0, None
        self._newest = self._emitted = _Key(0, -1)
        self._closings_of_era = 0
        return incomplete

    def _align(self) -> None:
        """Let the topics count as many jumps as the closings: one that was silent has missed a jump."""
        for topic in self._topics:
            if topic.era != self._newest.era:
                topic.era = self._newest.era
                topic.images.clear()

    def _add(self, topic: _Topic, index: int, stamp_ns: int, image: np.ndarray) -> list[Window]:
        # A stamp far ahead does not say how far the topic is.
        if self._newest.index < 0 or index <= self._newest.index + PATIENCE:
            topic.reach(stamp_ns)
        key = _Key(topic.era, index)
        if key <= self._emitted:
            self.counts["late_images"] += 1
            return []
        images = topic.images.setdefault(key, [])
        if images and images[0][1].shape != image.shape:
            self.counts["size_changes"] += 1
            return []
        if len(images) >= MAX_IMAGES:
            self.counts["surplus_images"] += 1
            return []
        images.append((stamp_ns, image))
        self.taken += 1
        if len(topic.images) > 2 * PATIENCE:
            del topic.images[next(iter(topic.images))]
        return self._ready()

    def _ready(self) -> list[Window]:
        windows = []
        while self._announced and self._is_final(key := min(self._announced)):
            windows.append(self._emit(key))
        return windows

    def _is_final(self, key: _Key) -> bool:
        if len(self._announced) > PATIENCE:
            return True
        return all(
            len(topic.images.get(key, ())) >= expected or topic.has_passed(key)
            for topic, expected in zip(self._topics, self._announced[key][:2], strict=True)
        )

    def _emit(self, key: _Key) -> Window:
        self._emitted, counts = key, self._announced.pop(key)
        found = []
        surplus = 0
        for topic, expected in zip(self._topics, counts[:2], strict=True):
            images = topic.images.pop(key, [])
            # A synchronizer that was killed has left images of a window that another one closes.
            surplus += max(0, len(images) - expected)
            found.append(sorted(images[max(0, len(images) - expected) :], key=lambda item: item[0]))
            for earlier in [earlier for earlier in topic.images if earlier < key]:
                del topic.images[earlier]
        frames, event_images = found
        missing = counts.frames + counts.event_images - len(frames) - len(event_images)
        self.counts.update(missing=missing, surplus_images=surplus)
        return Window(
            key.index,
            self.grid.start(key.index),
            self.grid.end(key.index),
            _stack(event_images),
            _stack(frames),
            tuple(stamp for stamp, _ in frames),
            missing,
            surplus,
            *counts[2:],  # the rest of its fields are those of Counts
        )


def _stack(images: Images) -> np.ndarray:
    return np.stack([image for _, image in images]) if images else np.zeros((0, 0, 0, 3), np.uint8)
