"""The nodes of a replay and of a live camera, for the command line and for ROS's launch alike."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from reference_pages import arguments_of
from refusals import refused
from stand_ins import write_models

from crossspec_ros.captioning.replay_parameters import ReplayParameters, replay_parameters
from crossspec_ros.environment import transport_variables
from crossspec_ros.paths import share_dir
from crossspec_ros.ros import graph
from crossspec_ros.ros.graph import CAMERAS, installed, live_graph, plan, replay_graph


@pytest.fixture
def bag(shared):
    return shared / "data" / "events_real" / "evt3_bag"


@pytest.fixture
def models(tmp_path):
    return write_models(tmp_path / "models")


def nothing(package):
    return False


def everything(package):
    return True


def test_commands_have_the_parameters_the_file_and_the_topics(tmp_path):
    question = 'Is it "yes": or {no}?'
    nodes = {"synchronizer": {"image_transport": "compressed"}, "captioner": {"question": question}}
    processes = replay_graph(
        ReplayParameters(tmp_path / "replay.yaml", {**nodes, "dsec_player": {"rate": 2.5}})
    )
    synchronizer, captioner, player = (process.command() for process in processes)
    assert captioner[:4] == [sys.executable, "-m", "crossspec_ros.ros.captioner_node", "--ros-args"]
    assert captioner[4:6] == ["--params-file", str(tmp_path / "replay.yaml")]
    given = [word.partition(":=") for word in captioner if word.startswith("question:=")]
    assert [yaml.safe_load(value) for _, _, value in given] == [question]
    assert "frame:=synchronizer/frame" in captioner and "rate:=2.5" in player
    assert "image:=camera/image_raw/compressed" in synchronizer


@pytest.mark.parametrize(
    ("camera", "is_installed", "last", "image"),
    [
        ("davis", everything, "libcaer_driver", "event_camera/image_raw"),
        ("davis", nothing, "dv_camera", "camera/image_raw"),
        ("dvxplorer", everything, "libcaer_driver", "camera/image_raw"),
        ("prophesee", everything, "metavision_driver", "camera/image_raw"),
        ("topics", nothing, "no driver", "camera/image_raw"),
    ],
)
def test_each_camera_gets_who_publishes_it(models, camera, is_installed, last, image):
    synchronizer, captioner, *publishers = live_graph(
        camera, models=models, is_installed=is_installed
    ).processes
    assert (synchronizer.name, captioner.name) == ("synchronizer", "captioner")
    assert synchronizer.remaps == {"events": "event_camera/events", "image": image}
    assert synchronizer.parameters["frame_size"] == 24
    assert last in live_graph(camera, models=models, is_installed=is_installed).choice
    assert [{process.name, process.package} & {last} for process in publishers] == [{last}] * len(publishers)
    if last == "libcaer_driver":
        assert publishers[0].parameters["device_type"] == camera


def test_a_network_stream_and_topics_are_wired_as_asked(models):
    *_, captioner, camera = live_graph(
        "dv_network", "tcp://host:7", "host:8", models=models, question="why?"
    ).processes
    assert {"source": "tcp://host:7", "frames": "host:8"}.items() <= camera.parameters.items()
    assert captioner.parameters["question"] == "why?"
    wired = live_graph("topics", events="/e", image="/i", models=models)
    assert wired.processes[0].remaps == {"events": "/e", "image": "/i"}
    wired = live_graph("topics", models=models, image_transport="compressed")
    assert wired.processes[0].remaps["image"] == "camera/image_raw/compressed"


@pytest.mark.parametrize(
    ("camera", "arguments", "code"),
    [
        ("davsi", {}, "camera-unknown"),
        ("dv_network", {}, "camera-without-source"),
        ("davis", {"source": "tcp://h:1"}, "source-of-usb-camera"),
        ("prophesee", {"events": "/e"}, "topic-of-camera"),
        ("prophesee", {}, "driver-missing"),
        ("topics", {"log_level": "loud"}, "log-level-unknown"),
        ("topics", {"enclave": "crossspec"}, "launch-enclave"),
        ("", {"rate": "fast"}, "launch-rate"),
    ],
)
def test_what_cannot_work_gets_a_sentence(models, monkeypatch, camera, arguments, code):
    monkeypatch.setenv("ROS_DISTRO", "kilted")
    monkeypatch.setattr(graph, "installed", nothing)
    with refused(code):
        plan("live", {"camera": camera, "models": str(models), **arguments})


def test_a_package_is_installed_where_the_index_has_it(tmp_path, monkeypatch):
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"/nowhere:{tmp_path}")
    marker = tmp_path / "share" / "ament_index" / "resource_index" / "packages" / "libcaer_driver"
    assert not installed("libcaer_driver")
    marker.parent.mkdir(parents=True)
    marker.touch()
    assert installed("libcaer_driver")


@pytest.mark.parametrize("kind", ["dsec_replay", "live"])
def test_the_plan_takes_every_argument_that_is_not_launch_s_own(kind, bag, models):
    values = {"sequence": str(bag), "models": str(models), "rate": "2", "loop": "true", "dtype": "bf16"}
    values |= {"camera": "topics", "device": "cpu", "draft_device": "cpu", "mode": "autoregressive"}
    values |= {"image_transport": "compressed", "memory": "somewhere"}
    values |= {"use_sim_time": "true", "log_level": "debug", "enclave": "/e", "namespace": "/robot1/front"}
    arguments = arguments_of(share_dir() / "launch" / f"{kind}.launch.py")
    given = {name: values[name] for name in arguments if name in values}
    nodes = plan(kind.removeprefix("dsec_"), given)["nodes"]
    parameters = {name: value for node in nodes for name, value in node["parameters"].items()}
    assert (parameters["mode"], parameters["models.dtype"]) == ("autoregressive", "bf16")
    assert parameters["memory"] == "somewhere"
    for node in nodes:
        name = node["name"]
        level = ["--log-level", f"robot1.front.{name}:=debug"]
        assert node["ros_arguments"] == [*level, "--enclave", f"/e/{name}"]
        assert node["parameters"]["use_sim_time"] is True
    if kind == "live":
        assert parameters["image_transport"] == "compressed"
    else:
        assert parameters["loop"] is True and parameters["path"] == str(bag.resolve())


def test_the_plan_is_told_as_json_and_a_refusal_as_a_sentence(models):
    command = [sys.executable, "-m", "crossspec_ros.ros.graph", "live"]
    given = {"camera": "topics", "models": str(models)}
    told = subprocess.run([*command, json.dumps(given)], capture_output=True, text=True)
    assert json.loads(told.stdout) == plan("live", given)
    told = subprocess.run([*command, json.dumps({"camera": "davsi"})], capture_output=True, text=True)
    assert told.returncode == 2
    assert told.stderr == "crossspec: error: camera is 'davsi', which is none: did you mean davis?\n"


def test_a_launch_file_needs_no_more_than_ros_has():
    """Launch runs in the system's Python, and what a virtual environment has is not there."""
    code = """
import sys
sys.path.insert(0, "scripts")
from reference_pages import ROOT, arguments_of
for name in [name for name in sys.modules if name.startswith("crossspec_ros")]:
    del sys.modules[name]
sys.modules |= dict.fromkeys(["torch", "numba", "rosbags", "h5py", "dv_processing", "evt3"])
for file in (ROOT / "launch").glob("*.launch.py"):
    arguments_of(file)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@pytest.fixture
def launching():
    pytest.importorskip("launch_ros", reason="needs a ROS installation")
    from crossspec_ros.ros import launching

    return launching


@pytest.mark.parametrize("kind", ["replay", "live"])
def test_the_launch_files_declare_their_arguments_and_leave_nothing_in_the_parent_s_scope(launching, kind):
    from launch.actions import OpaqueFunction

    import launch

    path = share_dir() / "launch" / launching.FILES[kind]
    spec = importlib.util.spec_from_file_location("launch_file", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    description = module.generate_launch_description()
    declared = {argument.name: argument for argument in description.get_launch_arguments()}
    assert {name: argument.description for name, argument in declared.items()} == module.ARGUMENTS
    context = launch.LaunchContext()
    context.launch_configurations.update(mode="teleop", camera="davis")
    before = dict(context.launch_configurations), dict(context.environment)
    for entity in description.entities:
        if not isinstance(entity, OpaqueFunction):
            entity.visit(context)
    assert (context.launch_configurations, context.environment) == before


@pytest.fixture
def start(launching, monkeypatch):
    """The actions of a graph with these arguments, planned by the Python of this test."""
    import launch

    async def planned(graph):
        return plan(graph._kind, graph._planned)

    monkeypatch.setattr(launching.Graph, "_plan", planned)

    def start(kind, **given):
        context, events = launch.LaunchContext(), []

        async def emit(event):
            events.append(event)

        context.emit_event = emit
        asyncio.run(launching.Graph(kind, given, context).start(context))
        (included,) = events
        actions = included.launch_description.entities
        if len(actions) > 1:
            return actions
        actions[0].execute(context)
        return []

    return start


def nodes_of(actions):
    from launch_ros.actions import Node

    return [action for action in actions if isinstance(action, Node)]


def test_the_nodes_of_the_graph_are_launched_in_the_environment_they_need(start, bag, models):
    actions = nodes_of(start("replay", sequence=str(bag), models=str(models), log_level="debug"))
    names = [node.node_executable for node in actions]
    assert names == [process.name for process in replay_graph(replay_parameters(bag, models))]
    for node, name in zip(actions, names, strict=True):
        given = {key[0].text: value[0].text for key, value in node.process_description.env}
        assert given.items() >= (os.environ | transport_variables()).items()
        level = [str(word) for word in node._Node__ros_arguments]
        assert level == ["--log-level", f"{name}:=debug"]


@pytest.mark.parametrize("camera", CAMERAS)
def test_a_camera_s_nodes_are_launched_with_its_driver_and_a_line_about_the_choice(
    start, models, monkeypatch, camera
):
    from launch.actions import LogInfo

    monkeypatch.setattr(graph, "installed", everything)
    source = {"source": "tcp://127.0.0.1:7"} if camera == "dv_network" else {}
    actions = start("live", camera=camera, models=str(models), **source)
    expected = plan("live", {"camera": camera, "models": str(models), **source})["nodes"]
    assert [node.node_executable for node in nodes_of(actions)] == [node["executable"] for node in expected]
    assert sum(isinstance(action, LogInfo) for action in actions) == 1


def test_what_launch_itself_cannot_follow_gets_a_sentence(start, bag, models):
    with pytest.raises(RuntimeError):
        start("replay", sequence=str(bag), models=str(models), shutdown="true", respawn="often")


def test_a_robot_s_launch_outlives_what_cannot_work(start, launching, monkeypatch):
    told = []
    monkeypatch.setattr(launching, "get_logger", lambda name: SimpleNamespace(error=told.append))
    assert start("live", camera="davsi") == []
    assert told == ["no captions: camera is 'davsi', which is none: did you mean davis?"]
