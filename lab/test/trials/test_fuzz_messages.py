"""Synchronizer and captioner live, caption and tell how they are after messages that nobody should send."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import rclpy
from crossspec_lab.trials import fuzz_publisher
from crossspec_lab.trials.fuzz_messages import fill_memory, fuzz
from crossspec_lab.trials.fuzz_publisher import FuzzPublisher
from crossspec_msgs.msg import WindowReport
from outsider import spinning
from rclpy.node import Node
from rclpy.publisher import Publisher
from sensor_msgs.msg import Image
from std_msgs.msg import String

from crossspec_ros.captioning.assembly import vocabulary
from crossspec_ros.drafting.memory_file import MemoryFile
from crossspec_ros.drafting.proposers.memory import CAPACITY, CaptionMemory
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.ros.messages import RELIABLE, best_effort


class Slow:
    """Nodes named as ours, of which two take their time over each message and have short queues."""

    def __init__(self, synchronizer: Node, captioner: Node) -> None:
        self.read = 0
        synchronizer.create_subscription(Image, "camera/image_raw", self._take, best_effort(5), raw=True)
        captioner.create_subscription(String, "captioner/question", self._take, 5, raw=True)
        self.reports: Publisher = captioner.create_publisher(WindowReport, "captioner/report", RELIABLE)

    def _take(self, data: bytes) -> None:
        time.sleep(0.01)
        self.read += 1


@pytest.fixture
def slow() -> Iterator[Slow]:
    with ExitStack() as stack:
        nodes = {
            name: stack.enter_context(spinning(lambda name=name: rclpy.create_node(name)))
            for name in fuzz_publisher.NODES
        }
        yield Slow(nodes["synchronizer"], nodes["captioner"])


def test_what_counts_as_sent_was_read(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[object] = []
    monkeypatch.setattr(FuzzPublisher, "_request", lambda self, service: requests.append(service))
    with spinning(lambda: FuzzPublisher(1)) as publisher:
        publisher.find()
        publisher.warm_up()
        slow.read = 0
        requests.clear()
        publisher.say(100)
        assert slow.read + len(requests) == 100


def test_the_captioner_starts_with_as_many_captions_as_it_keeps(tmp_path: Path, pair: ModelPair) -> None:
    fill_memory(path := tmp_path / "memory.json")
    memory, ids = CaptionMemory(), pair.target.vocabulary
    MemoryFile(memory, path, vocabulary(pair), ids).close()
    assert memory.known == CAPACITY


@pytest.mark.nightly
@pytest.mark.realtime
def test_the_nodes_go_on() -> None:
    figures = fuzz(count=300, seed=1)
    assert figures["messages"] == 300 and figures["ended"] == {}
    assert figures["captioned"] == figures["diagnosed"] == figures["sound_windows"] == 1
    targets = {
        "/camera/image_raw",
        "/captioner/ask",
        "/synchronizer/window_closed",
        "/player/report",
    }
    assert targets | {"/dv_camera/set_parameters"} <= set(figures["targets"])
    assert set(figures["failed_callbacks"]) == {"synchronizer", "captioner", "dv_camera"}
    # So few messages tell nothing of growth.
    assert set(figures["missed_bars"]) <= {"growth"}
