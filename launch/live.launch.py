"""Captions a live camera: `ros2 launch crossspec_ros live.launch.py camera:=davis`."""

from __future__ import annotations

from launch.launch_description import LaunchDescription

from crossspec_ros.ros.launching import AS_CONFIGURED, CAPTIONS, OF_NODES, description

ARGUMENTS = {
    "camera": "one of davis, dvxplorer, prophesee, dv_network, topics",
    "source": f"of dv_network: tcp://HOST:PORT; {AS_CONFIGURED}",
    "frames": f"of dv_network: HOST:PORT of its frames; {AS_CONFIGURED}",
    "events": "of topics: where the events are; event_camera/events where none is given",
    "image": "where the images are; the camera's own or camera/image_raw where none is given",
    "image_transport": f"raw or compressed, what is published there; {AS_CONFIGURED}",
    **CAPTIONS,
    "config": "parameters of the nodes; config/live.yaml where none is given",
    **OF_NODES,
}


def generate_launch_description() -> LaunchDescription:
    """The nodes of the camera and its driver, each started again when it dies."""
    return description("live", ARGUMENTS, required=["camera"])
