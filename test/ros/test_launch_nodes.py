"""Launch files start working nodes. Needs a ROS installation in which this package was built."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

import psutil
import pytest
from crossspec_msgs.msg import WindowReport
from event_camera_msgs.msg import EventPacket
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from outsider import RELIABLE, outsider
from rcl_interfaces.srv import GetParameters
from rclpy.parameter import parameter_value_to_python
from sensor_msgs.msg import Image
from test_synchronizer_node import DRIVER, frame, packet

pytest.importorskip("ros2launch", reason="needs a ROS installation")
packages = pytest.importorskip("ament_index_python.packages")
try:
    INSTALLED = packages.get_package_prefix("crossspec_ros")
except packages.PackageNotFoundError:
    reason = "ros2 launch does not find crossspec_ros: run colcon build, then source install/setup.bash"
    pytest.skip(reason, allow_module_level=True)

HERE = Path(__file__).resolve().parents[1]
REPLAY, LIVE = "dsec_replay.launch.py", "live.launch.py"
ENDED_S = 10.0
"""Longer than launch waits for a node after Ctrl-C, even on a busy machine."""


class Launch:
    """A launch in its own session. Launch and its nodes are one process group."""

    def __init__(self, process, log):
        self.process = process
        self._log = log

    @property
    def output(self):
        return self._log.read_text()

    def ended(self):
        return self.process.poll() is not None

    def until(self, observer, condition, timeout_s=120.0):
        """Wait for a condition on the observed messages while launch runs."""
        observer.wait(lambda: condition() or self.ended(), timeout_s)
        assert condition(), self.output

    def wait(self, timeout_s=120.0):
        """Return the exit code once launch and all nodes have ended."""
        deadline = time.monotonic() + timeout_s
        while self.lives():
            assert time.monotonic() < deadline, f"not over after {timeout_s:g} s: {self.output}"
            time.sleep(0.02)
        return self.process.wait()

    def nodes(self):
        """Return the process ids of the running nodes by their names."""
        return {
            word.removeprefix("__node:="): each.pid
            for each in psutil.process_iter(["cmdline", "ppid"])
            if each.info["ppid"] == self.process.pid
            for word in each.info["cmdline"] or ()
            if word.startswith("__node:=")
        }

    def interrupt(self):
        """Send SIGINT to launch and to every node, as a terminal does for Ctrl-C."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)

    def lives(self):
        """Return whether a process of the launch is alive."""
        self.process.poll()
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True


