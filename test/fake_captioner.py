"""The captioner node with a decoder that needs no models; run as a program in place of the real one."""

from __future__ import annotations

import os
import time

from fakes import FakeDecoder

from crossspec_ros.ros.captioner_node import CaptionerNode
from crossspec_ros.ros.run import run

LOAD_S = float(os.environ.get("FAKE_LOAD_S", "0"))
"""4 are about what real models take; meanwhile every node discovers every other."""


def load(params):
    time.sleep(LOAD_S)
    return FakeDecoder()


if __name__ == "__main__":
    run(lambda: CaptionerNode(load=load))
