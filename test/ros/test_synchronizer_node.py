"""The synchronizer on its topics: windows are complete, and invalid messages are counted."""

from __future__ import annotations

import time
from contextlib import ExitStack

import cv2
import numpy as np
import pytest
from crossspec_lab.evt3_encoder import encode_evt3
from event_camera_msgs.msg import EventPacket
from outsider import outsider, spinning, to_ns
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from refusals import refused
from sensor_msgs.msg import CompressedImage, Image
from stand_ins import write_models

from crossspec_ros.captioning.health import HOLD_S
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.stream import PacketStream
from crossspec_ros.ros.messages import closed_window, image_message, rgb8_array, to_time
from crossspec_ros.ros.synchronizer_node import SynchronizerNode

SECOND = 10**9
WIDTH, HEIGHT = 32, 24
TRANSIENT_LOCAL = DurabilityPolicy.TRANSIENT_LOCAL
TYPES = [
    Parameter("event_type", value="event_camera_msgs/EventPacket"),
    Parameter("image_transport", value="raw"),
]
"""Parameters with which the node subscribes before there are publishers."""
DRIVER = QoSProfile(depth=1000, reliability=ReliabilityPolicy.BEST_EFFORT)


def events(start_ms, stop_ms, width=WIDTH):
    """Return an event per millisecond."""
    t = np.arange(start_ms, stop_ms, dtype=np.int64) * 1000
    n = len(t)
    x, p = (np.arange(n) % width).astype(np.uint16), (np.arange(n) % 2).astype(np.uint8)
    return EventBatch(t, x, np.zeros(n, np.uint16), p, width, HEIGHT)


def packet(start_ms, seq=0, width=WIDTH, encoding="evt3", data=None):
    """Return a packet of 10 ms. The sensor's clock is 5 s behind ROS time."""
    message = EventPacket(width=width, height=HEIGHT, seq=seq, encoding=encoding)
    message.header.stamp = to_time(5 * SECOND + start_ms * 1_000_000)
    message.events = encode_evt3(events(start_ms, start_ms + 10)) if data is None else data
    return message


def frame(ms, value=7, width=WIDTH):
    pixels = np.full((HEIGHT, width, 3), value, np.uint8)
    return image_message(pixels, 5 * SECOND + ms * 1_000_000, "camera")


class Stage:
    def __init__(self, observer, node, event_type, image_type, topic):
        self.observer, self.node = observer, node
        self.events = observer.node.create_publisher(event_type, "events", DRIVER)
        self.image = observer.node.create_publisher(image_type, topic, DRIVER)
        observer.wait(lambda: self.events.get_subscription_count() and self.image.get_subscription_count())
        observer.wait(lambda: node.count_subscribers("/synchronizer/window_closed"))
        # Best-effort messages are lost until the subscription has discovered their publisher.
        inputs = [one for one in node.subscriptions if one.topic_name in ("/events", f"/{topic}")]
        observer.wait(lambda: all(one.get_publisher_count() for one in inputs))

    def closed(self):
        """Return (end in s, frames, event images, events, lost packets) of each window."""
        messages = self.observer["/synchronizer/window_closed"]
        return [(to_ns(m.header.stamp) / SECOND, *closed_window(m)[1:5]) for m in messages]

    def problem(self, key):
        arrays = self.observer["/diagnostics"][-1:]
        values = [v for array in arrays for status in array.status for v in status.values]
        return next((int(v.value) for v in values if v.key == key), 0)


@pytest.fixture
def stage():
    with ExitStack() as stack:

        def start(events=EventPacket, images=Image, topic="image", **parameters):
            overrides = [Parameter(name, value=value) for name, value in parameters.items()]
            observer = stack.enter_context(outsider())
            node = stack.enter_context(spinning(lambda: SynchronizerNode(parameter_overrides=overrides)))
            return Stage(observer, node, events, images, topic)

        yield start