@contextmanager
def launched(folder, file, *arguments, prefix=None):
    """Run a launch file by name or path, with the executables of `prefix`, and interrupt it at the end."""
    environment = os.environ | {"ROS_LOG_DIR": str(folder), "TMPDIR": str(folder)}
    if prefix:
        environment["AMENT_PREFIX_PATH"] = f"{prefix}{os.pathsep}{environment['AMENT_PREFIX_PATH']}"
    log, ours = folder / "launch.log", [] if os.path.isabs(file) else ["crossspec_ros"]
    # Without a terminal, launch forwards SIGINT, and the nodes get it twice.
    terminal, stdin = pty.openpty()
    with log.open("w") as output:
        process = subprocess.Popen(
            ["ros2", "launch", *ours, file, *arguments],
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
    """Return a copy of the installation at `installed` whose captioner needs no models."""
    marker = folder / "share" / "ament_index" / "resource_index" / "packages" / "crossspec_ros"
    nodes = folder / "lib" / "crossspec_ros"
    for parent in (marker.parent, nodes):
        parent.mkdir(parents=True)
    marker.touch()
    others = [f"lib/crossspec_ros/{name}" for name in ("synchronizer", "dsec_player")]
    for path in ("share/crossspec_ros", *others):
        (folder / path).symlink_to(Path(installed) / path)
    captioner = nodes / "captioner"
    command = f'exec "{sys.executable}" "{HERE / "fake_captioner.py"}" "$@"'
    captioner.write_text(f'#!/bin/sh\nPYTHONPATH="{HERE}:$PYTHONPATH" {command}\n')
    captioner.chmod(0o755)
    return folder


@pytest.fixture
def start(tmp_path):
    """Return a function that runs a launch file with the models."""
    with ExitStack() as stack:
        yield lambda file, *arguments: stack.enter_context(launched(tmp_path, file, *arguments))


@pytest.fixture
def start_quickly(tmp_path):
    """Return a function that runs a launch file with a captioner without models."""
    prefix = without_models(INSTALLED, tmp_path / "prefix")
    with ExitStack() as stack:
        yield lambda file, *arguments: stack.enter_context(
            launched(tmp_path, file, *arguments, prefix=prefix)
        )


@pytest.fixture
def observer():
    with outsider() as node:
        yield node


def ask(launch, observer, kind, service, **fields):
    """Return the answer of a service. Requests repeat, because they are lost before discovery."""
    client = observer.node.create_client(kind, service)
    launch.until(observer, client.service_is_ready)
    began, answers = time.monotonic(), []

    def answered():
        if time.monotonic() - began >= len(answers):
            answers.append(client.call_async(kind.Request(**fields)))
        return any(answer.done() for answer in answers)

    launch.until(observer, answered)
    observer.node.destroy_client(client)
    return next(answer.result() for answer in answers if answer.done())


def params_file(folder, node, **parameters):
    path = folder / "parameters.yaml"
    path.write_text(json.dumps({node: {"ros__parameters": parameters}}))
    return f"params_file:={path}"


def test_replay_captions_every_window_and_ends(start, observer):
    launch = start(REPLAY, "rate:=8")
    assert launch.wait(300.0) == 0, launch.output
    observer.wait(lambda: len(observer["/captioner/caption"]) == len(observer.reports()) == 9)
    captions = [message.data for message in observer["/captioner/caption"]]
    assert captions == [message for _, _, message, _ in observer.reports()]
    assert {report.caption.source for *_, report in observer.reports()} == {"target"}


def test_arguments_reach_the_nodes(start_quickly, observer, tmp_path):
    by_node = {"captioner": {"question": "yes", "mode": "autoregressive"}, "dsec_player": {"rate": 2.5}}
    arguments = [f"{name}:={value}" for values in by_node.values() for name, value in values.items()]
    launch = start_quickly(REPLAY, *arguments, params_file(tmp_path, "dsec_player", loop=True))
    for node, values in by_node.items():
        service = f"/{node}/get_parameters"
        answer = ask(launch, observer, GetParameters, service, names=list(values))
        assert [parameter_value_to_python(value) for value in answer.values] == list(values.values())
    launch.until(observer, observer.reports)
    # YAML would read this question as a boolean.
    assert observer.reports()[0][2].endswith(": yes")


def test_missing_recording_ends_launch_with_an_error(start, tmp_path):
    launch = start(REPLAY, f"sequence:={tmp_path / 'nothing'}")
    assert launch.wait() == 1
    assert f"the recording '{tmp_path / 'nothing'}' does not exist: give " in launch.output
    assert "ended with code 2" in launch.output and "Traceback" not in launch.output


PARENT = """
from launch import LaunchDescription
from launch.actions import ExecuteProcess, GroupAction, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch_ros.actions import PushROSNamespace, SetParameter
from launch_ros.substitutions import FindPackageShare


def generate_launch_description():
    source = PythonLaunchDescriptionSource([FindPackageShare("crossspec_ros"), "/launch/{file}"])
    ours = [SetParameter("max_new_tokens", 9), PushROSNamespace("robot")]
    ours.append(IncludeLaunchDescription(source, launch_arguments={arguments!r}.items()))
    return LaunchDescription([GroupAction(ours), ExecuteProcess(cmd=["sleep", "600"])])
"""


def test_included_launch_file_keeps_to_its_scope(start_quickly, observer, tmp_path):
    """It gets parameters and namespace of the including file, and its end ends no other process."""
    file = tmp_path / "parent.launch.py"
    file.write_text(PARENT.format(file=REPLAY, arguments={"rate": "8", "loop": "false"}))
    launch = start_quickly(str(file))
    service = "/robot/captioner/get_parameters"
    answer = ask(launch, observer, GetParameters, service, names=["max_new_tokens", "memory"])
    assert [parameter_value_to_python(value) for value in answer.values] == [9, "none"]
    observer.wait(lambda: launch.output.count("finished cleanly") == 3, 120.0)
    assert not launch.ended()


def test_ctrl_c_ends_all_nodes_quietly(start, observer):
    launch = start(REPLAY)

    def between_captions():
        # The player waits for each report, so frames of the next window mean that the last one is done.
        return len(observer["/synchronizer/frame"]) >= 8 * len(observer.reports()) + 3 > 8

    launch.until(observer, between_captions, 300.0)
    launch.interrupt()
    assert launch.wait(ENDED_S) == 0
    assert "Traceback" not in launch.output, launch.output


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["captioner", "dsec_player"])
def test_killed_node_is_restarted_alone(start_quickly, observer, tmp_path, name):
    launch = start_quickly(REPLAY, "use_respawn:=true", "rate:=4", "loop:=true")
    launch.until(observer, observer.reports)
    before = launch.nodes()
    os.kill(before[name], signal.SIGKILL)
    launch.until(observer, lambda: launch.nodes().get(name, before[name]) != before[name])
    several = len(observer.reports()) + 5
    launch.until(observer, lambda: len(observer.reports()) >= several)
    after = launch.nodes()
    assert {node for node in before if after[node] != before[node]} == {name}


