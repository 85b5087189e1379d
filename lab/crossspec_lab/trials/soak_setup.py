"""Processes of a soak: a writer of dv network streams, the nodes of a live camera, a collector of reports."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from crossspec_lab.trials.processes import Child, free_ports
from crossspec_ros.environment import ros_environment
from crossspec_ros.ros.graph import live_graph

LOG = Path(tempfile.gettempdir()) / "crossspec_soak.log"
"""Log of the last soak's processes."""


class Soak:
    """Processes by name; whoever made it ends them."""

    def __init__(self, stack: ExitStack, rate: float, models: Path | None, memory: str) -> None:
        """Start all but the writer; raises RuntimeError where the nodes do not come up."""
        self._stack, self._rate = stack, rate
        self._environment = ros_environment(isolated=True)
        self._ports = free_ports(2)
        source, frames = f"tcp://127.0.0.1:{self._ports[0]}", f"127.0.0.1:{self._ports[1]}"
        graph = live_graph("dv_network", source, frames, models=models, memory=memory)
        self._commands = {process.name: process.command()[1:] for process in graph.processes}
        remaps = ["-r", "report:=captioner/report", "-r", "window_closed:=synchronizer/window_closed"]
        self.collector = self.child(["-m", "crossspec_lab.trials.soak_collector", "--ros-args", *remaps])
        self.nodes: dict[str, Child] = {}
        for name in self._commands:
            self.start(name)
        self.collector.wait(lambda: self.collector.lines, "synchronizer and captioner did not come up")

    def child(self, arguments: Sequence[str]) -> Child:
        """A Python process whose input and output are ours."""
        child = Child(arguments, LOG, self._environment)
        self._stack.callback(child.end)
        return child

    def start(self, name: str) -> None:
        """Start a node, also one that has ended."""
        self.nodes[name] = self.child(self._commands[name])

    def serve(self) -> Child:
        """A writer to which dv_camera has connected; raises RuntimeError where it does not."""
        ports = map(str, self._ports)
        writer = self.child(["-m", "crossspec_lab.trials.soak_writer", *ports, "--rate", str(self._rate)])
        writer.wait(lambda: writer.lines, "dv_camera did not connect")
        return writer


@contextmanager
def soak_setup(rate: float, models: Path | None = None, memory: str = "none") -> Iterator[Soak]:
    """The processes of a soak at `rate` million events a second; they end with the context."""
    LOG.unlink(missing_ok=True)
    with ExitStack() as stack:
        yield Soak(stack, rate, models, memory)
