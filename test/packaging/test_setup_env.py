"""The set-up repeats only what is due and says why it stops."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import setup_env
from setup_env import SetupError, Step


@pytest.fixture
def plan(tmp_path):
    """A run of three steps, which returns the names of those that were due, and the file of the second."""
    pins = tmp_path / "pins"
    pins.write_text("a==1")

    def run(broken: str = "") -> list[str]:
        done: list[str] = []

        def work(name: str) -> None:
            if name == broken:
                raise SetupError(name)
            done.append(name)

        inputs: dict[str, list[str | Path]] = {"first": ["x"], "second": [pins], "third": []}
        due = [Step(name, name, inputs[name], lambda name=name: work(name)) for name in inputs]
        try:
            setup_env.run_steps(due, tmp_path / "stamps")
        except SetupError as error:
            done.append(f"{error} failed")
        return done

    return run, pins


def test_steps_run_once(plan):
    run, _ = plan
    assert run() == ["first", "second", "third"]
    assert run() == []


def test_a_failed_step_is_taken_up_again(plan):
    run, _ = plan
    assert run(broken="second") == ["first", "second failed"]
    assert run() == ["second", "third"]


def test_a_changed_input_repeats_its_step_and_all_after_it(plan):
    run, pins = plan
    run()
    pins.write_text("a==2")
    assert run() == ["second", "third"]


@pytest.mark.parametrize("version", [(3, 9), (3, 14)])
def test_a_python_without_wheels_is_refused(version):
    with pytest.raises(SetupError, match=r"Python 3.10 to 3.13 is needed and this is 3.\d+; .* PYTHON="):
        setup_env.check_machine("", version)


def test_a_missing_compiler_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(SetupError, match=r"no C\+\+ compiler .* sudo apt install g"):
        setup_env.check_machine("", (3, 11))


def test_a_failing_command_stops_with_its_own_words(monkeypatch, tmp_path):
    monkeypatch.setattr(setup_env, "LOG", tmp_path / "log")
    command = [sys.executable, "-c", "raise SystemExit('no space left')"]
    with pytest.raises(SetupError, match="no space left"):
        setup_env.run(command)
    assert "no space left" in (tmp_path / "log").read_text()


def test_the_machines_ros_is_used_where_it_is_sourced():
    alone = [step.name for step in setup_env.steps("")]
    sourced = [step.name for step in setup_env.steps("humble")]
    assert [name for name in alone if name not in sourced] == ["ros"]


def test_messages_of_others_are_built_only_where_ros_has_none(tmp_path):
    (tmp_path / "ros" / "share" / "event_camera_msgs").mkdir(parents=True)
    prefixes = f"{tmp_path / 'ros'}:{tmp_path / 'empty'}"
    assert [path.name for path in setup_env.stand_ins(prefixes)] == ["dvs_msgs"]
    assert [path.name for path in setup_env.stand_ins("")] == ["dvs_msgs", "event_camera_msgs"]


@pytest.mark.parametrize("ros", ["kilted", "jazzy"])
def test_each_distribution_has_wheels_and_an_environment_of_its_own(ros, monkeypatch):
    monkeypatch.setattr(setup_env, "WHEELS", ros)
    assert next(step for step in setup_env.steps("") if step.name == "ros").inputs == [
        setup_env.LOCKS / f"{ros}.txt"
    ]
    wheels = setup_env.ROOT / f"requirements-{ros}.txt"
    pins = [line for line in wheels.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", pin) for pin in pins)
    assert {found[1] for pin in pins if (found := re.match(r"ros-(kilted|jazzy)-", pin))} == {ros}
    command = ["make", "-n", "test", f"ROS={ros}"]
    shown = subprocess.run(command, cwd=setup_env.ROOT, capture_output=True, text=True, check=True).stdout
    python = {"kilted": ".venv", "jazzy": ".venv-jazzy"}[ros] + "/bin/python"
    assert f" scripts/setup_env.py {ros}\n" in shown
    assert re.search(rf"(^| ){re.escape(python)} -m pytest -m realtime$", shown, re.MULTILINE)


def test_a_distribution_without_wheels_is_refused():
    command = [sys.executable, setup_env.__file__, "foxy"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "wheels of kilted and jazzy, not of foxy" in done.stderr
