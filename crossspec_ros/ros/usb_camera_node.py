"""The node usb_camera: publish an event camera at a USB port as a driver would."""

from __future__ import annotations

from functools import partial

from crossspec_ros.events.usb_camera import open_camera
from crossspec_ros.ros.camera_base import CameraNode
from crossspec_ros.ros.run import run
from crossspec_ros.settings import UsbCameraSettings

# Most cameras have no frames, and their image topic would look like a second RGB camera.
make_node = partial(
    CameraNode, UsbCameraSettings, lambda one: [open_camera(one.serial)], kinds_at_start=("events",)
)
main = partial(run, make_node, work=CameraNode.capture)
"""Run the executable `usb_camera`."""

if __name__ == "__main__":
    main()
