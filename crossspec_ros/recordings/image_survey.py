"""What a topic of images holds."""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.events.camera_images import camera_array, compressed_array
from crossspec_ros.events.cdr import COMPRESSED_IMAGE
from crossspec_ros.events.sample_depth import SampleDepth
from crossspec_ros.events.stamps import FORWARD_JUMP_NS
from crossspec_ros.recordings.kinds import Kinds
from crossspec_ros.recordings.topic_survey import StampedSurvey


class ImageSurvey(StampedSurvey):
    """A topic of raw or compressed images. Of each encoding images are read until one can be; of the others
    that are compressed only the end is looked at.
    """

    kind = "images"

    def __init__(self, topic: str, type_name: str) -> None:
        super().__init__(topic, type_name)
        self._encodings, self._sizes = Kinds(), Kinds()
        self._all_stamps = array("q")
        self._short = 0
        self._readable: set[str] = set()
        self._faults: dict[str, str] = {}
        self._depth = SampleDepth()

    def _take(self, stamp: int, message: Any) -> None:
        read: Callable[[Any], np.ndarray]
        if self.type == COMPRESSED_IMAGE:
            encoding, read = message.format, compressed_array
            self._short += not _is_whole(message.data)
        else:
            encoding, read = message.encoding, camera_array
            self._sizes.see(f"{message.width}x{message.height}")
            self._short += not len(message.data) or len(message.data) < message.height * message.step
        kind = self._encodings.see(encoding)
        if kind not in self._readable:
            self._try(kind, read, message)
        if kind in self._readable:
            self._depth.add(message)

    def _try(self, encoding: str, read: Callable[[Any], np.ndarray], message: Any) -> None:
        try:
            pixels = read(message)
        except InputError as error:
            self._faults[encoding] = str(error)
            return
        self._readable.add(encoding)
        if self.type == COMPRESSED_IMAGE:
            self._sizes.see(f"{pixels.shape[1]}x{pixels.shape[0]}")

    def _take_stamp(self, stamp: int) -> None:
        self._all_stamps.append(stamp)

    def _intervals(self) -> tuple[float, int]:
        """The median interval in ns, and how many images are missing by it, not counting gaps."""
        steps = np.diff(np.frombuffer(self._all_stamps, np.int64))
        steps = steps[(steps > 0) & (steps <= FORWARD_JUMP_NS)]
        if not len(steps):
            return 0.0, 0
        median = statistics.median(steps.tolist())
        return median, int(np.maximum(np.rint(steps / median) - 1, 0).sum())

    def figures(self) -> dict[str, Any]:
        median, missing = self._intervals()
        return {
            **super().figures(),
            "encodings": dict(self._encodings),
            "resolutions": list(self._sizes),
            "median_interval_ms": median / 1e6,
            "missing_images": missing,
            "empty_or_short_images": self._short,
        }

    def findings(self) -> list[str]:
        found = super().findings()
        median, missing = self._intervals()
        if missing:
            found.append(
                f"{missing} images are missing, by the median interval of {median / 1e6:.1f} ms: record "
                f"compressed images, with a larger cache, or on a faster disk"
            )
        for encoding, count in self._encodings.items():
            if encoding not in self._readable:
                found.append(f"{count} images in {encoding} cannot be read: {self._faults[encoding]}")
        if depth := self._depth.finding():
            found.append(depth)
        if self._short:
            found.append(
                f"{self._short} images are empty, cut or no pictures: check the node that sends them"
            )
        if len(self._sizes) > 1 or len(self._encodings) > 1:
            kinds = ", ".join([*self._encodings, *self._sizes])
            found.append(f"the images change ({kinds}): only those of the first size are used")
        return found


def _is_whole(picture: np.ndarray) -> bool:
    """Whether a PNG or JPEG, or whatever else it is, has its end."""
    data = picture.tobytes()
    if data.startswith(b"\x89PNG"):
        return data.endswith(b"IEND\xaeB`\x82")
    # Some cameras fill up what follows the end.
    return data.rstrip(b"\0").endswith(b"\xff\xd9") if data.startswith(b"\xff\xd8") else bool(data)
