"""The set-up repeats only steps that are due, and installs only locked files."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import setup_env
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from setup_env import ROOT, SetupError

MADE_OF = {"robot": [""], "rest": ["-codecs", "-dev", "-serve", "-lab"], "kilted": ["-kilted"]}
MADE_OF |= {"jazzy": ["-jazzy"], "audit": ["-audit"], "real": ["-real"]}
"""The requirements in each lock."""


def versions(lock):
    """Return the versions of each package of a lock."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^(\w\S*)==(\S+)", (ROOT / "locks" / lock).read_text(), re.MULTILINE):
        found.setdefault(canonicalize_name(name), set()).add(version)
    return found


@pytest.mark.parametrize("lock", MADE_OF)
def test_lock_holds_its_requirements(lock):
    found = versions(f"{lock}.txt")
    for kind in MADE_OF[lock]:
        lines = (ROOT / f"requirements{kind}.txt").read_text().splitlines()
        for pin in (Requirement(line) for line in lines if line and line[0] != "#"):
            assert any(map(pin.specifier.contains, found[canonicalize_name(pin.name)])), pin


def test_locks_agree_about_versions():
    robot = versions("robot.txt")
    for lock in ("rest.txt", "kilted.txt", "jazzy.txt"):
        assert all(found <= robot.get(name, found) for name, found in versions(lock).items())
    assert versions("torch-cpu.txt")["torch"] == {f"{version}+cpu" for version in robot["torch"]}


def test_steps_run_once_and_after_a_change(tmp_path):
    pins, done = tmp_path / "pins", []

    def act(name, broken):
        if name == broken:
            raise SetupError(name)
        done.append(name)

    def run(broken=""):
        done.clear()
        steps = {"first": ["x"], "second": [pins], "third": []}
        plan = [(name, inputs, lambda name=name: act(name, broken)) for name, inputs in steps.items()]
        setup_env.run_steps(plan, tmp_path / "stamps")
        return list(done)

    pins.write_text("a==1")
    with pytest.raises(SetupError):
        run(broken="second")
    assert done == ["first"] and run() == ["second", "third"]
    pins.write_text("a==2")
    assert run() == ["second", "third"] and run() == []


def test_sourced_ros_replaces_wheels():
    names = [[step[0] for step in setup_env.steps(False, ros)] for ros in ("", "humble")]
    assert set(names[0]) - set(names[1]) == {"ros"}
    everything = [step[0] for step in setup_env.steps(True, "")]
    assert everything[: len(names[0])] == names[0] and everything[len(names[0]) :] == ["rest", "laboratory"]


@pytest.mark.parametrize(("numpy", "own"), [("1.26.4", {"numpy==1.26.4"}), ("2.2.6", set())])
def test_sourced_ros_keeps_its_packages(monkeypatch, numpy, own):
    installed = []
    monkeypatch.setattr(setup_env, "install", installed.append)
    monkeypatch.setattr(setup_env, "evaluate", lambda expression: numpy)
    setup_env.install_packages(setup_env.ROBOT, "humble")
    assert set(re.findall(r"^(?:numpy|opencv|cv-bridge|torch)\S+", installed[0], re.MULTILINE)) == own


@pytest.mark.parametrize("refusal", ["No matching distribution", "PACKAGES DO NOT MATCH THE HASHES"])
def test_cpu_build_may_be_absent_but_not_forged(monkeypatch, refusal):
    installed = []

    def install(locked):
        installed.append(locked)
        if len(installed) == 1:
            raise SetupError(refusal)

    monkeypatch.setattr(setup_env, "install", install)
    if "HASHES" in refusal:
        with pytest.raises(SetupError):
            setup_env.install_torch("")
    else:
        setup_env.install_torch("")
        assert "nvidia-" in installed[1]


def test_pip_checks_the_hashes_of_locked_files(monkeypatch, tmp_path):
    commands = []
    monkeypatch.setattr(setup_env, "VENV", tmp_path)
    monkeypatch.setattr(setup_env, "pip", lambda *words: commands.append(words))
    setup_env.install("parcel==1.0 --hash=sha256:0\n")
    assert {"--require-hashes", "--no-deps"} <= set(commands[0])
    assert Path(commands[0][-1]).read_text() == "parcel==1.0 --hash=sha256:0\n"


def test_make_names_the_environment_of_jazzy():
    command = ["make", "-n", "test", "ROS=jazzy"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "setup_env.py all jazzy\n" in shown and ".venv-jazzy/bin/mypy" in shown
