"""Who was started again, by the ids of DDS."""

from __future__ import annotations

from types import SimpleNamespace

from crossspec_ros.ros.peers import Peers


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
