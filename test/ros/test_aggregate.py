"""`/diagnostics_agg` is one tree of all our nodes; one of them speaks, and none beside an aggregator."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from fakes import FakeDecoder
from outsider import outsider, spinning
from rclpy.serialization import serialize_message
from rclpy.time import Time

from crossspec_ros.ros.aggregate import HARDWARE_ID, MOST_DEPTH, MOST_STATUSES, MOST_TEXT, Aggregate, tree
from crossspec_ros.ros.boundary import GuardedNode
from crossspec_ros.ros.captioner import CaptionerNode
from crossspec_ros.ros.diagnostics import Diagnostics, Reading
from crossspec_ros.ros.peers import MOST_TOLD, TopicWatch
from crossspec_ros.ros.synchronizer import SynchronizerNode

OK, WARN, ERROR, STALE = (
    DiagnosticStatus.OK,
    DiagnosticStatus.WARN,
    DiagnosticStatus.ERROR,
    DiagnosticStatus.STALE,
)


def status(name, level=OK, message="OK"):
    return DiagnosticStatus(name=name, level=level, message=message)


def rows(statuses):
    return {row.name: (row.level, row.message) for row in tree(statuses)}


@pytest.mark.parametrize("level", [OK, STALE, b"\xff"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_status_named_as_a_row_above_changes_nothing(level, is_first):
    sound, forged = status("captioner: latency", ERROR, "slow"), status("captioner", level, "sound")
    expected = rows([sound])
    assert rows([forged, sound] if is_first else [sound, forged]) == expected


def test_rows_above_have_the_worst_level_below_and_exactly_its_word():
    slow, deaf = "slow: use a faster machine", "in vain: publish it reliable"
    assert rows(
        [
            status("a/captioner: latency", WARN, slow),
            status("a/captioner: topics"),
            status("a/synchronizer: events"),
            status("b/captioner: topics", ERROR, deaf),
        ]
    ) == {
        "/crossspec": (ERROR, "Error"),
        "/crossspec/a": (WARN, "Warning"),
        "/crossspec/a/captioner": (WARN, "Warning"),
        "/crossspec/a/captioner/latency": (WARN, slow),
        "/crossspec/a/captioner/topics": (OK, "OK"),
        "/crossspec/a/synchronizer": (OK, "OK"),
        "/crossspec/a/synchronizer/events": (OK, "OK"),
        "/crossspec/b": (ERROR, "Error"),
        "/crossspec/b/captioner": (ERROR, "Error"),
        "/crossspec/b/captioner/topics": (ERROR, deaf),
    }


def test_a_node_that_has_gone_silent_is_an_error_above():
    told = rows([status("synchronizer: events", STALE, "nothing heard")])
    assert told["/crossspec"] == told["/crossspec/synchronizer"] == (ERROR, "Error")
    assert told["/crossspec/synchronizer/events"][0] == STALE


@pytest.fixture
def listen():
    """Starts nodes, each made by a function; returns the observer and the list of aggregated messages."""
    with ExitStack() as stack:

        def start(*nodes):
            observer = stack.enter_context(outsider())
            heard = []
            observer.node.create_subscription(DiagnosticArray, "/diagnostics_agg", heard.append, 10)
            return observer, heard, [stack.enter_context(spinning(make)) for make in nodes]

        yield start


def names(message):
    return {row.name for row in message.status}


def in_namespace(namespace):
    arguments = ["--ros-args", "-r", f"__ns:={namespace}"]
    arguments += [
        word
        for topic in ("frame", "event_image", "window_closed")
        for word in ("-r", f"{topic}:=synchronizer/{topic}")
    ]
    return (
        lambda: SynchronizerNode(cli_args=arguments),
        lambda: CaptionerNode(load=lambda params: FakeDecoder(), cli_args=arguments),
    )


def test_two_instances_are_one_tree_in_every_message(listen):
    observer, heard, _ = listen(*in_namespace("/front"), *in_namespace("/rear"))
    parts = {
        f"/crossspec/{robot}/{node}/topics"
        for robot in ("front", "rear")
        for node in ("captioner", "synchronizer")
    }
    observer.wait(lambda: heard and parts <= names(heard[-1]))
    whole = len(heard)
    observer.wait(lambda: len(heard) >= whole + 3)
    # The monitor would drop what one of them lacks.
    assert all(parts <= names(message) for message in heard[whole - 1 :])
    assert len({tuple(sorted(names(message))) for message in heard[-2:]}) == 1
    (root,) = [row for row in heard[-1].status if row.name == "/crossspec"]
    assert root.message in ("OK", "Warning", "Error")
    flat = {told.name for array in observer["/diagnostics"] for told in array.status}
    assert {"front/captioner: memory", "rear/synchronizer: windows"} <= flat


def bare(name):
    """A node that has nothing but diagnostics."""

    def make():
        node = GuardedNode(name)
        node.diagnostics = Diagnostics(node, lambda: {"part": Reading({"things": 1})}, TopicWatch(node, ()))
        return node

    return make


def test_a_fault_that_lasts_is_logged_once(listen, monkeypatch, capfd):
    monkeypatch.setattr("crossspec_ros.ros.diagnostics.LASTING_S", 1.5)
    told = ["", "it stands still", "it stands still", "it stands still", "it stands still", "it stands still"]

    def make():
        node = GuardedNode("alpha")
        read = lambda: {"part": Reading(warnings={"a": told.pop()} if len(told) > 1 else {})}  # noqa: E731
        node.diagnostics = Diagnostics(node, read, TopicWatch(node, ()))
        return node

    observer, _, _ = listen(make)
    observer.wait(lambda: len(told) == 1)
    assert capfd.readouterr().err.count("alpha: part: it stands still") == 1


def test_another_speaks_when_the_first_is_gone_and_says_so(listen, monkeypatch):
    monkeypatch.setattr("crossspec_ros.ros.aggregate.STALE_S", 2.5)
    observer, heard, (first, _) = listen(bare("alpha"), bare("beta"))
    observer.wait(lambda: heard and "/crossspec/beta/part" in names(heard[-1]))
    first.diagnostics._timer.cancel()

    def is_told():
        gone = [row for row in heard[-1].status if row.name == "/crossspec/alpha/part"]
        return any(row.level == STALE and "check that the node still runs" in row.message for row in gone)

    observer.wait(is_told)


def test_nobody_speaks_where_somebody_else_does(listen):
    observer, heard, _ = listen(bare("alpha"))
    observer.wait(lambda: heard)
    aggregator = observer.node.create_publisher(DiagnosticArray, "/diagnostics_agg", 1)
    speaking = observer.node.create_timer(0.2, lambda: aggregator.publish(DiagnosticArray()))
    observer.wait(aggregator.get_subscription_count)

    def silence():
        """For three of the node's publications, after the one that may be under way."""
        told = len(observer["/diagnostics"])
        observer.wait(lambda: len(observer["/diagnostics"]) >= told + 2)
        heard.clear()
        observer.wait(lambda: len(observer["/diagnostics"]) >= told + 5)
        return not any(message.header.frame_id for message in heard)

    assert silence()
    speaking.cancel()
    observer.wait(lambda: any(message.header.frame_id == "alpha" for message in heard))


