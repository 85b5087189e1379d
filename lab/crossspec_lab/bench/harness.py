"""Comparison of decoders: they take turns on the same cases in one run, and what each did is reported.

The order of the turns rotates, so that a machine that drifts favours none.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from crossspec_lab.baselines.written import Written
from crossspec_lab.bench.statistics import median, spread
from crossspec_ros.errors import InputError
from crossspec_ros.files import write_report
from crossspec_ros.telemetry.trace import Trace

Case = TypeVar("Case")
Decoder = Callable[[Case, Trace], Written]
"""Captions a case; where it is timed, it marks "last_frame" and "closed" in the trace."""
_LEAST_MS = 1.0
"""Shortest wait in a ratio: an answer may be there when its window closes."""


@dataclass(frozen=True)
class Run:
    """One case captioned by one decoder, which was called at `begun_ns` and returned at `ended_ns`."""

    trace: Trace
    written: Written
    ended_ns: int
    begun_ns: int = 0

    @classmethod
    def of(cls, decoder: Decoder[Case], case: Case) -> Run:
        """Let the decoder caption the case now."""
        trace, begun_ns = Trace(), time.perf_counter_ns()
        written = decoder(case, trace)
        return cls(trace, written, time.perf_counter_ns(), begun_ns)

    @property
    def answered_ns(self) -> int:
        """End of the caption's last pass: ours returns at the close, and others tidy up first."""
        return max(
            (span.end_ns for span in self.trace.spans if span.stage == "answer"), default=self.ended_ns
        )

    @property
    def first_token_ns(self) -> int:
        """End of the pass that gave the first token."""
        firsts = [span.end_ns for span in self.trace.spans if span.stage == "answer_first"]
        return min(firsts, default=self.trace.marks.get("first_token", self.answered_ns))

    @property
    def wait_ms(self) -> float:
        """Milliseconds from the arrival of the last frame to the end of the caption's last pass."""
        return (self.answered_ns - self.trace.marks["last_frame"]) / 1e6

    def from_close_ms(self, mark: str = "caption") -> float:
        """Milliseconds from the close to a mark, or to the return where there is none; 0 if before it."""
        marks = self.trace.marks
        return max(0, marks.get(mark, self.ended_ns) - marks["closed"]) / 1e6


def in_turns(names: Iterable[str], cases: Iterable[Case]) -> Iterator[tuple[str, Case]]:
    """Every name with every case, one case after the other; another name begins each time."""
    order = list(names)
    for case in cases:
        yield from ((name, case) for name in order)
        order = order[1:] + order[:1]


def take_turns(decoders: Mapping[str, Decoder[Case]], cases: Iterable[Case]) -> dict[str, list[Run]]:
    """Let each decoder caption each case."""
    runs: dict[str, list[Run]] = {name: [] for name in decoders}
    for name, case in in_turns(decoders, cases):
        runs[name].append(Run.of(decoders[name], case))
    return runs


def waits(runs: Sequence[Run]) -> np.ndarray:
    """Milliseconds of each from the last frame."""
    return np.array([run.wait_ms for run in runs])


def compared(runs: Mapping[str, Sequence[Run]], alone: str) -> dict[str, Any]:
    """Times and stages of each decoder, ready for JSON, beside those of the one named `alone`."""

    def closes(of: Sequence[Run], mark: str) -> list[float]:
        return [run.from_close_ms(mark) for run in of]

    than = runs[alone]
    return {
        name: {
            "caption_ms": spread(closes(mine, "caption")),
            "first_token_ms": spread(closes(mine, "first_token")),
            "close_to_caption_ratio": ratio(closes(than, "caption"), closes(mine, "caption")),
            "close_to_first_token_ratio": ratio(closes(than, "first_token"), closes(mine, "first_token")),
            "last_frame_to_caption_ms": spread(waits(mine)),
            "last_frame_to_caption_ratio": ratio(waits(than), waits(mine)),
            "equal": sum(a.written.tokens == b.written.tokens for a, b in zip(mine, than, strict=True)),
            "tokens_per_pass": tokens_per_pass(mine),
            "stages_ms": _stages(mine),
        }
        for name, mine in runs.items()
    }


def tokens_per_pass(runs: Sequence[Run]) -> float | None:
    """Return the tokens per forward pass; None for a decoder that does not report its passes."""
    passes = sum(len(run.written.accept_lengths) for run in runs)
    return sum(len(run.written.tokens) for run in runs) / passes if passes else None


def _stages(runs: Sequence[Run]) -> dict[str, float]:
    """The median milliseconds of each stage, and of the draft's work that was hidden."""
    found = [run.trace.stages | {"hidden": run.trace.hidden} for run in runs]
    names = sorted({stage for stages in found for stage in stages})
    return {name: float(np.median([stages.get(name, 0.0) for stages in found])) for name in names}


def ratio(one: Sequence[float] | np.ndarray, other: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Return the spread of the ratios of waits, case by case.

    `low` and `high` are the ends of the 95 % interval of the median, if there are enough drives for one.
    """
    ratios = np.maximum(one, _LEAST_MS) / np.maximum(other, _LEAST_MS)
    found = median(ratios.tolist())
    ends = {} if np.isnan(found.low) else {"low": found.low, "high": found.high}
    return spread(ratios) | ends


def tell(args: argparse.Namespace, figures: Mapping[str, Any]) -> None:
    """Write the figures as JSON where requested."""
    if args.json:
        write_report(args.json, json.dumps(figures, indent=1) + "\n")


def seen_before(captions: Sequence[tuple[int, ...]]) -> float:
    """Share of captions that an earlier one is, token for token."""
    return 1 - len(set(captions)) / len(captions)


def check_windows(windows: int) -> None:
    """Raise InputError where there are none."""
    if windows < 1:
        raise InputError(f"--windows {windows} measures nothing: ask for at least 1")
