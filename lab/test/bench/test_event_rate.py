"""The reports account for every event of a stream as fast as DSEC's, and of a load on a synchronizer."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from crossspec_lab.bench.event_load import PACKET_US, Packets, highest, measure
from outsider import outsider

from crossspec_ros.events.cdr import EVENT_PACKET, RecordedMessage
from crossspec_ros.recordings.bag import write_bag

START_NS = 5 * 10**9
MEV_S, SECONDS = 10, 3


def record(path):
    """A bag; returns how many of its events lie in each second of ROS time."""
    packets, events = Packets(MEV_S), Counter()
    with write_bag(path) as write:
        for index in range(SECONDS * 10**6 // PACKET_US):
            stamp_ns = START_NS + index * PACKET_US * 1000
            message = packets.message(index, stamp_ns)
            write("/events", RecordedMessage(stamp_ns, "events", EVENT_PACKET, message))
            seconds = (stamp_ns + packets.offsets_us * 1000) // 10**9
            events.update(dict(zip(*np.unique(seconds, return_counts=True), strict=True)))
    return events


@pytest.mark.nightly
@pytest.mark.realtime
def test_replay_loses_no_event_at_10_mev_s(tmp_path):
    events = record(tmp_path / "bag")
    assert sum(events.values()) >= 0.999 * SECONDS * MEV_S * 10**6
    command = [sys.executable, "-m", "crossspec_ros.cli", "replay", str(tmp_path / "bag"), "--rate", "1"]
    with outsider() as observer:
        subprocess.run(command, check=True, timeout=60.0, stdout=subprocess.DEVNULL)
        observer.wait(lambda: len(observer["/captioner/report"]) == SECONDS)
        reports = {end // 10**9 - 1: report for end, _, _, report in observer.reports()}
    assert {second: report.events for second, report in reports.items()} == events
    assert {report.lost_packets for report in reports.values()} == {0}


@pytest.mark.nightly
@pytest.mark.realtime
def test_event_load_accounts_for_every_event():
    (row,) = rows = measure([0.5], seconds=3.0)
    packets = round(3e6 / PACKET_US)
    assert row["events_sent"] == packets * 512
    # Best effort may lose packets while the machine does something else.
    assert row["events_counted"] + row["lost_packets"] * 512 == row["events_sent"], row
    assert row["holds"] or row["lost_packets"] or row["publishing_late_ms"]["max"] > 100.0, row
    assert highest(rows) == (0.5 if row["holds"] else 0)
    # A slice is drawn 5 ms after its end, once a later packet has come.
    assert 5.0 < row["event_image_ms"]["median"] <= row["event_image_ms"]["max"]
    assert 0.0 < row["cpu_share"] < 2.0 and 50.0 < row["peak_mb"] < 2000.0
