"""Processes of a replay, with a decoder without models: their start, failures and end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from crossspec_msgs.msg import WindowReport
from outsider import RELIABLE, outsider, to_ns
from refusals import refused
from stand_ins import write_models

from crossspec_ros.captioning.replay_setup import ReplaySetup
from crossspec_ros.children import start
from crossspec_ros.cli import make_parser
from crossspec_ros.errors import InputError
from crossspec_ros.paths import share_dir
from crossspec_ros.ros.replay import command, run, supervise

HERE = Path(__file__).parent
SECOND = 10**9


def commands(path, models, **arguments):
    """Return the commands of a replay whose captioner needs no models."""
    setup = ReplaySetup(path, flags={"models": str(write_models(models / "models")), **arguments})
    setup.nodes["dsec_player"] |= {"startup_timeout_s": 60.0, "caption_timeout_s": 60.0}
    made = {node: command(node, setup.file, values) for node, values in setup.nodes.items()}
    made["captioner"][1:3] = [str(HERE.parent / "fake_captioner.py")]
    return made


@pytest.fixture
def bag(shared):
    return shared / "data" / "events_real" / "evt3_bag"


def environment(**more):
    folders = HERE, HERE.parent, HERE.parents[1]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), "FAKE_LOAD_S": "4", **more}


@pytest.mark.nightly
def test_two_namespaces_share_a_machine(tmp_path):
    """Both instances use simulated time."""
    names = ("front", "rear")
    with outsider() as observer:
        ends = {name: [] for name in names}
        for name in names:

            def take(message, name=name):
                ends[name].append(to_ns(message.header.stamp))

            observer.node.create_subscription(WindowReport, f"/{name}/captioner/report", take, RELIABLE)
        made = commands(share_dir() / "rosbags" / "synthetic_drive", tmp_path, rate=4.0)
        children = [
            start([*words, "-r", f"__ns:=/{name}", "-p", "use_sim_time:=true"], environment())
            for name in names
            for words in made.values()
        ]
        try:
            assert [player.wait(60.0) for player in children[2::3]] == [0, 0]
            assert all(child.poll() is None for i, child in enumerate(children) if i % 3 < 2)
        finally:
            for child in children:
                child.kill()
        assert ends["front"] == ends["rear"] == [(101 + second) * SECOND for second in range(9)]
        assert not observer["/captioner/report"]


def test_damaged_recording_ends_the_replay(bag, tmp_path, capfd):
    damaged = shutil.copytree(bag, tmp_path / "bag", copy_function=shutil.copyfile)
    file = next(damaged.glob("*.db3"))
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    try:
        code, text = supervise(commands(damaged, tmp_path, rate=50.0), environment()), capfd.readouterr().err
    except InputError as error:
        code, text = 2, str(error)
    assert code == 2 and str(damaged) in text


def test_failed_child_ends_the_replay(bag, tmp_path, capfd):
    made = commands(bag, tmp_path)
    made["synchronizer"] += ["-p", "queue_size:=0"]
    assert supervise(made, environment()) == 2
    assert "synchronizer: parameter queue_size is 0" in capfd.readouterr().err


def test_command_keeps_texts_and_names_the_topics(tmp_path):
    question = 'Is it "yes": or {no}?'
    words = command("captioner", tmp_path / "replay.yaml", {"question": question})
    assert words[:2] == [sys.executable, "-m"] and words[3:6] == [
        "--ros-args",
        "--params-file",
        str(tmp_path / "replay.yaml"),
    ]
    values = [word.partition(":=")[2] for word in words if word.startswith("question:=")]
    assert [yaml.safe_load(value) for value in values] == [question]
    assert "events:=event_camera/events" in command("synchronizer", tmp_path, {})


def test_replay_without_ros_starts_nothing(bag, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refused("rclpy-missing"):
        run(make_parser().parse_args(["replay", str(bag)]))


START = """
import sys
from pathlib import Path
from test_replay_children import commands, environment
from crossspec_ros.ros.replay import supervise
made = commands(Path(sys.argv[1]), Path(sys.argv[2]), rate=0.5)
sys.exit(supervise(made, environment(MARK=sys.argv[3])))
"""


@pytest.fixture
def replay(bag, tmp_path):
    """Yield a slow replay in its own process, and a function that lists its living processes."""
    mark = f"crossspec-test-{os.getpid()}-{time.monotonic_ns()}"

    def living():
        processes = psutil.process_iter(["environ"])
        return [each.pid for each in processes if (each.info["environ"] or {}).get("MARK") == mark]

    command = [sys.executable, "-c", START, str(bag), str(tmp_path), mark]
    process = subprocess.Popen(command, env=environment(), start_new_session=True)
    yield process, living
    process.kill()
    process.wait()


def eventually(condition, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc and the parent's death signal are Linux's")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_no_process_outlives_the_replay(replay, number, code):
    process, living = replay
    eventually(lambda: len(living()) == 3)
    if number == signal.SIGINT:  # other signals arrive while the models load
        with outsider() as observer:
            observer.wait(lambda: observer["/synchronizer/event_image"], 120.0)
    process.send_signal(number)
    assert process.wait(20.0) == code
    eventually(lambda: not living())


# During the forks, and during the imports.
@pytest.mark.nightly
@pytest.mark.parametrize("after_s", [0.05, 0.15, 0.3])
def test_interrupted_start_prints_no_traceback(bag, tmp_path, after_s):
    models = write_models(tmp_path / "models")
    command = [sys.executable, "-m", "crossspec_ros.cli", "replay", str(bag), "--models", str(models)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert "replaying" in process.stdout.readline()
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    assert "Traceback" not in process.communicate(timeout=20.0)[0]
    assert process.returncode == 130
