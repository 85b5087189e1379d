"""`ros2 launch crossspec_ros FILE ARGUMENT:=VALUE ...`; run as a program where there is no `ros2`."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

HERE = Path(__file__).parent


class Launch:
    """A launch in a session of its own: launch itself and its nodes are one process group."""

    def __init__(self, process, log):
        self.process = process
        self._log = log

    @property
    def output(self):
        return self._log.read_text()

    def ended(self):
        return self.process.poll() is not None

    def until(self, observer, condition, timeout_s=120.0):
        """Wait for a condition on what is observed, for as long as launch runs."""
        observer.wait(lambda: condition() or self.ended(), timeout_s)
        assert condition(), self.output

    def wait(self, timeout_s=120.0):
        """The exit code, once launch and every node have ended."""
        deadline = time.monotonic() + timeout_s
        while self.lives():
            assert time.monotonic() < deadline, f"not over after {timeout_s:g} s: {self.output}"
            time.sleep(0.02)
        return self.process.wait()

    def nodes(self):
        """The process ids of the nodes that run, by their names with their namespaces."""
        found = {}
        for each in psutil.process_iter(["cmdline", "ppid"]):
            words = each.info["cmdline"] or ()
            node = next((word[8:] for word in words if word.startswith("__node:=")), None)
            node = node and "".join(f"{word[7:]}/" for word in words if word.startswith("__ns:=/")) + node
            if node and each.info["ppid"] == self.process.pid:
                found[node] = each.pid
        return found

    def interrupt(self):
        """Ctrl-C, as a terminal tells it: to launch and to every node."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)

    def lives(self):
        """Whether anything of it does."""
        self.process.poll()
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True


@contextmanager
def launched(folder, file, *arguments, prefix=None):
    """Launch a file of ours or one by its path, with the executables of `prefix`; interrupted at the end."""
    environment = os.environ | {"ROS_LOG_DIR": str(folder), "TMPDIR": str(folder)}
    if prefix:
        environment["AMENT_PREFIX_PATH"] = f"{prefix}{os.pathsep}{environment['AMENT_PREFIX_PATH']}"
    log = folder / "launch.log"
    ros2 = shutil.which("ros2")
    command = [ros2, "launch"] if ros2 else [sys.executable, __file__]
    if ros2 and not os.path.isabs(file):
        command.append("crossspec_ros")
    # Where there is no terminal, launch passes a SIGINT on, and the nodes get it twice.
    terminal, stdin = pty.openpty()
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, file, *arguments],
            env=environment,
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    launch = Launch(process, log)
    try:
        yield launch
    finally:
        launch.interrupt()
        try:
            launch.wait(30.0)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(terminal)
        os.close(stdin)


def without_models(installed, folder):
    """An installation like the one at `installed`, but its captioner needs no models."""
    marker = folder / "share" / "ament_index" / "resource_index" / "packages" / "crossspec_ros"
    nodes = folder / "lib" / "crossspec_ros"
    for parent in (marker.parent, nodes):
        parent.mkdir(parents=True)
    marker.touch()
    others = [f"lib/crossspec_ros/{name}" for name in ("synchronizer", "dsec_player")]
    for path in ("share/crossspec_ros", *others):
        (folder / path).symlink_to(Path(installed) / path)
    captioner = nodes / "captioner"
    command = f'exec "{sys.executable}" "{HERE.parent / "fake_captioner.py"}" "$@"'
    captioner.write_text(f'#!/bin/sh\nPYTHONPATH="{HERE.parent}:$PYTHONPATH" {command}\n')
    captioner.chmod(0o755)
    return folder


def main():
    """What the verb does, in the order it does it."""
    from ament_index_python.packages import get_package_share_directory
    from launch.actions import IncludeLaunchDescription
    from launch.launch_description import LaunchDescription
    from launch.launch_description_sources import PythonLaunchDescriptionSource
    from launch.launch_service import LaunchService

    file, *arguments = sys.argv[1:]
    path = Path(get_package_share_directory("crossspec_ros"), "launch", file)
    pairs = [argument.split(":=", 1) for argument in arguments]
    include = IncludeLaunchDescription(PythonLaunchDescriptionSource(str(path)), launch_arguments=pairs)
    service = LaunchService(noninteractive=not sys.stdin.isatty())
    service.include_launch_description(LaunchDescription([include]))
    return service.run()


if __name__ == "__main__":
    sys.exit(main())