def test_windows_have_exact_stamps_and_counts(stage):
    stage = stage(frame_size=12, event_image_size=0, max_lateness_s=10.0)
    for ms in range(0, 2010, 10):
        stage.events.publish(packet(ms, ms // 10))
        if ms % 50 == 0:
            stage.image.publish(frame(ms))
        time.sleep(0.001)  # ten times as fast as a camera; faster, best effort would drop messages
    stage.observer.wait(lambda: len(stage.closed()) == 2)
    assert stage.closed() == [(6, 8, 5, 1000, 0), (7, 8, 5, 1000, 0)]
    stage.observer.wait(lambda: len(stage.observer["/synchronizer/frame"]) >= 16)
    frames, images = stage.observer["/synchronizer/frame"], stage.observer["/synchronizer/event_image"]
    starts = [0, 150, 250, 400, 500, 650, 750, 900]
    assert [to_ns(m.header.stamp) // 1_000_000 - 5000 for m in frames[:8]] == starts
    assert rgb8_array(frames[0]).shape == (12, 16, 3) and int(rgb8_array(frames[0]).max()) == 7
    assert rgb8_array(images[0]).shape == (HEIGHT, WIDTH, 3) and images[0].header.frame_id == ""
    # The stamp of an image is the end of its slice.
    stamps = [to_ns(m.header.stamp) - 5 * SECOND for m in images[:5]]
    assert stamps == [200_000_000 * i for i in range(1, 6)]


def test_damaged_sequence_number_is_no_gap():
    stream = PacketStream()
    for seq in (5, 1 << 63, 6, 9):
        stream.decode(packet(0, seq))
    assert stream.take_lost_packets() == 2


def test_invalid_messages_are_counted(stage):
    stage = stage()
    stage.events.publish(packet(0, 0))
    stage.events.publish(packet(10, 1, encoding="mystery"))
    stage.events.publish(packet(20, 2))
    stage.events.publish(packet(30, 7))  # four packets before it are missing
    stage.events.publish(packet(40, 8, data=b"\xff" * 7))
    nonsense = frame(10)
    nonsense.encoding = "nonsense"
    stage.image.publish(nonsense)
    stage.image.publish(frame(20))
    stage.events.publish(packet(1000, 9))
    stage.image.publish(frame(1000))
    stage.observer.wait(lambda: len(stage.closed()) == 1)
    assert stage.closed() == [(6, 1, 5, 30, 4)]
    stage.observer.wait(lambda: stage.problem("unusable_messages") == 2)
    assert stage.problem("missing_packets") == 4


def test_parameters_are_checked_and_described():
    def node(name, value):
        return spinning(lambda: SynchronizerNode(parameter_overrides=[Parameter(name, value=value)]))

    with refused("queue-size-zero"), node("queue_size", 0):
        pass
    with node("max_lateness_s", 1) as good:
        assert good.get_parameter("max_lateness_s").value == 1.0
        descriptor = good.describe_parameter("max_lateness_s")
        assert descriptor.floating_point_range[0].to_value == 10.0
        refused_change = good.set_parameters([Parameter("max_lateness_s", value=2.0)])[0]
        assert not refused_change.successful and "restart the node" in refused_change.reason


def test_unknown_parameter_is_a_warning(capfd):
    overrides = [Parameter("robot_name", value="r2")]
    with spinning(lambda: SynchronizerNode(parameter_overrides=overrides)) as node:
        assert not node.has_parameter("robot_name")
    assert "synchronizer has no parameter robot_name, and ignores it" in capfd.readouterr().err


def overridden(entity, **policies):
    values = {f"qos_overrides./{entity}.{name}": value for name, value in policies.items()}
    return [Parameter(name, value=value) for name, value in values.items()]


def test_qos_overrides_change_one_topic_only():
    overrides = overridden("events.subscription", reliability="reliable", depth=7)
    overrides += overridden("synchronizer/frame.publisher", durability="transient_local") + TYPES
    with spinning(lambda: SynchronizerNode(parameter_overrides=overrides)) as node:
        profiles = {topic.topic_name: topic.qos_profile for topic in node.subscriptions}
        events, image = profiles["/events"], profiles["/image"]
        assert (events.reliability, events.depth) == (ReliabilityPolicy.RELIABLE, 7)
        assert (image.reliability, image.depth) == (ReliabilityPolicy.BEST_EFFORT, 10)
        durable = {p.topic_name for p in node.publishers if p.qos_profile.durability == TRANSIENT_LOCAL}
        assert "/synchronizer/frame" in durable and "/synchronizer/event_image" not in durable


@pytest.mark.parametrize("policies", [{"reliability": "mostly"}, {"colour": "red"}, {"depth": "many"}])
def test_invalid_qos_overrides_are_refused(policies):
    overrides = overridden("events.subscription", **policies) + TYPES
    with (
        refused("qos-overrides-misfit", library_text=True),
        spinning(lambda: SynchronizerNode(parameter_overrides=overrides)),
    ):
        pass


def test_free_memory_is_released_repeatedly(stage, monkeypatch):
    released = []
    monkeypatch.setattr("crossspec_ros.ros.diagnostics.PERIOD_S", 0.05)
    monkeypatch.setattr("crossspec_ros.ros.diagnostics.GIVE_BACK_EVERY", 2)
    monkeypatch.setattr("crossspec_ros.ros.diagnostics.give_back", lambda: released.append(1))
    stage().observer.wait(lambda: len(released) > 2)


def test_compressed_images_are_found_below_the_topic(stage):
    """image_transport publishes compressed images below the name of the raw ones."""
    stage = stage(images=CompressedImage, topic="image/compressed", frame_size=0, event_image_size=0)
    png = cv2.imencode(".png", np.full((HEIGHT, WIDTH, 3), 9, np.uint8))[1].tobytes()
    message = CompressedImage(header=frame(10).header, format="png", data=png)
    stage.image.publish(message)
    stage.events.publish(packet(0))
    stage.observer.wait(lambda: stage.observer["/synchronizer/frame"])
    assert int(rgb8_array(stage.observer["/synchronizer/frame"][0]).max()) == 9


def test_images_have_the_sizes_of_the_models(stage, tmp_path):
    write_models(tmp_path, frame_size=48, event_image_size=12)
    stage = stage(**{"models.folder": str(tmp_path)})
    stage.image.publish(frame(10))
    stage.events.publish(packet(0))
    stage.events.publish(packet(450))
    stage.observer.wait(lambda: stage.observer["/synchronizer/event_image"])
    kinds = ("frame", "event_image")
    assert [stage.observer[f"/synchronizer/{kind}"][0].height for kind in kinds] == [48, 12]


def test_missing_publisher_warning_names_the_topic(capfd):
    """The warning ends when a publisher appears. A topic of an unsupported type is a warning as well."""
    with outsider() as observer, spinning(SynchronizerNode):
        observer.node.create_publisher(CompressedImage, "events", DRIVER)

        def message(part):
            return observer.status(f"synchronizer: {part}")[1]

        observer.wait(lambda: "unsupported type sensor_msgs/CompressedImage" in message("events"))
        assert message("images").startswith("/image has no publisher: start the driver, or remap image")
        before = len(observer["/diagnostics"])
        observer.node.create_publisher(Image, "image", DRIVER)
        observer.wait(lambda: message("images") == "OK")
        assert len(observer["/diagnostics"]) - before < HOLD_S


def test_frame_id_is_cut(stage):
    stage = stage(frame_size=0, event_image_size=0)
    message = frame(0)
    message.header.frame_id = 1_000_000 * "x"
    stage.image.publish(message)
    stage.events.publish(packet(0))
    stage.observer.wait(lambda: stage.observer["/synchronizer/frame"])
    assert len(stage.observer["/synchronizer/frame"][0].header.frame_id) == 256
