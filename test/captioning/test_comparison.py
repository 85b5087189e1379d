"""The comparison that the demo prints: a line per caption, totals, and next steps."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from refusals import refused

from crossspec_ros.captioning import comparison as module
from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.caption_options import check_settings
from crossspec_ros.captioning.comparison import NEXT, NOTHING, Comparison
from crossspec_ros.settings import CaptionerSettings

GO_ON = threading.Event()


class Alone:
    """Captions in 20 ms of its own clock: three tokens, or none once it is cancelled."""

    now_s = 0.0

    def perf_counter(self):
        return self.now_s

    def caption(self, window, options, trace, cancel):
        self.now_s += 0.02
        return SimpleNamespace(token_ids=() if cancel.is_set() else (1, 2, 3))

    def forget(self):
        pass


def captioned(*tokens, source="target", cancel=GO_ON):
    caption = SimpleNamespace(token_ids=tokens, source=source)
    return SimpleNamespace(window=None, options=Options("?"), caption=caption, cancel=cancel)


def test_windows_are_compared_one_by_one(monkeypatch):
    alone = Alone()
    monkeypatch.setattr(module, "time", alone)
    load = [0.5]
    monkeypatch.setattr(module.os, "getloadavg", lambda: (load[0], 0.0, 0.0))
    monkeypatch.setattr(module.os, "cpu_count", lambda: 2)
    comparison = Comparison(alone)
    lines = [comparison.add(captioned(1, 2, last), ms) for last, ms in ((3, 2.0), (4, 4.0))]
    assert "2 ms" in lines[0] and "20 ms" in lines[0]
    assert [", a different caption" in each for each in lines] == [False, True]
    text = comparison.text("9 of 9 seconds captioned")
    for figure in ("3 ms", "20 ms", "7.5 times", "1 of 2 captions"):
        assert figure in text
    assert text.splitlines()[-1] == NEXT
    load[0] = 5.2
    assert "busy (load 5 on 2 cores)" in comparison.text("")


def test_other_and_cancelled_captions_are_not_compared():
    comparison, over = Comparison(Alone()), threading.Event()
    over.set()
    for outcome in (captioned(1, 2, 3, source="event_draft"), captioned(1, 2, 3, cancel=over)):
        assert comparison.add(outcome, 2.0) == ""
    assert comparison.text("") == ""
    assert comparison.text("1 of 1 seconds captioned") == f"1 of 1 seconds captioned; {NOTHING}"


@pytest.mark.parametrize(
    ("code", "settings"),
    [
        ("compare-remote", {"target": "grpc://10.0.0.1:9000"}),
        ("compare-sampled", {"temperature": 0.7}),
        ("compare-alone", {"mode": "autoregressive"}),
    ],
)
def test_impossible_comparison_is_refused(code, settings):
    with refused(code):
        check_settings(CaptionerSettings(compare=True, **settings))
