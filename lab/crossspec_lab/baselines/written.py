"""Output of every decoder: the tokens, and how many of them each pass of the target gave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

LIMIT = 64
"""Tokens of a caption at most."""


@dataclass(frozen=True)
class Written:
    """A caption as token ids, its end of sequence included, and the tokens that each pass of the target gave
    (none where the way does not tell)."""

    tokens: tuple[int, ...]
    accept_lengths: tuple[int, ...] = ()


Baseline = Callable[[Window, str, Trace], Written]
"""Captions a window that has closed: its stages become spans of the trace, its first token a mark."""
