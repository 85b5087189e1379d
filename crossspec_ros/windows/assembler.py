"""Join the images of each window on the captioner's side, where the topics have no order among them."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.synchronizer import FrameReady, Update
from crossspec_ros.windows.window import Window, WindowClosed

PATIENCE = 8
"""Later windows that close before a window is emitted incomplete: the depth of the topics' queues."""
MAX_IMAGES = 64
"""Images of one kind that a window may have; the synchronizer makes far fewer."""


class _Image(NamedTuple):
    window: int
    published_ns: int
    stamp_ns: int
    pixels: np.ndarray


@dataclass(eq=False)
class _Topic:
    """One topic of images: its first and last time by the publisher's clock, and images of open windows."""

    first_ns: int | None = None
    reached_ns: int = -1
    open: deque[_Image] = field(default_factory=lambda: deque(maxlen=2 * MAX_IMAGES))


@dataclass(eq=False)
class _ClosedWindow:
    """A window that has closed; its images were published before its closing.

    `before_ns` is the publisher's time of the closing before it.
    """

    index: int
    published_ns: int
    before_ns: int | None
    counts: WindowClosed
    images: tuple[list[_Image], list[_Image]] = field(default_factory=lambda: ([], []))
    is_emitted: bool = False

    def takes(self, image: _Image) -> bool:
        return self.index == image.window and image.published_ns <= self.published_ns

    def began_before(self, topic: _Topic) -> bool:
        """Return whether the topic may have images of the window from before its subscription."""
        if self.before_ns is None:
            return True
        return topic.first_ns is not None and topic.first_ns >= self.before_ns


