"""What the launch files start is what the command line starts; `launch` itself comes with a ROS only."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from stand_ins import write_models

from crossspec_ros.captioning.replay_parameters import replay_parameters
from crossspec_ros.environment import transport_variables
from crossspec_ros.errors import InputError
from crossspec_ros.paths import share_dir
from crossspec_ros.ros.graph import replay_graph
from crossspec_ros.ros.launch_arguments import LIVE, REPLAY
from crossspec_ros.ros.launch_plan import plan
from crossspec_ros.ros.live_graph import CAMERAS


@pytest.fixture
def bag(shared):
    return shared / "data" / "events_real" / "evt3_bag"


@pytest.fixture
def models(tmp_path):
    return write_models(tmp_path / "models")


def test_the_plan_of_a_replay_is_that_of_the_command_line(bag, models):
    given = {"sequence": str(bag), "models": str(models), "rate": "2", "loop": "true", "question": "yes"}
    given |= {"memory": "somewhere", "mode": "autoregressive", "dtype": "bf16"}
    nodes = plan("replay", given)["nodes"]
    parameters = replay_parameters(
        bag, models, "yes", 2.0, "autoregressive", loop=True, memory="somewhere", dtype="bf16"
    )
    processes = replay_graph(parameters)
    assert [node["executable"] for node in nodes] == [process.name for process in processes]
    assert [node["parameters"] for node in nodes] == [process.parameters for process in processes]
    assert [node["remaps"] for node in nodes] == [process.remaps for process in processes]
    assert nodes[2]["parameters"]["loop"] is True and nodes[1]["parameters"]["memory"] == "somewhere"


@pytest.mark.parametrize("arguments", [REPLAY, LIVE])
def test_the_graph_takes_every_argument_that_is_not_launch_s_own(arguments, bag, models):
    values = {"sequence": str(bag), "models": str(models), "rate": "2", "loop": "true", "dtype": "bf16"}
    values |= {"camera": "topics", "device": "cpu", "draft_device": "cpu", "mode": "autoregressive"}
    values |= {
        "fallback": "true",
        "image_transport": "compressed",
        "events": "/e",
        "image": "/i",
        "memory": "somewhere",
    }
    given = {name: values[name] for name in arguments if name in values}
    nodes = plan("live" if arguments is LIVE else "replay", given)["nodes"]
    parameters = {name: value for node in nodes for name, value in node["parameters"].items()}
    assert (parameters["mode"], parameters["models.dtype"]) == ("autoregressive", "bf16")
    assert parameters["memory"] == "somewhere" and parameters["models.fallback"] is True
    if arguments is LIVE:
        assert parameters["image_transport"] == "compressed"
        assert nodes[0]["remaps"] == {"events": "/e", "image": "/i"}
    else:
        assert parameters["loop"] is True and parameters["path"] == str(bag.resolve())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"rate": "fast"}, "rate is 'fast', but it must be a number"),
        ({"loop": "often"}, "loop is 'often', but it must be true or false"),
    ],
)
def test_a_bad_value_gets_a_sentence(given, sentence):
    with pytest.raises(InputError, match=sentence):
        plan("replay", given)


def test_compressed_images_are_looked_for_where_they_are_published(models):
    graph = plan("live", {"camera": "topics", "models": str(models), "image_transport": "compressed"})
    assert graph["nodes"][0]["remaps"]["image"] == "camera/image_raw/compressed"


def test_the_plan_is_told_as_json_and_a_refusal_as_a_sentence(models):
    command = [sys.executable, "-m", "crossspec_ros.ros.launch_plan", "live"]
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
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "numba", "rosbags", "h5py", "dv_processing", "evt3"}:
            raise ModuleNotFoundError(f"No module named '{name}'")

sys.meta_path.insert(0, Absent())
import crossspec_ros.environment, crossspec_ros.ros.launch_arguments, crossspec_ros.captioning.params
"""
    subprocess.run([sys.executable, "-c", code], check=True)


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

    def start(kind, scope=(), **given):
        context, events = launch.LaunchContext(), []
        context.launch_configurations.update(scope)

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
    actions = nodes_of(start("replay", sequence=str(bag), models=str(models)))
    names = [node.node_executable for node in actions]
    assert names == [process.name for process in replay_graph(replay_parameters(bag, models))]
    for node in actions:
        given = {key[0].text: value[0].text for key, value in node.process_description.env}
        assert given.items() >= (os.environ | transport_variables()).items()


def test_a_log_level_is_that_of_our_loggers(start, models):
    scope = {"ros_namespace": "/robot1"}
    actions = start("live", scope, camera="topics", models=str(models), namespace="front", log_level="debug")
    levels = [str(word) for node in nodes_of(actions) for word in node._Node__ros_arguments]
    assert levels == [
        word
        for name in ("synchronizer", "captioner")
        for word in ("--log-level", f"robot1.front.{name}:=debug")
    ]


@pytest.mark.parametrize("camera", CAMERAS)
def test_a_camera_s_nodes_are_launched_with_its_driver_and_a_line_about_the_choice(
    start, models, monkeypatch, camera
):
    from launch.actions import LogInfo

    from crossspec_ros.ros import live_graph as graphs

    defaults = graphs.live_graph.__defaults__
    monkeypatch.setattr(graphs.live_graph, "__defaults__", (*defaults[:-1], lambda package: True))
    source = {"source": "tcp://127.0.0.1:7"} if camera == "dv_network" else {}
    actions = start("live", camera=camera, models=str(models), **source)
    expected = plan("live", {"camera": camera, "models": str(models), **source})["nodes"]
    assert [node.node_executable for node in nodes_of(actions)] == [node["executable"] for node in expected]
    assert sum(isinstance(action, LogInfo) for action in actions) == 1


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"respawn": "often"}, "respawn is 'often', but it must be true or false"),
        ({"log_level": "loud"}, "log_level is 'loud', which is none"),
        ({"enclave": "crossspec"}, "enclave is 'crossspec', which is none"),
    ],
)
def test_what_launch_itself_cannot_follow_gets_a_sentence(start, bag, models, given, sentence):
    with pytest.raises(RuntimeError, match=sentence):
        start("replay", sequence=str(bag), models=str(models), shutdown="true", **given)


def test_a_robot_s_launch_outlives_what_cannot_work(start, launching, monkeypatch):
    told = []
    monkeypatch.setattr(launching, "get_logger", lambda name: SimpleNamespace(error=told.append))
    assert start("live", camera="davsi") == []
    assert told == ["no captions: camera is 'davsi', which is none: did you mean davis?"]
