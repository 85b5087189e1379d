"""Rows of `/diagnostics`, and duplicate nodes."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace

import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticStatus
from event_camera_msgs.msg import EventPacket
from fakes import FakeDecoder
from outsider import RELIABLE, outsider, spinning
from rcl_interfaces.msg import Log
from sensor_msgs.msg import Image
from test_synchronizer_node import packet

from crossspec_ros.captioning.health import Status
from crossspec_ros.captioning.remedies import RISING
from crossspec_ros.ros.captioner_node import CaptionerNode
from crossspec_ros.ros.diagnostics import Updater
from crossspec_ros.ros.duplicates import Duplicates
from crossspec_ros.ros.node import GuardedNode
from crossspec_ros.ros.synchronizer_node import SynchronizerNode

WARN, OK = DiagnosticStatus.WARN, DiagnosticStatus.OK


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr("crossspec_ros.ros.diagnostics.PERIOD_S", 0.1)


@pytest.fixture
def observer():
    with outsider() as observer:
        yield observer


@pytest.fixture
def spin(observer):
    """Spin a node until the end of the test."""
    with ExitStack() as stack:
        yield lambda make: stack.enter_context(spinning(make))


def updating(tasks):
    def make():
        node = GuardedNode("robot")
        node.updater = Updater(node)
        for name, task in tasks.items():
            node.updater.add(name, task)
        return node

    return make


def test_tasks_fill_rows_as_in_diagnostic_updater(observer, spin):
    def fill(status):
        status.summary(DiagnosticStatus.WARN, "too hot: cool it")
        status.add("celsius", 99)

    spin(updating({"fails": lambda status: 1 / 0, "motor": fill}))
    observer.wait(lambda: observer.status("robot: motor") == (WARN, "too hot: cool it", {"celsius": "99"}))
    observer.wait(lambda: observer.status("robot: callbacks")[0] == WARN)
    assert observer.status("robot: callbacks")[2]["last_failure"].endswith("division by zero")
    assert float(observer.status("robot: memory")[2]["resident_mb"]) > 10
    assert observer.status("robot: threads")[2].keys() == {"callbacks"}


def test_rows_of_the_nodes(observer, spin):
    spin(lambda: CaptionerNode(load=lambda params: FakeDecoder()))
    spin(SynchronizerNode)
    own = ["graph", "threads", "callbacks", "memory"]
    captions = ["captions", "latency", "acceptance", "inputs", "queue", "model", "link"]
    inputs = ["events", "images", "windows", "queue"]
    rows = {f"captioner: {part}" for part in (*own, *captions)}
    rows |= {f"synchronizer: {part}" for part in (*own, *inputs)}
    observer.wait(
        lambda: {status.name for array in observer["/diagnostics"] for status in array.status} == rows
    )
    threads = lambda node: observer.status(f"{node}: threads")[2].keys()  # noqa: E731
    observer.wait(lambda: threads("captioner") == {"callbacks", "captions"})
    assert threads("synchronizer") == {"callbacks", "windows"}


def test_lasting_fault_is_logged_once(observer, spin, capfd):
    task = lambda status: status.warn("heat", "too hot: cool it")  # noqa: E731
    node = spin(updating({}))
    node.updater.add("motor", task, log_after_s=0.3)
    observer.wait(lambda: len(observer["/diagnostics"]) > 9)
    assert capfd.readouterr().err.count("motor: too hot: cool it") == 1


def looked(publishers, nodes=(("sync", "/"),)):
    """Return the message about a graph with these publishers by topic."""
    graph = SimpleNamespace(
        subscriptions=[SimpleNamespace(topic_name=topic, msg_type=EventPacket) for topic in publishers],
        get_publishers_info_by_topic=lambda topic: [
            SimpleNamespace(node_name=name, node_namespace=namespace) for name, namespace in publishers[topic]
        ],
        get_fully_qualified_name=lambda: "/sync",
        get_node_names_and_namespaces=lambda: nodes,
    )
    duplicates, status = Duplicates(graph), Status("graph")
    status.begin(0.0)
    duplicates(status)
    assert duplicates.has_two_senders == ("publish" in status.message)
    return status.message


A, B = ("driver", "/"), ("driver", "/left")


@pytest.mark.parametrize(
    ("publishers", "message"),
    [
        ({"/events": [A]}, "OK"),
        ({"/events": [A], "/image": [B]}, "OK"),
        ({"/events": []}, "OK"),
        ({"/events": [A, B]}, "two nodes publish /events: /driver and /left/driver; stop one"),
        (
            {"/events": [B, A], "/image": [A, B]},
            "two nodes publish /events and /image: /driver and /left/driver; stop one",
        ),
        (
            {"/events": [A, A, A]},
            "3 nodes publish /events: /driver, /driver and /driver; stop one "
            "(a killed node leaves the graph after 20 s)",
        ),
    ],
)
def test_two_publishers_of_an_input_are_named(publishers, message):
    assert looked(publishers) == message


def test_duplicate_node_name_is_a_warning():
    assert looked({}, [("sync", "/"), ("sync", "/robot")]) == "OK"
    message = looked({}, [("sync", "/"), ("other", "/"), ("sync", "/")])
    assert message.startswith("another node has the name /sync: stop one, or change its name or namespace")


def logged(observer, text):
    """Return a function that returns the names of the loggers with this warning."""
    received = []
    observer.node.create_subscription(Log, "/rosout", received.append, RELIABLE)
    return lambda: {log.name for log in received if text in log.msg and log.level == Log.WARN}


def test_second_driver_is_in_log_and_diagnostics(observer, spin):
    """Field case 28. The counters that the second driver raises have no warnings of their own."""
    warned = logged(observer, "two nodes publish /events: /driver and /outsider; stop one")
    spin(SynchronizerNode)
    driver = spin(lambda: rclpy.create_node("driver"))
    publishers = [node.create_publisher(EventPacket, "events", 10) for node in (driver, observer.node)]
    driver.create_publisher(Image, "image", 10)
    observer.wait(lambda: observer.status("synchronizer: graph")[0] == WARN)
    observer.wait(lambda: warned() == {"synchronizer"})
    observer.wait(lambda: all(publisher.get_subscription_count() for publisher in publishers))
    lost = lambda: observer.status("synchronizer: events")[2].get("missing_packets", "0")  # noqa: E731
    for number in range(9):
        publishers[number % 2].publish(packet(10 * number, seq=20 * number))
    observer.wait(lambda: lost() != "0")
    message = observer.status("synchronizer: events")[1]
    assert not [sentence for sentence in RISING.values() if sentence in message]


def test_two_nodes_of_one_name_warn_both(observer, spin):
    """Field case 30. A node in another namespace is no duplicate."""
    warned = logged(observer, "another node has the name ")
    spin(SynchronizerNode)
    spin(lambda: SynchronizerNode(namespace="robot"))
    observer.wait(lambda: observer.status("robot/synchronizer: graph")[0] == OK)
    observer.wait(lambda: observer.status("synchronizer: graph")[0] == OK)
    spin(SynchronizerNode)

    def warnings():
        rows = [row for array in observer["/diagnostics"][-9:] for row in array.status]
        return [row.message for row in rows if row.name == "synchronizer: graph" and row.level == WARN]

    observer.wait(lambda: len(warnings()) > 2 and warned() == {"synchronizer"})
    assert all("another node has the name /synchronizer: " in message for message in warnings())
    assert observer.status("robot/synchronizer: graph")[0] == OK