class WindowAssembler:
    """Emit every closed window exactly once, in the order of the closings, when its images are there.

    After a jump back of the clock (a recording that loops) the same windows come again, and a queue that was
    full has lost old messages. So stamps alone do not show to which closing an image belongs. Images and
    closings come from one synchronizer, whose clock orders them: an image belongs to the first closing of its
    index that was published after it. A topic that is past a closing has no more images of that window.
    Images of a window that a killed synchronizer never closed are surplus ones of the next window of that
    index. A window that was open before the topics were subscribed lacks no images; less of it is covered.
    """

    def __init__(self, grid: WindowGrid) -> None:
        self.grid = grid
        self.counts: Counter[str] = Counter()
        self._frames, self._event_images = _Topic(), _Topic()
        self._topics = self._frames, self._event_images
        # Emitted windows stay for a while, so that their late images are recognised.
        self._closed: deque[_ClosedWindow] = deque()
        self._arrivals = 0
        self.taken = 0
        """Images that were kept for their window; the others are in no caption."""

    def add(self, update: Update) -> list[Window]:
        """Add an update of a synchronizer in this process; return the windows that this completes."""
        if isinstance(update, WindowClosed):
            return self.close(*update)
        add = self.add_frame if isinstance(update, FrameReady) else self.add_event_image
        return add(update.stamp_ns, update.image)

    def add_frame(self, stamp_ns: int, image: np.ndarray, published_ns: int = 0) -> list[Window]:
        """Add an RGB frame (H, W, 3) with its capture time; return the windows that this completes.

        `published_ns` is the publisher's time, by default the order of the calls.
        """
        return self._add(self._frames, self.grid.index(stamp_ns), stamp_ns, image, published_ns)

    def add_event_image(self, stamp_ns: int, image: np.ndarray, published_ns: int = 0) -> list[Window]:
        """Add an event image (H, W, 3) with the end of its slice, as `add_frame` does with a frame."""
        return self._add(self._event_images, self.grid.index(stamp_ns - 1), stamp_ns, image, published_ns)

    def close(self, end_ns: int, *counts: int, published_ns: int = 0) -> list[Window]:
        """Add the end and the counts of a `WindowClosed`; return the windows that this completes.

        Raises InputError for a window of another grid.
        """
        index = self.grid.index(end_ns - 1)
        if end_ns != self.grid.end(index):
            raise InputError(
                f"a window ends {end_ns % SECOND / SECOND:g} s after the full second, but "
                f"{self.grid.phase_ns / SECOND:g} s are expected: give all nodes the same window_phase_s"
            )
        published_ns = self._published(published_ns)
        last = self._closed[-1] if self._closed else None
        if last and index <= last.index:
            self.counts["restarts"] += 1
        if last and published_ns < last.published_ns:
            # The publisher's clock was set back, so its earlier times order nothing any more.
            self._closed = deque(window for window in self._closed if not window.is_emitted)
        before_ns = last.published_ns if last else None
        window = _ClosedWindow(index, published_ns, before_ns, WindowClosed(end_ns, *counts))
        self._closed.append(window)
        for topic, images in zip(self._topics, window.images, strict=True):
            images.extend(image for image in topic.open if window.takes(image))
            topic.open = deque((one for one in topic.open if not window.takes(one)), topic.open.maxlen)
        return self._ready()

    def clear(self) -> list[Window]:
        """Forget all windows, but not the counts; return the closed incomplete ones."""
        missing = self.counts["missing"]
        incomplete = [self._emit(window) for window in self._closed if not window.is_emitted]
        # No window waits for these images any more, so that they are not lost.
        self.counts["missing"] = missing
        self._closed.clear()
        self._frames, self._event_images = self._topics = _Topic(), _Topic()
        return incomplete

    def _published(self, published_ns: int) -> int:
        self._arrivals += 1
        return published_ns or self._arrivals

    def _add(
        self, topic: _Topic, index: int, stamp_ns: int, pixels: np.ndarray, published_ns: int
    ) -> list[Window]:
        image = _Image(index, self._published(published_ns), stamp_ns, pixels)
        topic.reached_ns = image.published_ns
        if topic.first_ns is None:
            topic.first_ns = image.published_ns
        window = next((one for one in self._closed if one.takes(image)), None)
        if window is not None and window.is_emitted:
            self.counts["late_images"] += 1
            return self._ready()
        images = topic.open if window is None else window.images[self._topics.index(topic)]
        alike = [one for one in images if one.window == index]
        if alike and alike[0].pixels.shape != pixels.shape:
            self.counts["size_changes"] += 1
        elif len(alike) >= MAX_IMAGES:
            self.counts["surplus_images"] += 1
        else:
            images.append(image)
            self.taken += 1
        return self._ready()

    def _ready(self) -> list[Window]:
        waiting = [window for window in self._closed if not window.is_emitted]
        windows = []
        for place, window in enumerate(waiting):
            if not self._is_final(window) and place >= len(waiting) - PATIENCE:
                break
            windows.append(self._emit(window))
        while len(self._closed) > 2 * PATIENCE:
            self._closed.popleft()
        return windows

    def _is_final(self, window: _ClosedWindow) -> bool:
        parts = zip(self._topics, window.images, window.counts[1:3], strict=True)
        return all(len(has) >= count or topic.reached_ns > window.published_ns for topic, has, count in parts)

    def _emit(self, window: _ClosedWindow) -> Window:
        window.is_emitted, counts = True, window.counts
        frames, event_images = (sorted(images, key=lambda image: image.stamp_ns) for images in window.images)
        window.images = [], []
        missing = surplus = 0
        for topic, images, announced in zip(self._topics, (frames, event_images), counts[1:3], strict=True):
            lacking = announced - len(images)
            surplus += max(0, -lacking)
            if lacking > 0 and window.began_before(topic):
                end_ns = self.grid.end(window.index)
                heard_ns = end_ns - min((image.stamp_ns for image in images), default=end_ns)
                counts = counts._replace(covered_ms=min(counts.covered_ms, round(heard_ns / 1e6)))
            else:
                missing += max(0, lacking)
        self.counts["missing"] += missing
        self.counts["surplus_images"] += surplus
        return Window(
            window.index,
            self.grid.start(window.index),
            self.grid.end(window.index),
            _stack(event_images),
            _stack(frames),
            tuple(image.stamp_ns for image in frames),
            missing,
            surplus,
            *counts[3:],  # the next fields are those of WindowClosed
            event_image_stamps_ns=tuple(image.stamp_ns for image in event_images),
        )


def _stack(images: list[_Image]) -> np.ndarray:
    return np.stack([image.pixels for image in images]) if images else np.zeros((0, 0, 0, 3), np.uint8)