def test_a_node_name_that_is_no_text_silences_no_diagnostics(listen, monkeypatch):
    """A name comes with discovery and not with a message; rclpy raises this for all publishers then."""

    def undecodable(node, topic):
        raise UnicodeDecodeError("utf-8", b"bad\xff", 3, 4, "invalid start byte")

    monkeypatch.setattr("rclpy.node.Node.get_publishers_info_by_topic", undecodable)
    observer, heard, _ = listen(SynchronizerNode)
    told = "who publishes /events cannot be told"
    observer.wait(lambda: told in observer.status("synchronizer: topics")[1])
    assert observer.status("synchronizer: callbacks")[2]["failed_callbacks"] == "0"
    observer.wait(lambda: heard and "/crossspec/synchronizer/topics" in names(heard[-1]))


def test_parts_whose_health_cannot_be_read_leave_the_others_to_be_told(listen, monkeypatch):
    monkeypatch.setattr(SynchronizerNode, "_read_counters", lambda node: 1 / 0)
    observer, _, _ = listen(SynchronizerNode)
    observer.wait(lambda: observer.status("synchronizer: topics")[1])
    observer.wait(lambda: int(observer.status("synchronizer: callbacks")[2]["failed_callbacks"]) > 1)
    assert "division by zero" in observer.status("synchronizer: callbacks")[2]["last_failure"]


