"""What a topic of images holds."""

from __future__ import annotations

import statistics
from array import array
from collections import Counter
from typing import Any

import cv2
import numpy as np

from crossspec_ros.events.messages import COMPRESSED_IMAGE
from crossspec_ros.events.stamps import FORWARD_JUMP_NS
from crossspec_ros.recordings.topic_survey import StampedSurvey


class ImageSurvey(StampedSurvey):
    """A topic of raw or compressed images; of compressed ones only the first is unpacked, for its size, and
    the others are looked at where they end.
    """

    kind = "images"

    def __init__(self, topic: str, type_name: str) -> None:
        super().__init__(topic, type_name)
        self._encodings: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()
        self._all_stamps = array("q")
        self._short = 0

    def _take(self, stamp: int, message: Any) -> None:
        if self.type == COMPRESSED_IMAGE:
            self._encodings[message.format] += 1
            if not self._sizes and len(message.data):
                picture = cv2.imdecode(message.data, cv2.IMREAD_UNCHANGED)
                if picture is None:
                    self._short += 1
                else:
                    self._sizes[f"{picture.shape[1]}x{picture.shape[0]}"] += 1
            self._short += not _is_whole(message.data)
        else:
            self._encodings[message.encoding] += 1
            self._sizes[f"{message.width}x{message.height}"] += 1
            self._short += not len(message.data) or len(message.data) < message.height * message.step

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
