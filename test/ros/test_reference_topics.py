"""The tables of docs/reference/topics.md, and the security policies, match the running nodes."""

from __future__ import annotations

import sys
import time
from fnmatch import fnmatchcase
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from fakes import FakeDecoder
from outsider import spinning, state
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.cdr import DVS_EVENTS, IMAGE, RecordedMessage, image
from crossspec_ros.events.dvs import encode_dvs
from crossspec_ros.paths import share_dir
from crossspec_ros.recordings.bag import write_bag
from crossspec_ros.ros import dv_camera_node, usb_camera_node
from crossspec_ros.ros.captioner_node import CaptionerNode
from crossspec_ros.ros.player_node import PlayerNode
from crossspec_ros.ros.synchronizer_node import SynchronizerNode
from crossspec_ros.settings import NODES

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from security_policies import REMAPS, every_rule, quoted, rows, topics

APART = "/reference"
"""A namespace, because ROS still lists nodes of earlier tests for a while."""
OF_EVERY_NODE = ("/rosout", "/parameter_events")
SERVICES_OF_EVERY_NODE = ("rcl_interfaces/", "type_description_interfaces/")


def documented_topics(node):
    """Return (topic, direction, type, QoS). A topic with two possible types has two entries."""
    found = []
    for nodes, (names, direction, types, qos, _) in rows("Topics"):
        found += product(topics(names), [direction], quoted(types), [qos]) if node in nodes else []
    assert len(found) == len(set(found))
    return set(found)


def documented_services():
    """Return (service, type)."""
    return {
        (service.replace("NODE", node), kind)
        for _, (services, types, _) in rows("Services")
        for service, kind in zip(quoted(services), quoted(types), strict=True)
        for node in NODES
    }


def topics_of(node):
    """Yield (topic, direction, type, QoS), without the queue depth for endpoints that rclpy creates."""
    name = node.get_name(), node.get_namespace()
    published = node.get_publisher_names_and_types_by_node(*name)
    subscribed = node.get_subscriber_names_and_types_by_node(*name)
    for direction, kinds_of, endpoints, infos in (
        ("out", published, node.publishers, node.get_publishers_info_by_topic),
        ("in", subscribed, node.subscriptions, node.get_subscriptions_info_by_topic),
    ):
        depths = {endpoint.topic_name: f", {endpoint.qos_profile.depth}" for endpoint in endpoints}
        for topic, kinds in kinds_of:
            if topic not in OF_EVERY_NODE and "/_action/" not in topic:
                qos = next(info for info in infos(topic) if info.node_name == node.get_name()).qos_profile
                reliability = qos.reliability.name.lower().replace("_", " ")
                if qos.durability == DurabilityPolicy.TRANSIENT_LOCAL:
                    reliability += ", transient local"
                for kind in kinds:
                    yield (
                        topic.removeprefix(APART),
                        direction,
                        short(kind),
                        reliability + depths.get(topic, ""),
                    )


def services_of(node):
    """Yield (service, type)."""
    for service, (kind,) in node.get_service_names_and_types_by_node(node.get_name(), node.get_namespace()):
        action, _, part = service.partition("/_action/")
        # The service send_goal has the type of its action.
        if part in ("", "send_goal"):
            yield action.removeprefix(APART), short(kind).removesuffix("_SendGoal")


def short(kind):
    return kind.replace("/msg/", "/").replace("/srv/", "/")


def raw_recording(path):
    """Write a bag with the message types that the sample drive lacks."""
    with write_bag(path) as write:
        events = encode_dvs(EventBatch(*np.ones((4, 1), np.int64), 4, 3), 10**9)
        write("/events", RecordedMessage(10**9, "events", DVS_EVENTS, events))
        pixels = image(10**9, np.zeros((3, 4, 3), np.uint8), "rgb8")
        write("/image", RecordedMessage(10**9, "image", IMAGE, pixels))
    return path


@pytest.fixture(scope="module")
def created(tmp_path_factory):
    """Return the topics by node and the services, for every message type and without remappings."""
    packets = {"event_type": "event_camera_msgs/EventPacket", "image_transport": "raw"}
    compressed = {"event_type": "dvs_msgs/EventArray", "image_transport": "compressed"}
    raw = raw_recording(tmp_path_factory.mktemp("recording") / "bag")
    found, services = {node: set() for node in NODES}, set()
    for make, parameters in (
        (SynchronizerNode, packets),
        (SynchronizerNode, compressed),
        (lambda **options: CaptionerNode(lambda params: FakeDecoder(), **options), {}),
        (PlayerNode, {"path": str(share_dir() / "rosbags" / "synthetic_drive")}),
        (PlayerNode, {"path": str(raw)}),
        (dv_camera_node.make_node, {"source": "tcp://127.0.0.1:7"}),
        (partial(usb_camera_node.make_node, kinds_at_start=("events", "image")), {}),
    ):
        overrides = [Parameter(name, value=value) for name, value in parameters.items()]
        with spinning(
            lambda make=make, values=overrides: make(parameter_overrides=values, namespace=APART)
        ) as node:
            while isinstance(node, CaptionerNode) and state(node) != "active":
                time.sleep(0.01)
            found[node.get_name()] |= set(topics_of(node))
            services |= set(services_of(node))
    return found, services


@pytest.mark.parametrize("node", list(NODES))
def test_documented_topics_match_the_node(created, node):
    assert documented_topics(node) == created[0][node]


def test_every_node_has_a_table_of_topics():
    assert {node for nodes, _ in rows("Topics") for node in nodes} == set(NODES)


def test_documented_services_match_the_nodes(created):
    documented, services = documented_services(), created[1]
    assert documented - services == set()
    assert {
        (name, kind) for name, kind in services - documented if not kind.startswith(SERVICES_OF_EVERY_NODE)
    } == set()


@pytest.mark.parametrize("node", list(NODES))
def test_policies_allow_the_topics_and_services(created, node):
    """The policies include the endpoints that rclpy creates, which the page omits."""
    rules = every_rule()[node]

    def may(action, name):
        return any(fnmatchcase(name, one.replace("~", f"/{node}")) for one in rules[action])

    for name, direction, *_ in created[0][node] | {(name, "out") for name in OF_EVERY_NODE}:
        for topic in REMAPS.get(node, {}).get(name, [name]):
            assert may("publish" if direction == "out" else "subscribe", topic)
    served = {name for name, _ in created[1] if name.startswith(f"/{node}/")}
    assert served and all(may("reply", name) for name in served)