def test_a_crowd_of_publishers_is_told_in_few_words(listen, monkeypatch):
    kind, name = 9999 * "\x1b", "y" + 9999 * "\x1b"
    stranger = SimpleNamespace(node_namespace="/", node_name=name, topic_type=kind)
    monkeypatch.setattr("rclpy.node.Node.get_publishers_info_by_topic", lambda node, topic: [stranger] * 99)
    observer, _, _ = listen(SynchronizerNode)
    observer.wait(lambda: observer.status("synchronizer: topics")[2].get("/image", "").startswith("99, "))
    _, message, values = observer.status("synchronizer: topics")
    assert values["/image"].count(" /y") == message.count("on /image, where") == MOST_TOLD
    assert len(message) + sum(map(len, values.values())) < MOST_TEXT and "\x1b" not in message


def test_one_that_is_discovered_and_goes_first_but_is_mute_silences_nobody(listen):
    observer, heard, (_, first) = listen(bare("beta"), bare("alpha"))
    observer.wait(lambda: any(message.header.frame_id == "alpha" for message in heard))
    # Its diagnostics go on.
    first.diagnostics._aggregate.publish = lambda: None
    observer.wait(lambda: heard[-1].header.frame_id == "beta")
    spoken = len(heard)
    observer.wait(lambda: len(heard) > spoken + 2)
    (row,) = [row for row in heard[-1].status if row.name == "/crossspec/alpha/part"]
    assert row.level == OK


@pytest.fixture
def alone():
    """The tree of a node `alpha` beside one named `outsider`, without ROS; and what it has published."""
    told = []
    publisher = SimpleNamespace(publish=told.append)
    endpoints = [SimpleNamespace(node_namespace="/", node_name=name) for name in ("outsider", "alpha")]
    node = SimpleNamespace(
        get_fully_qualified_name=lambda: "/alpha",
        create_subscription=lambda *options: None,
        create_publisher=lambda *options: publisher,
        get_publishers_info_by_topic=lambda topic: endpoints,
        get_clock=lambda: SimpleNamespace(now=lambda: Time()),
    )
    aggregate = Aggregate(node)
    for _ in range(3):
        aggregate.publish()
    return aggregate, told


def ours(name, text=""):
    return DiagnosticStatus(name=name, message=text, hardware_id=HARDWARE_ID)


def test_statuses_of_other_nodes_and_of_strangers_in_our_name_are_left_out(alone):
    aggregate, told = alone
    # ROS knows no node of the second name.
    aggregate._take(
        DiagnosticArray(status=[status("outsider: voltage"), ours("aaa: part"), ours("alpha: part")])
    )
    aggregate.publish()
    assert {row.name for row in told[-1].status} == {
        "/crossspec",
        "/crossspec/alpha",
        "/crossspec/alpha/part",
    }


@pytest.mark.parametrize("text", ["", 900 * "x"], ids=["many", "long"])
def test_a_node_that_says_very_much_pushes_no_other_out(alone, text):
    aggregate, told = alone
    mine = [ours(f"alpha: part {i}", 300 * "y") for i in range(12)]
    aggregate._take(DiagnosticArray(status=mine))
    for i in range(5):
        flood = [ours(f"outsider: {i}/{j}", text) for j in range(MOST_STATUSES)]
        aggregate._take(DiagnosticArray(status=flood))
    aggregate.publish()
    shown = {row.name for row in told[-1].status}
    assert {f"/crossspec/alpha/part {i}" for i in range(12)} <= shown
    assert f"/crossspec/outsider/4/{MOST_STATUSES - 1}" in shown


