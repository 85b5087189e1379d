"""The node dv_camera: publish an iniVation camera or a dv network stream as a driver would."""

from __future__ import annotations

from functools import partial

from crossspec_ros.events.dv_camera import open_sources
from crossspec_ros.ros.camera_base import CameraNode
from crossspec_ros.ros.run import run
from crossspec_ros.settings import CameraSettings

make_node = partial(CameraNode, CameraSettings, lambda one: open_sources(one.source, one.frames_source))
main = partial(run, make_node, work=CameraNode.capture)
"""Run the executable `dv_camera`."""

if __name__ == "__main__":
    main()
