"""Processes of a soak and the faults that they meet."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil

from crossspec_lab.trials.bars import is_whole
from crossspec_lab.trials.processes import Child, free_ports
from crossspec_ros.environment import ros_environment
from crossspec_ros.paths import share_dir
from crossspec_ros.ros.replay import command

LOG = Path(tempfile.gettempdir()) / "crossspec_soak.log"
"""Log of the last soak's processes."""
MAX_AGAIN_S = 10.0
"""From the end of a fault to the caption of the first whole window after it."""
KILLED = "the camera's software is killed"
_AWAY_S, _STEP_S = 2.0, 5
_DISK_S = 65.0
"""The caption memory is saved each minute."""


class Soak:
    """A writer of dv network streams, the nodes of a live camera, and a collector of reports."""

    def __init__(self, stack: ExitStack, rate: float, models: Path | None, memory: str) -> None:
        """Start all processes, which end with the stack; raises RuntimeError where they do not come up."""
        LOG.unlink(missing_ok=True)
        self._stack, self._rate = stack, rate
        self._environment = ros_environment(isolated=True)
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
        remaps = ["-r", "report:=captioner/report", "-r", "window_closed:=synchronizer/window_closed"]
        self.collector = self._child(["-m", "crossspec_lab.trials.soak_collector", "--ros-args", *remaps])
        self.nodes = {name: self._child(command) for name, command in self._commands.items()}
        self.collector.wait(lambda: self.collector.lines, "synchronizer and captioner did not come up")
        self.writer = self._serve()
        self.faults: dict[str, Callable[[], None]] = {
            "none": lambda: None,
            KILLED: self._kill_writer,
            "its clock steps 5 s ahead": lambda: self.writer.tell(str(_STEP_S)),
            "dv_camera is killed": self._kill_camera,
            "its clock steps 5 s back": lambda: self.writer.tell(str(-_STEP_S)),
            "a full disk": self._fill_disk,
        }

    def meet(self, fault: str, lasts_s: float) -> float | None:
        """Cause a fault, and let `lasts_s` pass from its begin; return the seconds from its end to a caption.

        The caption is of a whole window that began after the fault's end; None where none comes.
        """
        began_s = time.time()
        self.faults[fault]()
        ended_s = time.time()
        again_s: float | None = None
        looked = 0
        while (now_s := time.time()) < max(began_s + lasts_s, ended_s + MAX_AGAIN_S):
            lines = self.collector.lines[looked:]
            looked += len(lines)
            reports = (line for line in lines if "report_s" in line)
            if again_s is None and any(
                is_whole(one["values"]) and one["report_s"] - 1 >= ended_s for one in reports
            ):
                again_s = now_s - ended_s
            time.sleep(0.05)
        return again_s

    def _child(self, arguments: Sequence[str]) -> Child:
        child = Child(arguments, LOG, self._environment)
        self._stack.callback(child.end)
        return child

    def _serve(self) -> Child:
        """A writer to which dv_camera has connected; raises RuntimeError where it does not."""
        ports = map(str, self._ports)
        writer = self._child(["-m", "crossspec_lab.trials.soak_writer", *ports, "--rate", str(self._rate)])
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
