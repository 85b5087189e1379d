"""Launch files: their arguments, the nodes' parameters, and the end of nodes."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from reference_pages import _without_launch
from refusals import refused

from crossspec_ros.paths import share_dir
from crossspec_ros.settings import CaptionerSettings, PlayerSettings

ROOT = Path(__file__).parents[2]


def test_launch_file_needs_ros_packages_only():
    """Launch runs in the Python of `ros2`, which has no packages of a virtual environment."""
    code = """
import sys
sys.path.insert(0, "scripts")
from reference_pages import ROOT, arguments_of
for name in [name for name in sys.modules if name.startswith("crossspec_ros")]:
    del sys.modules[name]
libraries = ["torch", "numba", "rosbags", "h5py", "dv_processing", "neuromorphic_drivers", "evt3"]
sys.modules |= dict.fromkeys(libraries)
for file in (ROOT / "launch").glob("*.launch.py"):
    arguments_of(file)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Return a function that returns the nodes of live.launch.py and their remappings, without a driver."""
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    with _without_launch():
        live = runpy.run_path(str(ROOT / "launch" / "live.launch.py"))
    defaults = {name: default or "" for name, (default, _) in live["ARGUMENTS"].items()}

    class Fake(dict):
        def node(self, settings, remappings=()):
            return settings.node, dict(remappings)

    return lambda **arguments: dict(live["nodes"](Fake(defaults | arguments)))


@pytest.mark.parametrize(
    ("arguments", "node"),
    [
        ({"camera": "usb", "serial": "0042"}, "usb_camera"),
        ({"camera": "dv_network", "source": "tcp://127.0.0.1:7777"}, "dv_camera"),
        ({"camera": "topics"}, None),
    ],
)
def test_live_starts_the_node_of_the_camera(started, arguments, node):
    nodes = started(**arguments)
    assert nodes.keys() == {"synchronizer", "captioner", node} - {None}
    assert nodes["synchronizer"] == {"events": "event_camera/events", "image": "camera/image_raw"}


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("serial-of-another-camera", {"camera": "davis", "serial": "0042"}),
        ("source-of-usb-camera", {"camera": "usb", "source": "tcp://127.0.0.1:7777"}),
    ],
)
def test_argument_of_another_camera_is_refused(started, code, arguments):
    with refused(code):
        started(**arguments)


@pytest.fixture
def launch():
    # The repository also has a folder launch/.
    pytest.importorskip("launch_ros", reason="needs a ROS installation")
    return pytest.importorskip("launch")


@pytest.fixture
def guest(launch):
    """Return a function that makes a guest with launch arguments over the defaults."""
    from crossspec_ros.ros.launch_actions import Guest, arguments

    def make(**values):
        context = launch.LaunchContext()
        declared = arguments("replay.yaml", "false", PlayerSettings, CaptionerSettings)
        context.launch_configurations.update({name: default for name, (default, _) in declared.items()})
        context.launch_configurations.update(values)
        return Guest(context)

    return make


def parameters(node):
    """Return a node's params_file and the values that override it."""
    from launch_ros.utilities import evaluate_parameters

    from launch import LaunchContext

    return evaluate_parameters(LaunchContext(), node._Node__parameters)


def test_only_set_arguments_reach_a_node(guest):
    file, values = parameters(guest().node(CaptionerSettings))
    assert (file, values) == (share_dir() / "config" / "replay.yaml", {})


def test_arguments_keep_their_types(guest):
    """YAML would read the text yes as a boolean."""
    one, several = "Is it dark? [yes, no]", "['Is it dark? [yes, no]', 'Is it wet? [yes, no]']"
    made = guest(question="yes", dtype="bf16", questions=one, rate="2", loop="true", use_sim_time="true")
    _, captioner = parameters(made.node(CaptionerSettings))
    _, player = parameters(made.node(PlayerSettings, path="12"))
    assert captioner == {"question": "yes", "models.dtype": "bf16", "questions": (one,), "use_sim_time": True}
    assert player == {"path": "12", "rate": 2, "loop": True, "use_sim_time": True}
    _, captioner = parameters(guest(questions=several).node(CaptionerSettings))
    assert captioner["questions"] == (one, "Is it wet? [yes, no]")


