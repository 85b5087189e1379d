"""Running a node: interrupts, errors, exit codes and clean-up."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
import rclpy
from outsider import outsider
from rcl_interfaces.msg import Log
from rclpy.executors import ExternalShutdownException
from refusals import refused

from crossspec_ros.errors import InputError
from crossspec_ros.paths import share_dir
from crossspec_ros.ros.captioner_node import CaptionerNode
from crossspec_ros.ros.run import NodeError, _made, run

LOADING = """
import sys, time
sys.path.insert(0, {here!r})
from crossspec_ros.ros.captioner_node import CaptionerNode
from crossspec_ros.ros.run import run

def load(settings):
    print("loading", flush=True)
    time.sleep(100)

run(lambda: CaptionerNode(load=load))
"""


class Node(rclpy.node.Node):
    """Interrupted while it works, and again while it stops."""

    def __init__(self):
        super().__init__("interrupted")
        self.stopped = False

    def stop(self):
        os.kill(os.getpid(), signal.SIGINT)
        self.stopped = True


def test_second_interrupt_does_not_stop_the_cleanup():
    nodes, worked = [], []

    def make():
        nodes.append(Node())
        return nodes[0]

    def work(node):
        os.kill(os.getpid(), signal.SIGINT)
        worked.append("to its end")

    before = signal.getsignal(signal.SIGINT)
    run(make, [], work)
    assert nodes[0].stopped and not worked
    assert signal.getsignal(signal.SIGINT) is before


def test_errors_after_an_interrupt_are_not_reported(monkeypatch, capsys):
    """An interrupt during a conversion becomes a RuntimeError, maybe before ROS shuts down."""
    monkeypatch.setattr(rclpy, "ok", lambda **options: True)

    def work(node):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError("Unable to convert call argument") from None

    run(Node, [], work)
    assert capsys.readouterr().err == ""


def lacks_libraries():
    os.environ["ROS_SECURITY_ENABLE"] = "true"
    raise RuntimeError("error creating node: no security libraries")


@pytest.mark.parametrize(
    ("enabled", "args", "make"),
    [
        ("true", ["--ros-args", "--enclave", "/crossspec/synchronizer"], Node),
        ("true", [], Node),
        ("", [], lacks_libraries),
    ],
)
def test_failed_start_with_sros2_is_one_sentence(monkeypatch, tmp_path, capsys, enabled, args, make):
    monkeypatch.setenv("ROS_SECURITY_ENABLE", enabled)
    monkeypatch.setenv("ROS_SECURITY_STRATEGY", "Enforce")
    monkeypatch.delenv("ROS_SECURITY_KEYSTORE", raising=False)
    if args:
        monkeypatch.setenv("ROS_SECURITY_KEYSTORE", str(tmp_path))
    with pytest.raises(SystemExit) as end:
        run(make, args)
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert "cannot start with SROS2" in error and "or unset ROS_SECURITY_ENABLE" in error


@pytest.mark.parametrize("enabled", ["", "true"])
def test_invalid_arguments_do_not_blame_sros2(monkeypatch, capsys, enabled):
    monkeypatch.setenv("ROS_SECURITY_ENABLE", enabled)
    with pytest.raises(SystemExit) as end:
        run(Node, ["--ros-args", "-p", "no parameter"])
    assert end.value.code == 2 and "does not understand the arguments" in capsys.readouterr().err


class Killed(BaseException):
    """Stands for a panic of a Rust library, which is no Exception."""


class Failing(rclpy.node.Node):
    """A node whose timer raises."""

    def __init__(self, error, after_s=0.01):
        super().__init__("failing")
        self.error = error
        self.create_timer(after_s, self.fail)

    def fail(self):
        raise self.error

    def stop(self):
        pass


def wait(node):
    deadline_s = time.monotonic() + 20
    while node.context.ok():
        assert time.monotonic() < deadline_s, "running without an executor"
        time.sleep(0.01)
    raise ExternalShutdownException


@pytest.mark.parametrize("work", [None, wait])
@pytest.mark.parametrize(
    ("error", "end"),
    [(NodeError("a thread"), SystemExit), (NodeError("bad", 2), SystemExit), (Killed(), Killed)],
)
def test_error_of_a_callback_ends_the_node(capfd, error, end, work):
    with pytest.raises(end) as ended:
        run(lambda: Failing(error), [], work)
    if end is SystemExit:
        assert ended.value.code == error.code
        (line,) = capfd.readouterr().err.splitlines()
        assert line.startswith("[FATAL]") and line.endswith(f"failing: {error}")


def test_last_sentence_of_a_node_reaches_rosout():
    code = "from test_run import Failing, NodeError, run\nrun(lambda: Failing(NodeError('a thread'), 3.0))"
    with outsider() as observer:
        lines = []
        observer.node.create_subscription(Log, "/rosout", lambda line: lines.append(line.msg), 10)
        folders = [str(Path(__file__).parents[level]) for level in (0, 1)]
        path = ":".join([*folders, os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": path}
        node = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
        assert node.returncode == 1
        observer.wait(lambda: "a thread" in lines)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_models_load_ends_the_node_quietly(number):
    """Loading cannot be interrupted, but the node must remove its shared memory."""
    script = LOADING.format(here=str(Path(__file__).parents[1]))
    # Nodes also map the segments of other nodes.
    others = set(Path("/dev/shm").iterdir())
    node = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert node.stdout.readline() == "loading\n"
        maps = Path(f"/proc/{node.pid}/maps").read_text().splitlines()
        # Segments of ports remain for the next participant.
        segments = {
            Path(found[0]) for line in maps if (found := re.search("/dev/shm/fast\\w+_[0-9a-f]{16}", line))
        }
        node.send_signal(number)
        out, err = node.communicate(timeout=20)
    finally:
        node.kill()
    assert (node.returncode, out, err) == (0, "", "")
    own = segments - others
    assert own and not [segment for segment in own if segment.exists()]


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (InputError("no models"), 2, "no models"),
        (MemoryError("of\n4 GB"), 1, "MemoryError: of 4 GB"),
        (RuntimeError("\x1b]0;owned\x07"), 1, r"RuntimeError: \x1b]0;owned\x07"),
    ],
)
def test_failed_start_of_the_captioner_is_one_sentence(capfd, error, code, word):
    with pytest.raises(SystemExit) as end:
        run(lambda: CaptionerNode(load=Mock(side_effect=error)), [])
    assert end.value.code == code
    logged = capfd.readouterr().err
    assert logged.endswith(f"{word}\n") and "\x1b]" not in logged


def test_importing_the_nodes_changes_no_signal():
    code = "import signal, sys; sys.argv[0] = '-m'; import crossspec_ros.ros.messages;"
    code += "sys.exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("words", "domain", "code"), [(["--target", "x"], "0", "node-argument"), ([], "300", "domain-too-high")]
)
def test_invalid_arguments_are_refused(monkeypatch, words, domain, code):
    monkeypatch.setattr(sys, "argv", ["captioner", *words, "--ros-args", "-p", "seed:=1"])
    monkeypatch.setenv("ROS_DOMAIN_ID", domain)
    with refused(code):
        _made(CaptionerNode, None)


def test_node_started_directly_uses_the_fastdds_profile(monkeypatch):
    """Without the profile's shared memory, Fast DDS loses large messages."""
    monkeypatch.delenv("FASTDDS_DEFAULT_PROFILES_FILE")
    seen = []
    run(Node, [], lambda node: seen.append(os.environ["FASTDDS_DEFAULT_PROFILES_FILE"]))
    assert seen == [str(share_dir() / "config" / "fastdds.xml")]
