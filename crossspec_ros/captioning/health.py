"""Levels, rates and sentences of the diagnostics, made steady: what nodes count in, what people read out."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from crossspec_ros.captioning.remedies import RISING, STOPPED

HOLD_S, RATE_S = 5.0, 10.0
"""How long warnings stay and rates are averaged, so that nothing flickers in an output of once a second."""
PATIENCE = 5
"""A stream has stopped when it is silent for so many of its usual pauses; a slow replay has long ones."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Reading(NamedTuple):
    """What a part of a node tells of itself.

    `flow` and `wrong` are totals of what went through and of what went wrong, `values` are shown as they are,
    `warnings` are sentences about what no total tells, each under a name that stays the same; figures that
    change by the second belong to `values`.
    """

    flow: Mapping[str, int] = _NOTHING
    wrong: Mapping[str, int] = _NOTHING
    values: Mapping[str, object] = _NOTHING
    warnings: Mapping[str, str] = _NOTHING


class Health(NamedTuple):
    """What is published of a part: all is well unless it has a warning."""

    warning: str
    values: dict[str, str]


class PartHealth:
    """Follows the readings of one part, taken at times in seconds of a clock that never jumps."""

    def __init__(self) -> None:
        self._past: deque[tuple[float, Mapping[str, int]]] = deque()
        self._wrong: Mapping[str, int] = {}
        self._streams: dict[str, _Stream] = {}
        self._warned: dict[str, tuple[float, str]] = {}

    def update(self, now_s: float, reading: Reading) -> Health:
        """What to publish now."""
        flow, wrong = dict(reading.flow), dict(reading.wrong)
        told = dict(reading.warnings)
        for name, total in wrong.items():
            if total > self._wrong.get(name, 0):
                told[name] = RISING.get(name, name.replace("_", " "))
        for name, total in flow.items():
            if self._streams.setdefault(name, _Stream()).has_stopped(now_s, total) and name in STOPPED:
                told[name] = STOPPED[name]
        self._wrong = wrong
        self._warned |= {name: (now_s, sentence) for name, sentence in told.items()}
        self._warned = {name: warned for name, warned in self._warned.items() if now_s - warned[0] < HOLD_S}
        values = {f"{name}_per_s": f"{rate:.1f}" for name, rate in self._rates(now_s, flow).items()}
        values |= {name: str(value) for name, value in {**wrong, **reading.values}.items()}
        return Health("; ".join(sentence for _, sentence in self._warned.values()), values)

    def _rates(self, now_s: float, flow: Mapping[str, int]) -> dict[str, float]:
        self._past.append((now_s, flow))
        while len(self._past) > 1 and self._past[1][0] <= now_s - RATE_S:
            self._past.popleft()
        since_s, before = self._past[0]
        return {
            name: (total - before.get(name, 0)) / (now_s - since_s or 1.0) for name, total in flow.items()
        }


class _Stream:
    """When a total last rose, and how long it usually rests."""

    def __init__(self) -> None:
        self._total = 0
        self._rose_s: float | None = None
        self._pause_s: float | None = None

    def has_stopped(self, now_s: float, total: int) -> bool:
        if total > self._total:
            if self._rose_s is not None:
                pause_s = now_s - self._rose_s
                self._pause_s = pause_s if self._pause_s is None else (4 * self._pause_s + pause_s) / 5
            self._total, self._rose_s = total, now_s
        if self._rose_s is None or self._pause_s is None:
            return False
        return now_s - self._rose_s > max(HOLD_S, PATIENCE * self._pause_s)