def test_missing_params_file_is_refused(guest):
    with refused("launch-params-file"):
        guest(params_file="nowhere.yaml").node(CaptionerSettings)


@pytest.mark.parametrize(
    ("respawn", "code", "is_player", "ended"),
    [
        ("true", -9, False, 0),
        ("true", 1, False, 0),
        ("true", 2, False, 3),
        ("true", 0, True, 3),
        ("true", -9, True, 0),
        ("false", 0, False, 3),
        ("false", -9, True, 3),
    ],
)
def test_final_end_of_a_node_ends_the_replay(guest, respawn, code, is_player, ended):
    made = guest(use_respawn=respawn)
    nodes = [object() for _ in range(3)]
    made.nodes, made.player = nodes, nodes[-1]
    event = SimpleNamespace(action=nodes[-1 if is_player else 0], returncode=code, process_name="one")
    action = made._on_exit(event, SimpleNamespace(is_shutdown=False))
    matches = action.event.process_matcher if action else lambda node: False
    assert sum(map(matches, [*nodes, object()])) == ended
    idle, stopped = (SimpleNamespace(reason=reason) for reason in ("idle", "ctrl-c (SIGINT)"))
    made.finish(stopped, None)
    if ended and code:
        with pytest.raises(RuntimeError, match=f"one ended with code {code}"):
            made.finish(idle, None)
    else:
        made.finish(idle, None)


def test_end_of_a_live_node_ends_no_other(guest):
    made = guest(use_respawn="true")
    made.nodes = [object(), object()]
    event = SimpleNamespace(action=made.nodes[0], returncode=2, process_name="captioner-2")
    action = made._on_exit(event, SimpleNamespace(is_shutdown=False))
    assert [*map(action.event.process_matcher, made.nodes)] == [True, False]


@pytest.mark.parametrize(
    ("configured", "typed", "warned"),
    [
        ({"respawn": "true"}, ["respawn:=true"], ["respawn", "--show-args"]),
        ({"colour": "red"}, ["colour:=red"], ["colour", "--show-args"]),
        ({"colour": "red", "map": "a"}, ["map:=a"], []),
        ({"qestion": "Who?", "map": "a"}, [], ["qestion", "question"]),
    ],
)
def test_unknown_argument_gets_a_warning(launch, monkeypatch, configured, typed, warned):
    """Only similar names are reported among the arguments of an including file."""
    from crossspec_ros.ros import launch_actions

    lines = []
    logger = SimpleNamespace(warning=lines.append, error=lines.append)
    monkeypatch.setattr(launch_actions, "get_logger", lambda name: logger)
    context = launch.LaunchContext(argv=typed)
    context.launch_configurations.update(configured)
    launch_actions.warn_unknown(context, launch_actions.arguments("live.yaml", "true", CaptionerSettings))
    assert all(word in " ".join(lines) for word in warned) and len(lines) == bool(warned)


@pytest.mark.parametrize("kind", ["dsec_replay", "live"])
def test_launch_file_declares_arguments_in_its_scope(launch, kind):
    """An including file may have arguments with the same names."""
    from launch.launch_description_sources import PythonLaunchDescriptionSource

    context = launch.LaunchContext()
    context.launch_configurations.update(mode="teleop", camera="topics")
    before = dict(context.launch_configurations)
    path = ROOT / "launch" / f"{kind}.launch.py"
    description = PythonLaunchDescriptionSource(str(path)).get_launch_description(context)
    names = {argument.name for argument in description.get_launch_arguments()}
    assert {"params_file", "namespace", "use_sim_time", "log_level", "use_respawn", "question"} <= names
    entities = [description]
    while entities:
        entity = entities.pop(0)
        if not isinstance(entity, launch.actions.OpaqueFunction):
            entities = [*(entity.visit(context) or ()), *entities]
    assert context.launch_configurations == before
