"""Processes of a soak, the node that collects their reports, and the faults that they meet."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
from crossspec_msgs.msg import WindowClosed, WindowReport

from crossspec_lab.trials.processes import Child, free_ports, is_complete
from crossspec_ros.events.cdr import to_ns
from crossspec_ros.paths import share_dir
from crossspec_ros.ros.messages import RELIABLE
from crossspec_ros.ros.node import GuardedNode
from crossspec_ros.ros.replay import command
from crossspec_ros.ros.run import NodeError

LOG = Path(tempfile.gettempdir()) / "crossspec_soak.log"
"""Log of the last soak's processes."""
MAX_AGAIN_S = 10.0
"""From the end of a fault to the caption of the first complete window after it."""
KILLED = "the camera's software is killed"
_STARTUP_S = 120.0
_AWAY_S, _STEP_S = 2.0, 5
_DISK_S = 65.0
"""The caption memory is saved each minute."""


class SoakNode(GuardedNode):
    """Collects the closed windows and the reports, by the ends of their windows in seconds."""

    def __init__(self, **options: Any) -> None:
        super().__init__("soak", **options)
        self.closed: dict[float, WindowClosed] = {}
        self.reports: dict[float, WindowReport] = {}
        for kind, topic, messages in (
            (WindowClosed, "synchronizer/window_closed", self.closed),
            (WindowReport, "captioner/report", self.reports),
        ):
            self.create_subscription(kind, topic, _keeper(messages), RELIABLE)

    def wait(self) -> None:
        """Wait for synchronizer and captioner; raises NodeError if they do not start."""
        end_s = time.monotonic() + _STARTUP_S
        while not all(map(self.count_publishers, ("synchronizer/window_closed", "captioner/report"))):
            if time.monotonic() > end_s:
                raise NodeError(f"synchronizer and captioner did not start: see {LOG}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Do nothing: the node has no threads."""


def _keeper(messages: dict[float, Any]) -> Callable[[Any], None]:
    return lambda message: messages.update({to_ns(message.header.stamp) / 1e9: message})


class Soak:
    """A writer of dv network streams and the nodes of a live camera; `collector` has their reports."""

    def __init__(
        self, stack: ExitStack, collector: SoakNode, rate: float, models: Path | None, memory: str
    ) -> None:
        """Start all processes, which end with the stack; raises NodeError or RuntimeError on failure."""
        LOG.unlink(missing_ok=True)
        self._stack, self.collector, self._rate = stack, collector, rate
        self._ports = free_ports(2)
        source, frames = f"tcp://127.0.0.1:{self._ports[0]}", f"127.0.0.1:{self._ports[1]}"
        pair = {"models.folder": str(models.resolve())} if models else {}
        parameters = {
            "synchronizer": pair,
            "captioner": {**pair, "memory": memory},
            "dv_camera": {"source": source, "frames_source": frames},
        }
        config = share_dir() / "config" / "live.yaml"
        self._commands = {node: command(node, config, values)[1:] for node, values in parameters.items()}
        self.nodes = {name: self._child(command) for name, command in self._commands.items()}
        collector.wait()
        self.writer = self._serve()
        self.faults: dict[str, Callable[[], None]] = {
            "none": lambda: None,
            KILLED: self._kill_writer,
            "its clock steps 5 s ahead": lambda: self.writer.send(str(_STEP_S)),
            "dv_camera is killed": self._kill_camera,
            "its clock steps 5 s back": lambda: self.writer.send(str(-_STEP_S)),
            "a full disk": self._fill_disk,
        }

    def meet(self, fault: str, lasts_s: float) -> float | None:
        """Cause a fault, and let `lasts_s` pass from its start; return the seconds from its end to a caption.

        The caption is of a complete window that began after the fault's end; None if none comes.
        """
        began_s = time.time()
        self.faults[fault]()
        ended_s = time.time()
        again_s: float | None = None
        while (now_s := time.time()) < max(began_s + lasts_s, ended_s + MAX_AGAIN_S):
            if again_s is None and any(
                is_complete(report) and to_ns(report.window_start) / 1e9 >= ended_s
                for report in [*self.collector.reports.values()][-10:]
            ):
                again_s = now_s - ended_s
            time.sleep(0.05)
        return again_s

    def _child(self, arguments: Sequence[str]) -> Child:
        child = Child(arguments, LOG)
        self._stack.callback(child.end)
        return child

    def _serve(self) -> Child:
        """Start a writer, and wait until dv_camera has connected to it."""
        ports = map(str, self._ports)
        writer = self._child(["-m", "crossspec_lab.trials.soak_writer", *ports, str(self._rate)])
        writer.wait(lambda: writer.lines, "dv_camera did not connect")
        return writer

    def _kill_writer(self) -> None:
        self.writer.kill()
        time.sleep(_AWAY_S)
        self.writer = self._serve()

    def _kill_camera(self) -> None:
        self.nodes["dv_camera"].kill()
        time.sleep(_AWAY_S)
        self.nodes["dv_camera"] = self._child(self._commands["dv_camera"])

    def _fill_disk(self) -> None:
        captioner = psutil.Process(self.nodes["captioner"].pid)
        soft, hard = captioner.rlimit(psutil.RLIMIT_FSIZE)
        captioner.rlimit(psutil.RLIMIT_FSIZE, (0, hard))
        time.sleep(_DISK_S)
        captioner.rlimit(psutil.RLIMIT_FSIZE, (soft, hard))
