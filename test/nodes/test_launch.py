"""The launch file starts what the command line starts; `launch` itself comes with a ROS installation only."""

from __future__ import annotations

import importlib.util

import pytest
from stand_ins import write_models

from crossspec_ros.errors import InputError
from crossspec_ros.nodes.graph import replay_graph
from crossspec_ros.paths import share_dir

launch = pytest.importorskip("launch", reason="needs a ROS installation")
pytest.importorskip("launch_ros", reason="needs a ROS installation")


@pytest.fixture
def module():
    spec = importlib.util.spec_from_file_location(
        "dsec_replay", share_dir() / "launch" / "dsec_replay.launch.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_nodes_of_the_graph_are_launched_in_the_environment_they_need(module, shared, tmp_path):
    from launch.actions import SetEnvironmentVariable
    from launch_ros.actions import Node

    bag = shared / "data" / "events_real" / "evt3_bag"
    models = write_models(tmp_path / "models")
    context = launch.LaunchContext()
    given = {"sequence": str(bag), "models": str(models), "rate": "2", "question": "yes"}
    context.launch_configurations.update(dict.fromkeys(module.ARGUMENTS, "") | given)
    actions = module.replay(context)
    nodes = [action for action in actions if isinstance(action, Node)]
    assert [node.node_executable for node in nodes] == [process.name for process in replay_graph(bag, models)]
    assert all(isinstance(action, SetEnvironmentVariable) for action in actions[: -len(nodes)])


def test_a_rate_that_is_no_number_gets_a_sentence(module):
    context = launch.LaunchContext()
    context.launch_configurations.update(dict.fromkeys(module.ARGUMENTS, "") | {"rate": "fast"})
    with pytest.raises(InputError, match="rate is 'fast', but it must be a number"):
        module.replay(context)


def test_every_argument_is_declared_with_its_description(module):
    arguments = module.generate_launch_description().get_launch_arguments()
    assert {argument.name for argument in arguments} == set(module.ARGUMENTS)
    assert all(argument.description for argument in arguments)
