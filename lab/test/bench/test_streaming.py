"""Windows in a row: the newest wins, and what is between is dropped and told."""

from __future__ import annotations

import time

from crossspec_lab.baselines.written import Written
from crossspec_lab.bench import rates as streaming
from crossspec_lab.bench.records import Record

from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class Sleeper:
    """Takes its time for a caption."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.windows = seconds, list[Window]()

    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        self.windows.append(window)
        time.sleep(self.seconds)
        return Written((5, 2), (1, 1))


def streamed(windows: list[Window], takes_s: float, period_s: float) -> tuple[Sleeper, list[Record]]:
    told: list[Record] = []
    sleeper = Sleeper(takes_s)
    streaming.run(sleeper, [windows[0]] * 8, period_s, told.append, "sleeper", 30)
    return sleeper, told


def test_who_is_too_slow_captions_the_newest_and_every_window_is_told(windows: list[Window]) -> None:
    sleeper, told = streamed(windows, 0.25, 0.1)
    assert sorted(one.window for one in told) == list(range(8))
    dropped = [one.window for one in told if one.more["dropped"]]
    captioned = [window.index for window in sleeper.windows]
    assert dropped and captioned[0] == 0 and captioned[-1] == 7
    assert sorted(dropped + captioned) == list(range(8))
    ends = [one.more["ended_s"] for one in told if not one.more["dropped"]]
    assert ends == sorted(ends)
