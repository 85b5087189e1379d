"""Program that runs the captioner node with a decoder without models."""

from __future__ import annotations

import os
import time

from fakes import FakeDecoder

from crossspec_ros.ros.captioner_node import CaptionerNode
from crossspec_ros.ros.run import run

LOAD_S = float(os.environ.get("FAKE_LOAD_S", "0"))
"""Seconds to load. Real models need about 4, in which all nodes discover each other."""


def load(params):
    time.sleep(LOAD_S)
    return FakeDecoder()


if __name__ == "__main__":
    run(lambda: CaptionerNode(load=load))
