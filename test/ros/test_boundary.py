"""No message ends a node, even if its content is hostile or a callback fails."""

from __future__ import annotations

import logging
import random

import pytest
from builtin_interfaces.msg import Time
from crossspec_msgs.msg import WindowClosed
from diagnostic_msgs.msg import DiagnosticStatus
from dvs_msgs.msg import EventArray
from event_camera_msgs.msg import EventPacket
from fakes import FakeDecoder
from outsider import RELIABLE, outsider, spinning, state, take_away
from rcl_interfaces.msg import Log
from rcl_interfaces.srv import ListParameters
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import String

from crossspec_ros.ros.captioner_node import CaptionerNode
from crossspec_ros.ros.node import GuardedNode
from crossspec_ros.ros.run import NodeError
from crossspec_ros.ros.synchronizer_node import SynchronizerNode
from crossspec_ros.windows.assembler import PATIENCE

BEST_EFFORT = QoSProfile(depth=1000, reliability=ReliabilityPolicy.BEST_EFFORT)
MEGABYTES = 3_000_000 * "x"
NOISE = random.Random(0)
FAR = [-(2**31), -1, 0, 2**31 - 1]


def stamped(message, sec, frame_id=""):
    message.header.stamp.sec, message.header.stamp.nanosec = sec, 999_999_999
    message.header.frame_id = frame_id
    return message


def images():
    for sec in FAR:
        yield stamped(Image(encoding="rgb8", width=2, height=2, step=6, data=bytes(12)), sec, MEGABYTES)
    yield Image(encoding=MEGABYTES, width=2, height=2, step=6, data=bytes(12))
    yield Image(encoding="rgb8", width=2**32 - 1, height=2**32 - 1, step=2**32 - 1, data=bytes(12))
    yield Image(encoding="rgb8", width=1, height=20_000, step=3, data=bytes(60_000))
    yield Image(encoding="rgb8")


def packets():
    for encoding in ("evt3", "mono", "libcaer", "libcaer_cmp", MEGABYTES, ""):
        for sec in FAR:
            packet = EventPacket(encoding=encoding, width=64, height=48, seq=2**64 - 1, time_base=2**64 - 1)
            packet.events = NOISE.randbytes(999)
            yield stamped(packet, sec)
    yield EventPacket(encoding="evt3", width=2**32 - 1, height=2**32 - 1, events=NOISE.randbytes(100))


def closed_windows():
    for sec in FAR:
        yield stamped(WindowClosed(frames=1, event_images=1), sec, MEGABYTES)
    yield WindowClosed(frames=2**32 - 1, event_images=2**32 - 1, events=2**64 - 1, lost_packets=2**64 - 1)


def storm(observer, topic, qos, messages):
    """Publish hostile messages on a topic."""
    hostile = list(messages)
    publisher = observer.node.create_publisher(type(hostile[0]), topic, qos)
    observer.wait(publisher.get_subscription_count)
    for message in hostile:
        publisher.publish(message)
    take_away(observer.node, publisher)


def value(observer, part, key):
    return observer.status(part)[2].get(key)