def test_namespace_time_and_log_level_reach_nodes(start_quickly, observer):
    launch = start_quickly(REPLAY, "namespace:=front", "use_sim_time:=true", "log_level:=error", "loop:=true")
    service = "/front/synchronizer/get_parameters"
    answer = ask(launch, observer, GetParameters, service, names=["use_sim_time"])
    assert parameter_value_to_python(answer.values[0]) is True
    # The captioner logs captions at the level info.
    reports = []
    observer.node.create_subscription(WindowReport, "/front/captioner/report", reports.append, RELIABLE)
    launch.until(observer, lambda: reports)
    assert "[INFO] [captioner" not in launch.output.replace("[INFO] [captioner-2]: process", "")


def test_active_captioner_has_a_bond(start_quickly, observer, tmp_path):
    status = pytest.importorskip("bond.msg", reason="needs nav2's messages").Status
    received = []
    observer.node.create_subscription(status, "/bond", received.append, 10)
    launch = start_quickly(LIVE, "camera:=topics", params_file(tmp_path, "captioner", autostart=False))

    client = observer.node.create_client(ChangeState, "/captioner/change_state")
    launch.until(observer, client.service_is_ready)
    # An answer shows that both sides have discovered each other.
    ask(launch, observer, GetState, "/captioner/get_state")

    def change(transition):
        client.call_async(ChangeState.Request(transition=Transition(id=transition)))

    change(Transition.TRANSITION_CONFIGURE)
    change(Transition.TRANSITION_ACTIVATE)
    launch.until(observer, lambda: len(received) >= 3)
    assert {(one.id, one.active) for one in received} == {("captioner", True)}
    change(Transition.TRANSITION_DEACTIVATE)
    launch.until(observer, lambda: not received[-1].active)
    assert len({one.instance_id for one in received}) == 1


def test_best_effort_cameras_are_captioned(start_quickly, observer):
    events = observer.node.create_publisher(EventPacket, "/dvs/events", DRIVER)
    images = observer.node.create_publisher(Image, "/rgb/image", DRIVER)
    launch = start_quickly(LIVE, "camera:=topics", "events:=/dvs/events", "image:=/rgb/image")
    launch.until(observer, lambda: events.get_subscription_count() and images.get_subscription_count())
    launch.until(observer, lambda: observer.node.count_publishers("/captioner/report"))
    slots = count()

    def film_until_a_window_is_complete():
        slot = next(slots)
        images.publish(frame(125 * slot, value=100 + slot % 8))
        events.publish(packet(125 * slot, seq=slot))
        reports = [(message, report.events) for _, _, message, report in observer.reports()]
        return any(message.startswith("8 frames, 5 event images") and n == 80 for message, n in reports)

    launch.until(observer, film_until_a_window_is_complete)