@pytest.mark.parametrize(("names", "parts"), [(5, 52), (10, 30), (5, MOST_STATUSES), (MOST_STATUSES, 1)])
def test_those_that_speak_first_keep_no_node_out(alone, names, parts):
    """But where all say little, none but the node's own is taken in place of another."""
    aggregate, told = alone
    crowd = [f"outsider{i}" for i in range(names)]
    aggregate._discovered.update(["beta", *crowd])
    ours_of = ("alpha", "beta") if parts > 1 else ("alpha",)
    for _ in range(3):
        for name in crowd:
            aggregate._take(DiagnosticArray(status=[ours(f"{name}: {i}") for i in range(parts)]))
        for name in ours_of:
            mine = [ours(f"{name}: part {i}", 300 * "y") for i in range(12)]
            aggregate._take(DiagnosticArray(status=mine))
    aggregate.publish()
    shown = {row.name for row in told[-1].status}
    assert {f"/crossspec/{name}/part {i}" for name in ours_of for i in range(12)} <= shown


def test_a_robot_in_a_deep_namespace_is_in_the_tree(alone):
    aggregate, told = alone
    name = "site/building/floor/fleet/robot/payload/front/synchronizer"
    aggregate._discovered.add(name)
    aggregate._take(DiagnosticArray(status=[ours(f"{name}: callbacks")]))
    aggregate.publish()
    assert f"/crossspec/{name}/callbacks" in {row.name for row in told[-1].status}


def test_what_is_published_of_others_is_bounded_in_all(alone):
    aggregate, told = alone
    deep = [ours(f"outsider: {i}" + 28 * f"/{i}") for i in range(2048)]
    wide = [ours(f"outsider: {i}" + MOST_DEPTH * f"/{i}") for i in range(2048)]
    long = [ours(f"outsider: {i}" + MOST_DEPTH * f"/{30 * 'n'}", 1000 * "x") for i in range(2048)]
    many = [ours(f"outsider: {i}") for i in range(64)]
    for status in many:
        status.values = [KeyValue() for _ in range(1000)]
    parted = [ours(f"outsider: {i}" + 60 * ": a") for i in range(2048)]
    for hostile in (deep, wide, long, many, parted):
        aggregate._take(DiagnosticArray(status=hostile))
        for _ in range(3):
            aggregate.publish()
        assert len(told[-1].status) <= MOST_STATUSES * (MOST_DEPTH + 2) + 1
        assert len(serialize_message(told[-1])) < 1_000_000, len(told[-1].status)


def test_names_and_texts_of_strangers_in_our_name_are_bounded(listen, monkeypatch):
    observer, heard, (node,) = listen(bare("alpha"))

    publisher = observer.node.create_publisher(DiagnosticArray, "/diagnostics", 10)
    observer.wait(publisher.get_subscription_count)
    long = ours("outsider: long")
    long.message = MOST_TEXT * "x"
    observer.wait(lambda: "outsider" in node.diagnostics._aggregate._discovered)
    hostile = [ours("outsider: " + 20_000 * "a/"), ours("outsider: " + 300 * "n"), long]
    publisher.publish(DiagnosticArray(status=hostile))
    many = [ours(f"outsider: part{i}") for i in range(MOST_STATUSES + 9)]
    publisher.publish(DiagnosticArray(status=many[:200]))
    publisher.publish(DiagnosticArray(status=many[200:]))
    observer.wait(lambda: heard and len(heard[-1].status) > 0.9 * MOST_STATUSES)
    shown = {name.split("/")[3] for name in names(heard[-1]) if name.startswith("/crossspec/outsider/")}
    assert f"part{MOST_STATUSES + 8}" in shown and not shown & {"a", 300 * "n", "long", "part0"}
    aggregate = node.diagnostics._aggregate
    assert len(aggregate._heard) <= MOST_STATUSES
    # What nobody renews is told as stale for a while, and then no more.
    monkeypatch.setattr("crossspec_ros.ros.aggregate.FORGET_S", 1.5)
    observer.wait(lambda: {name.split("/")[2] for name in names(heard[-1]) - {"/crossspec"}} == {"alpha"})
