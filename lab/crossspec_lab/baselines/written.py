"""Output of every decoder: the tokens, and the number from each pass of the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

LIMIT = 64
"""Highest number of tokens of a caption."""


@dataclass(frozen=True)
class Written:
    """A caption's token ids with the end of sequence, and the number of tokens from each pass of the target.

    The latter is empty for decoders that do not report passes.
    """

    tokens: tuple[int, ...]
    accept_lengths: tuple[int, ...] = ()


Baseline = Callable[[Window, str, Trace], Written]
"""Captions a closed window; its stages become spans of the trace, its first token a mark."""
