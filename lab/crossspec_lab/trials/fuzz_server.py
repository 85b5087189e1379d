"""`crossspec fuzz server`: whatever strangers say to a served target, robots get their captions."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from crossspec_lab.trials.bars import MemoryWatch, missed, missed_bars
from crossspec_lab.trials.faults import noise, told
from crossspec_lab.trials.faults_fleet import FAILED, RIGHT, WRONG, Life, Server, cases_of
from crossspec_ros.models.loading import load_pair
from crossspec_ros.paths import tiny_models

_ROBOTS = 2
_CAPTIONS_FIRST = 0.15
"""For each unsound message, before the first: 3,000 of 20,000, which fill the memory of all robots."""
_NO_CAPTION_S = 60.0


def fuzz(count: int, seed: int) -> dict[str, Any]:
    """Say `count` unsound messages to a server that two robots caption with; raises RuntimeError where it
    gives them no captions any more."""
    cases = cases_of(load_pair(tiny_models()))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = Server(folder, _ROBOTS, 1)
        stack.callback(server.stop)
        lives = [Life(i, server.port, cases) for i in range(_ROBOTS)]
        for life in lives:
            stack.callback(life.end)
        _caption(lives, int(_CAPTIONS_FIRST * count))
        replica = server.replica()
        memory = MemoryWatch({"replica": replica.pid})
        row = told(lives, lambda: noise(server, cases, count, seed))
        rss = memory.fuzzed()
        # Ray Serve starts another within half a minute, and robots find it.
        is_same = server.replica() == replica
    bars = {"captions": row[RIGHT] > 0 == row[WRONG] + row[FAILED], "replica": is_same}
    figures = {"messages": count, "seed": seed, "robots": row, "rss": rss}
    return {**figures, "missed_bars": missed_bars(bars) + missed(rss)}


def _caption(lives: Sequence[Life], count: int) -> None:
    """Wait until the robots have so many captions."""
    began_s = time.monotonic()
    while sum(life.counts[RIGHT] for life in lives) < count:
        if time.monotonic() - max(began_s, *(life.right_s for life in lives)) > _NO_CAPTION_S:
            raise RuntimeError(f"robots have had no caption for {_NO_CAPTION_S:g} s")
        time.sleep(1.0)
