"""Windows in Rerun's viewer, with a stand-in for the package."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from refusals import refused

from crossspec_ros.captioning import rerun_log
from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.rerun_log import RerunLog
from crossspec_ros.captioning.standing import Answered, Standing
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

SECOND = 10**9


class StandIn(ModuleType):
    """A stand-in for the package. `logged` has (entity, value, time in ns)."""

    def __init__(self):
        super().__init__("rerun")
        self.logged, self.opened, self.now_ns = [], [], 0
        self.TimeRangeBoundary = SimpleNamespace(cursor_relative=lambda seconds: seconds)
        self.new_entity_path = "/".join
        self.TextLogLevel = SimpleNamespace(DEBUG="debug", INFO="info", WARN="warn")
        self.Image = lambda image: SimpleNamespace(compress=lambda jpeg_quality: image.shape)

    def RecordingStream(self, application):
        def disconnect():
            self.opened.append("closed")

        def open_as(kind):
            return lambda *where, default_blueprint: self.opened.append((kind, *where))

        def set_time(timeline, timestamp):
            self.now_ns = int(timestamp.astype(np.int64))

        return SimpleNamespace(
            **{kind: open_as(kind) for kind in ("spawn", "save", "connect_grpc")},
            set_time=set_time,
            log=lambda path, value: self.logged.append((path, value, self.now_ns)),
            disconnect=disconnect,
        )

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *values, **named: (name, *values, *named.values())

    def values(self, path):
        return [(value, ns) for logged, value, ns in self.logged if logged == path]


@pytest.fixture
def rerun(monkeypatch):
    stand_in = StandIn()
    blueprint = ModuleType("rerun.blueprint")
    blueprint.__getattr__ = lambda name: lambda *parts, **named: (name, *parts)
    stand_in.blueprint = blueprint
    monkeypatch.setitem(sys.modules, "rerun", stand_in)
    monkeypatch.setitem(sys.modules, "rerun.blueprint", blueprint)
    return stand_in


def test_values_have_their_times(rerun, tmp_path):
    images = np.zeros((2, 4, 6, 3), np.uint8)
    ends_ns = 3 * SECOND // 2, 2 * SECOND
    window = Window(
        1, SECOND, 2 * SECOND, images, images, (SECOND, SECOND + 500), event_image_stamps_ns=ends_ns
    )
    trace = Trace()
    trace.mark("closed", 5000)
    trace.add("verify[0]", 4000, 6000)
    trace.add("answer", 5500, 2_005_500)
    log = RerunLog(str(tmp_path / "drive.rrd"))
    log.text("draft", "a draft", window.end_ns)
    log.captioned(window, Caption("a van", (1, 2, 3), "target", target_passes=2), trace, 3.0)
    log.answer(Standing("dark?", ("yes", "no")), Answered(Caption("no", (2,), "target"), (0.1, 0.9)), 7)
    log.other(window, "unchanged", "unchanged since 0-1 s")
    log.close()
    assert rerun.opened == [("save", str(tmp_path / "drive.rrd")), "closed"]
    assert [ns for _, ns in rerun.values("frames")][:2] == [SECOND, SECOND + 500]
    assert [ns for _, ns in rerun.values("events")][:2] == [3 * SECOND // 2, 2 * SECOND]
    assert rerun.values("stages/verify") == [
        (("StateChange", "verify[0]"), 2 * SECOND - 1000),
        (("StateChange", ""), 2 * SECOND + 1000),
    ]
    assert rerun.values("log/draft") == [(("TextLog", "a draft", "debug"), 2 * SECOND)]
    assert rerun.values("log/verified") == [(("TextLog", "a van", "info"), 2 * SECOND)]
    assert rerun.values("log/unchanged")[0][0][1] == "unchanged since 0-1 s"
    assert rerun.values("ratios/tokens a pass") == [(("Scalars", 1.5), 2 * SECOND)]
    assert rerun.values("ratios/times faster than the target alone") == [(("Scalars", 3.0), 2 * SECOND)]
    assert rerun.values("ms/from the last frame to the caption") == [(("Scalars", 2.0), 2 * SECOND)]
    assert [value[1] for value, _ in rerun.values("log/answers")] == ["dark? no (probability 0.9)"]


@pytest.mark.parametrize(
    ("where", "opened"),
    [("viewer", ("spawn",)), ("rerun+http://a:9876/proxy", ("connect_grpc", "rerun+http://a:9876/proxy"))],
)
def test_viewer_is_opened_or_connected(rerun, where, opened):
    RerunLog(where).close()
    assert rerun.opened == [opened, "closed"]


def test_unusable_sink_is_refused(rerun, tmp_path, monkeypatch):
    with refused("rerun-file"):
        RerunLog(str(tmp_path / "none" / "drive.rrd"))
    monkeypatch.setitem(sys.modules, "rerun", None)
    with refused("rerun-missing"):
        RerunLog("viewer")


def test_faulty_viewer_blocks_nothing(rerun, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(rerun_log, "_CLOSE_S", 0.1)
    go_on = threading.Event()
    rerun.TextLog = lambda *args, **named: go_on.wait(10)
    log = RerunLog(str(tmp_path / "drive.rrd"))
    for i in range(2 * rerun_log._MAX_ROWS):
        log.text("draft", str(i), i)
    log.close()
    assert caplog.messages == ["the log for Rerun is too slow, and lacks some windows"]
    go_on.set()
    rerun.TextLog = lambda *args, **named: 1 / 0
    caplog.clear()
    log = RerunLog(str(tmp_path / "drive.rrd"))
    for i in range(2):
        log.text("draft", str(i), i)
    log.close()
    assert caplog.messages == ["the log for Rerun lacks some values (division by zero)"]
    assert rerun.opened[-1] == "closed"
