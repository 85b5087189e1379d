"""Captions a recording: `ros2 launch crossspec_ros dsec_replay.launch.py sequence:=PATH`."""

from __future__ import annotations

from launch.launch_description import LaunchDescription

from crossspec_ros.ros.launching import AS_CONFIGURED, CAPTIONS, OF_NODES, description

ARGUMENTS = {
    "sequence": "a recording of any format; the sample drive where none is given",
    "events_topic": f"the bag's topic of events to play; {AS_CONFIGURED}",
    "image_topic": f"the bag's topic of images to play; {AS_CONFIGURED}",
    "images": f"folder of PNG or JPEG files to take as its images; {AS_CONFIGURED}",
    "columns": f"columns of a text or table of events, as in t,x,y,p; {AS_CONFIGURED}",
    "time_unit": f"s, ms, us or ns, of the events' times in text, arrays and HDF5; {AS_CONFIGURED}",
    "rate": f"speed of the replay, 1 is that of the recording; {AS_CONFIGURED}",
    "loop": f"true: start again at the end; {AS_CONFIGURED}",
    **CAPTIONS,
    "config": "parameters of the nodes; config/replay.yaml where none is given",
    **OF_NODES,
}


def generate_launch_description() -> LaunchDescription:
    """The nodes of the recording, which all end when it has been captioned or one of them has failed."""
    return description("replay", ARGUMENTS)
