"""The captioner node without models, at once; run as a program in place of the installed one."""

from __future__ import annotations

from fakes import FakeDecoder

from crossspec_ros.ros.captioner_node import CaptionerNode
from crossspec_ros.ros.run import run

if __name__ == "__main__":
    run(lambda: CaptionerNode(load=lambda params: FakeDecoder()))
