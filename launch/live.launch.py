"""Caption a live camera: `ros2 launch crossspec_ros live.launch.py camera:=davis`."""

from __future__ import annotations

import os

from ament_index_python.packages import get_packages_with_prefixes
from launch.launch_description import LaunchDescription
from launch_ros.actions import Node

from crossspec_ros.errors import InputError
from crossspec_ros.parameter import nearest
from crossspec_ros.ros.launch_actions import Guest, arguments, launch_description
from crossspec_ros.settings import CameraSettings, CaptionerSettings, SynchronizerSettings, UsbCameraSettings

EVENTS = "event_camera/events"
DRIVERS = {"davis": "libcaer_driver", "dvxplorer": "libcaer_driver", "prophesee": "metavision_driver"}
CAMERAS = (*DRIVERS, "usb", "dv_network", "topics")
OPTIONS = {"dv_network": ("source", "frames_source"), "usb": ("serial",)}
"""Arguments of a single camera."""
ARGUMENTS = {
    "camera": (None, f"Camera: one of {', '.join(CAMERAS)}. topics starts no driver."),
    "events": (EVENTS, "Topic of the events, for camera:=topics."),
    "image": ("", "Topic of the images. Empty: libcaer_driver's for a DAVIS, or else camera/image_raw."),
    **arguments("live.yaml", "true", CameraSettings, UsbCameraSettings, CaptionerSettings),
}


def nodes(guest: Guest) -> list[Node]:
    """Return the synchronizer, the captioner and the camera's node."""
    camera = guest["camera"]
    if camera not in CAMERAS:
        raise InputError(f"there is no camera '{camera}': {nearest(camera, CAMERAS)}")
    if camera != "topics" and guest["events"] != EVENTS:
        raise InputError(f"camera:={camera} publishes {EVENTS}: set camera:=topics to name another topic")
    if camera == "dv_network" and not guest["source"]:
        raise InputError("camera:=dv_network has no source: set source:=tcp://HOST:PORT")
    for other, names in OPTIONS.items():
        if camera != other and any(guest[name] for name in names):
            raise InputError(f"camera:={camera} has no {' and '.join(names)}: set camera:={other}")
    driver = DRIVERS.get(camera, "")
    is_installed = driver in get_packages_with_prefixes()
    if camera == "prophesee" and not is_installed:
        package = f"ros-{os.environ.get('ROS_DISTRO', '$ROS_DISTRO')}-metavision-driver"
        raise InputError(f"{driver} is not installed: sudo apt install {package}, or set camera:=usb")
    # The topic image_raw of other drivers may show rendered events.
    is_davis = is_installed and camera == "davis"
    image = guest["image"] or ("event_camera/image_raw" if is_davis else "camera/image_raw")
    started = [
        guest.node(SynchronizerSettings, [("events", guest["events"]), ("image", image)]),
        guest.node(CaptionerSettings),
    ]
    if is_installed:
        # Twice the default rate of messages, so that event images do not wait long for a message.
        values: dict[str, object] = {"event_message_time_threshold": 0.002}
        if driver == "libcaer_driver":
            values["device_type"] = camera
        options = guest.options("event_camera")
        started.append(Node(package=driver, executable="driver_node", parameters=[values], **options))
    elif camera != "topics":
        started.append(guest.node(UsbCameraSettings if camera == "usb" else CameraSettings))
    return started


def generate_launch_description() -> LaunchDescription:
    """Return the arguments and the nodes."""
    return launch_description(ARGUMENTS, nodes)
