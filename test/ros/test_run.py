"""How a node is run: what interrupts it, and what does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import rclpy
from rclpy.executors import ExternalShutdownException

from crossspec_ros.errors import InputError
from crossspec_ros.ros.captioner import CaptionerNode
from crossspec_ros.ros.run import NodeError, run


class Node(rclpy.node.Node):
    """Interrupted while it works, and again while it stops."""

    def __init__(self):
        super().__init__("interrupted")
        self.stopped = False

    def stop(self):
        os.kill(os.getpid(), signal.SIGINT)
        self.stopped = True


def test_a_second_interrupt_does_not_break_off_what_the_first_has_begun():
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


def test_whatever_an_interrupt_turns_into_is_nobody_s_error(monkeypatch, capsys):
    """One in the middle of a conversion becomes a RuntimeError, which may come before ROS knows."""
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
def test_sros2_that_cannot_start_is_a_sentence(monkeypatch, tmp_path, capsys, enabled, args, make):
    monkeypatch.setenv("ROS_SECURITY_ENABLE", enabled)
    monkeypatch.setenv("ROS_SECURITY_STRATEGY", "Enforce")
    monkeypatch.delenv("ROS_SECURITY_KEYSTORE", raising=False)
    if args:
        monkeypatch.setenv("ROS_SECURITY_KEYSTORE", str(tmp_path))
    with pytest.raises(SystemExit) as end:
        run(make, args)
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert "cannot start with SROS2" in told and "or unset ROS_SECURITY_ENABLE" in told


@pytest.mark.parametrize("enabled", ["", "true"])
def test_bad_arguments_are_not_taken_for_sros2(monkeypatch, capsys, enabled):
    monkeypatch.setenv("ROS_SECURITY_ENABLE", enabled)
    with pytest.raises(SystemExit) as end:
        run(Node, ["--ros-args", "-p", "no parameter"])
    assert end.value.code == 2 and "does not understand the arguments" in capsys.readouterr().err


class Killed(BaseException):
    """No Exception, as a panic in a library is none."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("error", "end"), [(NodeError("a thread"), SystemExit), (Killed(), Killed)])
def test_a_node_whose_spinning_thread_ends_ends_its_work_in_the_main_thread_too(capfd, error, end):
    class Failing(rclpy.node.Node):
        def __init__(self):
            super().__init__("failing")
            self.create_timer(0.01, self.fail)

        def fail(self):
            raise error

        def stop(self):
            pass

    def work(node):
        deadline_s = time.monotonic() + 20
        while node.context.ok():
            assert time.monotonic() < deadline_s, "up, but deaf"
            time.sleep(0.01)
        raise ExternalShutdownException

    with pytest.raises(end) as ended:
        run(Failing, [], work)
    if end is SystemExit:
        assert ended.value.code == 1 and capfd.readouterr().err == "crossspec: error: a thread\n"


class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)


def as_error(params):
    """What an interrupt becomes in the middle of some libraries' imports."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        raise ImportError("a part of it could not be imported") from None


def in_a_finalizer(params):
    """Where Python can only print an exception, and goes on."""
    Finalized()
    time.sleep(5.0)
    raise AssertionError("the interrupt is lost")


@pytest.mark.parametrize("load", [as_error, in_a_finalizer])
def test_an_interrupt_while_the_models_load_ends_the_node_quietly(load, capfd):
    hook = sys.unraisablehook
    run(lambda: CaptionerNode(load=load))
    assert "Error" not in (told := "".join(capfd.readouterr())) and "Traceback" not in told
    assert sys.unraisablehook is hook


def refuse(error):
    def load(params):
        raise error

    return load


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (InputError("no models"), 2, "no models"),
        (MemoryError("of\n4 GB"), 1, "MemoryError: of 4 GB"),
        (RuntimeError("\x1b]0;owned\x07"), 1, r"RuntimeError: \x1b]0;owned\x07"),
    ],
)
def test_a_captioner_that_cannot_start_ends_with_a_sentence(capfd, error, code, word):
    with pytest.raises(SystemExit) as end:
        run(lambda: CaptionerNode(load=refuse(error)), [])
    assert end.value.code == code
    told = capfd.readouterr().err
    assert told.endswith(f"{word}\n") and "\x1b]" not in told


def test_importing_the_nodes_changes_no_signal():
    code = "import signal, sys; sys.argv[0] = '-m'; import crossspec_ros.ros.messages;"
    code += "sys.exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)"
    subprocess.run([sys.executable, "-c", code], check=True)