def test_failed_callbacks_are_logged_and_counted(capfd):
    """The node then handles the next message."""

    class Panic(BaseException):
        """Stands for a panic of a Rust library."""

    class Unprintable(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    received = []
    errors = {
        "half": RuntimeError("half a character: \ud800"),
        "unprintable": Unprintable(),
        "exception": RuntimeError("broken"),
        "panic": Panic("index out of bounds"),
        "end": NodeError("nothing goes any more"),
    }

    def fail(message):
        received.append(message.data)
        if message.data in errors:
            raise errors[message.data]

    def make():
        node = GuardedNode("fragile")
        node.create_subscription(String, "words", fail, RELIABLE)
        node.create_service(ListParameters, "serve", lambda request, response: 1 / 0)
        return node

    with outsider() as observer, spinning(make) as node:
        words = observer.node.create_publisher(String, "words", RELIABLE)
        client = observer.node.create_client(ListParameters, "serve")
        observer.wait(lambda: words.get_subscription_count() and client.service_is_ready())
        sent = ["half", "unprintable", "exception", "panic", "well"]
        for word in sent:
            words.publish(String(data=word))
        observer.wait(lambda: received == sent)
        answer = client.call_async(ListParameters.Request())
        observer.wait(answer.done)
        assert answer.result() == ListParameters.Response()
        assert node.boundary.failed_callbacks == 5
        node.create_timer(0.05, lambda: 1 / 0)
        observer.wait(lambda: node.boundary.failed_callbacks >= 8)
        assert node.boundary.last_failure == "a timer: ZeroDivisionError: division by zero"
    logged = capfd.readouterr().err
    # The node logs a callback once in five seconds.
    assert r"half a character: \ud800" in logged and logged.count("failed to handle a timer") == 1
    with spinning(make) as node, pytest.raises(NodeError):
        next(iter(node.subscriptions)).callback(String(data="end"))


def test_captioner_survives_hostile_messages():
    with outsider() as observer, spinning(lambda: CaptionerNode(load=lambda params: FakeDecoder())) as node:
        observer.wait(lambda: state(node) == "active")
        entities = (*node.subscriptions, *node.timers, *node.services)
        assert len(entities) > 15 and all(hasattr(entity.callback, "__wrapped__") for entity in entities)
        storm(observer, "synchronizer/frame", RELIABLE, images())
        storm(observer, "synchronizer/event_image", RELIABLE, images())
        storm(observer, "synchronizer/window_closed", RELIABLE, closed_windows())
        closed = observer.node.create_publisher(WindowClosed, "synchronizer/window_closed", RELIABLE)
        observer.wait(closed.get_subscription_count)
        # The captioner waits for announced images until `PATIENCE` more windows have closed.
        for sec in range(100, 101 + PATIENCE):
            valid = WindowClosed()
            valid.header.stamp.sec = sec
            closed.publish(valid)
        observer.wait(lambda: any(end == 100 * 10**9 for end, *_ in observer.reports()))
        # The diagnostics continue as well, and count the messages.
        observer.wait(lambda: int(value(observer, "captioner: captions", "unusable_messages") or 0) >= 4)
        assert observer.status("captioner: threads")[:2] == (DiagnosticStatus.OK, "OK")


def test_diagnostics_survive_any_simulated_time():
    """Any node may publish /clock."""
    parameters = [Parameter("use_sim_time", value=True), Parameter("autostart", value=False)]
    make = lambda: CaptionerNode(load=lambda params: FakeDecoder(), parameter_overrides=parameters)  # noqa: E731
    with outsider() as observer, spinning(make):
        clock = observer.node.create_publisher(Clock, "/clock", RELIABLE)
        observer.wait(lambda: clock.get_subscription_count() == 2)
        for sec, nanosec in ((-1, 0), (-(2**31), 2**32 - 1), (0, 0), (5, 0), (2**31 - 1, 0)):
            clock.publish(Clock(clock=Time(sec=sec, nanosec=nanosec)))
        stamps = lambda: {array.header.stamp.sec for array in observer["/diagnostics"]}  # noqa: E731
        observer.wait(lambda: 2**31 - 1 in stamps())


@pytest.mark.parametrize("kinds", [(EventPacket, Image), (EventArray, CompressedImage)])
def test_synchronizer_survives_hostile_messages(kinds):
    events, image = kinds
    parameters = [
        Parameter("frame_size", value=224),
        Parameter("event_type", value=f"{events.__module__.split('.')[0]}/{events.__name__}"),
        Parameter("image_transport", value="raw" if image is Image else "compressed"),
    ]
    compressed = [CompressedImage(format=MEGABYTES, data=NOISE.randbytes(999)), CompressedImage()]
    # Images are strays after events at such times, and are not decoded.
    fault = ("queue", "unusable_messages") if events is EventPacket else ("events", "impossible_sizes")
    arrays = [stamped(EventArray(width=2**32 - 1, height=2**32 - 1), sec) for sec in FAR]
    with outsider() as observer, spinning(lambda: SynchronizerNode(parameter_overrides=parameters)):
        storm(observer, "events", BEST_EFFORT, packets() if events is EventPacket else arrays)
        storm(observer, "image", BEST_EFFORT, images() if image is Image else compressed)
        observer.wait(lambda: int(value(observer, f"synchronizer: {fault[0]}", fault[1]) or 0) >= 1)
        publishers = [
            observer.node.create_publisher(kind, topic, BEST_EFFORT)
            for kind, topic in ((events, "events"), (image, "image"))
        ]
        observer.wait(lambda: all(publisher.get_subscription_count() for publisher in publishers))
        closed = observer["/synchronizer/window_closed"]

        def goes_on():
            # Repeated, because best effort may lose messages until both sides have discovered each other.
            for sec in (5, 8):
                for publisher in publishers:
                    publisher.publish(stamped(publisher.msg_type(), sec))
            return {message.header.stamp.sec for message in closed} >= {7, 8}

        observer.wait(goes_on)
        assert observer.status("synchronizer: threads")[:2] == (DiagnosticStatus.OK, "OK")


def test_python_logging_reaches_rosout_once():
    with (
        outsider() as observer,
        spinning(lambda: GuardedNode("talkative")),
        spinning(lambda: GuardedNode("quiet")),
    ):
        logs = []
        observer.node.create_subscription(Log, "/rosout", logs.append, RELIABLE)

        def warned():
            logging.getLogger("crossspec_ros.captioning.captioner").warning("a frame\nwas not prefilled")
            return [message for message in logs if "prefilled" in message.msg]

        observer.wait(warned)
        assert {(message.name, message.level) for message in warned()} == {("talkative", Log.WARN)}
        assert all("\n" not in message.msg for message in warned())
        logging.getLogger("crossspec_ros.engine.link").info("connected to the target")
        observer.wait(lambda: any("connected" in message.msg for message in logs))
    assert not logging.getLogger("crossspec_ros").handlers
