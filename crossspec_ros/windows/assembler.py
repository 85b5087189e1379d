"""Collects the images of each window on the captioner's side, where the topics have no order among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.window import Counts, Window

PATIENCE = 8
"""A window is given up once this many later ones have closed: as many as the topics' queues hold."""

MOST_IMAGES = 64
"""Most of one kind in a window: more than any synchronizer of ours makes would only fill the memory."""
MOST_WINDOW_BYTES = 64 << 20
"""Most of the images of one window: eight full-HD frames have 50 MB."""
MOST_BYTES = 128 << 20
"""Most of the images of all windows that are open."""

Images = list[tuple[int, np.ndarray]]


def has_surplus(images: Sequence[np.ndarray], image: np.ndarray) -> bool:
    """Whether a window that has these images may not have one more."""
    return len(images) >= MOST_IMAGES or sum(one.nbytes for one in (*images, image)) > MOST_WINDOW_BYTES


class WindowAssembler:
    """Emits every closed window exactly once and in order, as soon as all its images are there.

    Each topic alone keeps its order, so an image that is still missing when its topic has moved on to a later
    window is lost; the window then comes without it and says so in `Window.missing`.
    """

    def __init__(self, grid: WindowGrid) -> None:
        self.grid = grid
        self.counts: Counter[str] = Counter()
        self._frames: dict[int, Images] = {}
        self._event_images: dict[int, Images] = {}
        self._stores = self._frames, self._event_images
        self._announced: dict[int, Counts] = {}
        self._emitted: int | None = None
        self.taken = 0
        """Images that were kept for their window; others are in nobody's caption."""

    def add_frame(self, stamp_ns: int, image: np.ndarray) -> list[Window]:
        """Take an RGB frame (H, W, 3) with its capture time; returns the windows this completes."""
        return self._add(self._frames, self.grid.index(stamp_ns), stamp_ns, image)

    def add_event_image(self, stamp_ns: int, image: np.ndarray) -> list[Window]:
        """Take an event image (H, W, 3) with the end of its slice; returns the windows this completes."""
        return self._add(self._event_images, self.grid.index(stamp_ns - 1), stamp_ns, image)

    def close(self, end_ns: int, *counts: int) -> list[Window]:
        """Learn the `Counts` of the window ending at `end_ns`; returns the windows this completes.

        Raises InputError for a window of another grid.
        """
        index = self.grid.index(end_ns - 1)
        if end_ns != self.grid.end(index):
            raise InputError(
                f"a window ends {end_ns % SECOND / SECOND:g} s after the full second, but "
                f"{self.grid.phase_ns / SECOND:g} s are expected: give all nodes the same window_phase_s"
            )
        windows: list[Window] = []
        if self._announced and index <= max(self._announced):
            windows = self._give_up()
        if self._emitted is not None and index <= self._emitted:
            self.counts["restarts"] += 1
            self._emitted = None
            # Nobody closes these any more, and they must not make earlier windows look complete.
            for store in self._stores:
                for later in [later for later in store if later > index + PATIENCE]:
                    del store[later]
        self._announced[index] = Counts(*counts)
        return windows + self._ready()

    def clear(self) -> list[Window]:
        """Forget all windows, but not the counts; returns those that were closed and lacked images still."""
        closed = self._give_up()
        for store in self._stores:
            store.clear()
        self._emitted = None
        return closed

    def _add(self, store: dict[int, Images], index: int, stamp_ns: int, image: np.ndarray) -> list[Window]:
        images = store.setdefault(index, [])
        if images and images[0][1].shape != image.shape:
            self.counts["size_changes"] += 1
            return []
        room = MOST_WINDOW_BYTES - self._bytes(index) - image.nbytes
        if len(images) >= MOST_IMAGES or room < 0:
            self.counts["surplus_images"] += 1
            return []
        images.append((stamp_ns, image))
        self.taken += 1
        self._make_room(index)
        if len(store) > 2 * PATIENCE:  # nobody closes these windows
            del store[next(iter(store))]
        return self._ready()

    def _bytes(self, index: int) -> int:
        """Bytes of the images of one window."""
        return sum(image.nbytes for store in self._stores for _, image in store.get(index, ()))

    def _make_room(self, index: int) -> None:
        """Take the images of other windows away, those that came first, where all are too many."""
        others = [other for other in dict.fromkeys([*self._frames, *self._event_images]) if other != index]
        total = sum(map(self._bytes, [index, *others]))
        for other in others:
            if total <= MOST_BYTES:
                return
            total -= self._bytes(other)
            for store in self._stores:
                self.counts["surplus_images"] += len(store.pop(other, ()))

    def _ready(self) -> list[Window]:
        windows = []
        while self._announced and self._is_final(index := min(self._announced)):
            windows.append(self._emit(index))
        return windows

    def _give_up(self) -> list[Window]:
        return [self._emit(index) for index in sorted(self._announced)]

    def _is_final(self, index: int) -> bool:
        if max(self._announced) - index >= PATIENCE:
            return True
        return all(
            # One that is stamped far ahead tells nothing of its topic.
            len(store.get(index, ())) >= expected or any(index < later <= index + PATIENCE for later in store)
            for store, expected in zip(self._stores, self._announced[index][:2], strict=True)
        )

    def _emit(self, index: int) -> Window:
        counts = self._announced.pop(index)
        frames = sorted(self._frames.pop(index, []), key=lambda item: item[0])
        event_images = sorted(self._event_images.pop(index, []), key=lambda item: item[0])
        missing = max(0, counts.frames + counts.event_images - len(frames) - len(event_images))
        self.counts["missing"] += missing
        self._emitted = index
        return Window(
            index,
            self.grid.start(index),
            self.grid.end(index),
            _stack(event_images),
            _stack(frames),
            tuple(stamp for stamp, _ in frames),
            missing,
            *counts[2:],  # the rest of its fields are those of Counts
        )


def _stack(images: Images) -> np.ndarray:
    return np.stack([image for _, image in images]) if images else np.zeros((0, 0, 0, 3), np.uint8)
