"""Who was started again, by the ids of DDS."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from crossspec_ros.ros.peers import Peers, publishers_of


def endpoint(name, process):
    return SimpleNamespace(node_name=name, node_namespace="/", endpoint_gid=bytes([process]) * 16)


def test_another_process_of_a_known_name_was_started_again():
    there = [endpoint("recorder", 1), endpoint("recorder", 2), endpoint("synchronizer", 3)]
    peers = Peers(lambda: there)
    # Two recorders are two nodes.
    assert peers.started_again() == [] == peers.started_again()
    there[2] = endpoint("synchronizer", 4)
    assert peers.started_again() == ["synchronizer"]
    there.append(endpoint("_NODE_NAME_UNKNOWN_", 5))
    assert peers.started_again() == []


def test_a_look_that_tells_nobody_forgets_nobody():
    there = [endpoint("recorder", 1)]
    looks = iter([there, None, there, [endpoint("recorder", 2)]])
    peers = Peers(lambda: next(looks))
    assert [peers.started_again() for _ in range(4)] == [[], [], [], ["recorder"]]


@pytest.mark.parametrize(
    "error",
    [
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
        OverflowError("Total nanoseconds value is too large"),
    ],
)
def test_an_announcement_that_rclpy_cannot_take_is_no_end(error):
    """A lifespan of negative seconds, which takes a packet made by hand, for DDS itself sends none."""

    def look(topic):
        raise error

    node = SimpleNamespace(get_publishers_info_by_topic=look)
    assert publishers_of(node, "/diagnostics") is None
    assert Peers(lambda: publishers_of(node, "/report")).started_again() == []
