"""Executables of the nodes. Ctrl-C ends them without a traceback while they import, which takes seconds."""

from __future__ import annotations

import signal
from importlib import import_module

MODULES = {
    "synchronizer": "crossspec_ros.ros.synchronizer_node",
    "captioner": "crossspec_ros.ros.captioner_node",
    "dsec_player": "crossspec_ros.ros.player_node",
    "dv_camera": "crossspec_ros.ros.camera_node",
}
"""Modules of the nodes."""


def synchronizer() -> None:
    """Run the synchronizer."""
    _run("synchronizer")


def captioner() -> None:
    """Run the captioner."""
    _run("captioner")


def dsec_player() -> None:
    """Run the player."""
    _run("dsec_player")


def dv_camera() -> None:
    """Run the camera node."""
    _run("dv_camera")


def _run(node: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    import_module(MODULES[node]).main()
