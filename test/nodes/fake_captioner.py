"""The captioner node with a decoder that needs no models; run as a program in place of the real one."""

from __future__ import annotations

from fakes import FakeDecoder

from crossspec_ros.nodes.captioner import CaptionerNode
from crossspec_ros.nodes.run import run

if __name__ == "__main__":
    run(lambda: CaptionerNode(load=lambda params: FakeDecoder()))
