"""No message ends a node, whatever it holds and whatever a callback makes of it."""

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
    """Publish all of these on a topic."""
    hostile = list(messages)
    publisher = observer.node.create_publisher(type(hostile[0]), topic, qos)
    observer.wait(publisher.get_subscription_count)
    for message in hostile:
        publisher.publish(message)
    take_away(observer.node, publisher)


def value(observer, part, key):
    return observer.status(part)[2].get(key)


def test_what_a_callback_raises_is_logged_counted_and_told_and_the_next_message_taken(capfd):
    class Panic(BaseException):
        """As libraries in Rust raise it."""

    class Unsayable(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    taken = []
    errors = {
        "half": RuntimeError("half a character: \ud800"),
        "unsayable": Unsayable(),
        "exception": RuntimeError("broken"),
        "panic": Panic("index out of bounds"),
        "end": NodeError("nothing goes any more"),
    }

    def take(message):
        taken.append(message.data)
        if message.data in errors:
            raise errors[message.data]

    def make():
        node = GuardedNode("fragile")
        node.create_subscription(String, "words", take, RELIABLE)
        node.create_service(ListParameters, "serve", lambda request, response: 1 / 0)
        return node

    with outsider() as observer, spinning(make) as node:
        words = observer.node.create_publisher(String, "words", RELIABLE)
        client = observer.node.create_client(ListParameters, "serve")
        observer.wait(lambda: words.get_subscription_count() and client.service_is_ready())
        said = ["half", "unsayable", "exception", "panic", "well"]
        for word in said:
            words.publish(String(data=word))
        observer.wait(lambda: taken == said)
        answer = client.call_async(ListParameters.Request())
        observer.wait(answer.done)
        assert answer.result() == ListParameters.Response()
        assert node.boundary.failed_callbacks == 5
        node.create_timer(0.05, lambda: 1 / 0)
        observer.wait(lambda: node.boundary.failed_callbacks >= 8)
        assert node.boundary.last_failure == "a timer: ZeroDivisionError: division by zero"
    logged = capfd.readouterr().err
    # Of each callback one in five seconds is logged.
    assert r"half a character: \ud800" in logged and logged.count("a timer could not be handled") == 1
    with spinning(make) as node, pytest.raises(NodeError):
        next(iter(node.subscriptions)).callback(String(data="end"))


def test_a_captioner_goes_on_captioning_after_every_hostile_message():
    with outsider() as observer, spinning(lambda: CaptionerNode(load=lambda params: FakeDecoder())) as node:
        observer.wait(lambda: state(node) == "active")
        entities = (*node.subscriptions, *node.timers, *node.services)
        assert len(entities) > 15 and all(hasattr(entity.callback, "__wrapped__") for entity in entities)
        storm(observer, "synchronizer/frame", RELIABLE, images())
        storm(observer, "synchronizer/event_image", RELIABLE, images())
        storm(observer, "synchronizer/window_closed", RELIABLE, closed_windows())
        closed = observer.node.create_publisher(WindowClosed, "synchronizer/window_closed", RELIABLE)
        observer.wait(closed.get_subscription_count)
        # The images that were announced are waited for while so many windows close.
        for sec in range(100, 101 + PATIENCE):
            whole = WindowClosed()
            whole.header.stamp.sec = sec
            closed.publish(whole)
        observer.wait(lambda: any(end == 100 * 10**9 for end, *_ in observer.reports()))
        # The diagnostics live too, and say what was wrong.
        observer.wait(lambda: int(value(observer, "captioner: captions", "unusable_messages") or 0) >= 4)
        assert observer.status("captioner: threads")[:2] == (DiagnosticStatus.OK, "OK")


def test_no_time_ends_the_diagnostics():
    """That of a simulation, which anybody may publish."""
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
def test_a_synchronizer_goes_on_closing_windows_after_every_hostile_message(kinds):
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
            # Again and again, for best effort may lose what is sent before both sides know each other.
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
        heard = []
        observer.node.create_subscription(Log, "/rosout", heard.append, RELIABLE)

        def warned():
            logging.getLogger("crossspec_ros.captioning.captioner").warning("a frame\nwas not read ahead")
            return [message for message in heard if "read ahead" in message.msg]

        observer.wait(warned)
        assert {(message.name, message.level) for message in warned()} == {("talkative", Log.WARN)}
        assert all("\n" not in message.msg for message in warned())
        logging.getLogger("crossspec_ros.engine.link").info("connected to the target")
        observer.wait(lambda: any("connected" in message.msg for message in heard))
    assert not logging.getLogger("crossspec_ros").handlers
