"""Executables of the nodes. Ctrl-C ends them without a traceback, even during their imports of seconds."""

from __future__ import annotations

import signal
from functools import partial
from importlib import import_module

MODULES = {
    "synchronizer": "crossspec_ros.ros.synchronizer_node",
    "captioner": "crossspec_ros.ros.captioner_node",
    "dsec_player": "crossspec_ros.ros.player_node",
    "dv_camera": "crossspec_ros.ros.dv_camera_node",
    "usb_camera": "crossspec_ros.ros.usb_camera_node",
}
"""Module of each node."""


def _run(node: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    import_module(MODULES[node]).main()


synchronizer, captioner, dsec_player, dv_camera, usb_camera = (partial(_run, node) for node in MODULES)
