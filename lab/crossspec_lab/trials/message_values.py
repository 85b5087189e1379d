"""Random values for the fields of ROS messages: most are valid, some are extreme."""

from __future__ import annotations

import array
import random
from importlib import import_module
from typing import Any

from crossspec_ros.ros.messages import to_time

_TEXTS = (
    *("", "\x00", "\x1b[2J\r\n", "x" * 100_000, "a/" * 20_000, "\u202e", "captioner"),
    *("rgb8", "bgr8", "mono8", "16UC1", "jpeg; png", "evt3", "mono", "libcaer", "libcaer_cmp"),
)
_NUMBERS = (0, 1, 48, 64, 85, 255, 640, 20_000, 65_536)
_FLOATS = (0.0, -1.0, 1e308, float("nan"), float("inf"), 0.5)
_OFFSETS_NS = (0, 0, 0, -(10**9), 10**9, 10**12, -(10**12))
_SIZES = (0, 1, 7, 9, 64 * 85 * 3, 100_000)
_MAX_SIZE = 2_000_000
"""Elements of the rare largest sequences."""
_MAX_PARTS = 20
"""Elements of a sequence of texts or messages."""


def interface(name: str) -> Any:
    """Return the class of a message or service, such as `std_msgs/msg/String`, or of an action's part, such
    as `crossspec_msgs/action/Ask_SendGoal`."""
    module, _, kind = name.rpartition("/")
    found = import_module(module.replace("/", "."))
    if module.endswith("/action"):
        action, _, part = kind.partition("_")
        return getattr(getattr(found, action).Impl, part if part == "FeedbackMessage" else f"{part}Service")
    return getattr(found, kind)


class FieldValues:
    """Fills messages with values of a random generator."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def filled(self, message: Any, now_ns: int) -> Any:
        """Fill four of five fields of the message, and return it; headers have stamps around `now_ns`."""
        if hasattr(message, "stamp") and hasattr(message, "frame_id"):
            stamp_ns = now_ns + self._rng.choice(_OFFSETS_NS)
            message.stamp = to_time(max(0, min(stamp_ns, 2**31 * 10**9 - 1)))
            return message
        for name, kind in message.get_fields_and_field_types().items():
            if self._rng.random() < 0.8:
                setattr(message, name, self._value(getattr(message, name), kind, now_ns))
        return message

    def _value(self, value: Any, kind: str, now_ns: int) -> Any:
        if hasattr(value, "get_fields_and_field_types"):
            return self.filled(value, now_ns)
        if "sequence" in kind or "[" in kind:
            return self._sequence(kind, now_ns)
        if isinstance(value, bool):
            return self._rng.random() < 0.5
        if isinstance(value, int):
            is_unsigned = kind.startswith(("uint", "octet", "byte", "char"))
            bits = int("".join(filter(str.isdigit, kind)) or 8)
            low, high = (0, 2**bits - 1) if is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            return max(low, min(high, self._rng.choice((*_NUMBERS, low, high, self._rng.randint(low, high)))))
        choices = {float: _FLOATS, str: _TEXTS}.get(type(value), (value,))
        return self._rng.choice(choices)

    def _sequence(self, kind: str, now_ns: int) -> Any:
        size = _MAX_SIZE if self._rng.random() < 0.005 else self._rng.choice(_SIZES)
        if "uint8" in kind or "octet" in kind or "byte" in kind:
            return array.array("B", self._rng.randbytes(size))
        element = kind.removeprefix("sequence<").partition(">")[0].partition(",")[0]
        count = min(size, _MAX_PARTS)
        if "/" in element:
            package, _, name = element.partition("/")
            part = interface(f"{package}/msg/{name.rpartition('/')[2]}")
            return [self.filled(part(), now_ns) for _ in range(count)]
        return [self._rng.choice(_TEXTS)[:1000] for _ in range(count)] if "string" in element else []
