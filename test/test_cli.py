"""The command line: fast help, and one sentence for invalid input."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from stand_ins import write_models

from crossspec_ros import cli
from crossspec_ros.cli import main
from crossspec_ros.paths import share_dir

HEAVY = ("torch", "numpy", "rclpy", "cv2", "h5py", "transformers", "yaml")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("caption BAG --nonsense", "; crossspec caption --help"),
        ("bench latency --nonsense", "; crossspec bench latency --help"),
        ("caption BAG --mode autoregressive", "unrecognized arguments: --mode"),
        ("bench events --repeats 0", "is no"),
        ("bench figure x.png --second -1", "is no"),
        ("bench soak --seconds nan", "is no"),
        ("info BAG OTHER", "unrecognized arguments: OTHER"),
        ("info BAG test", "'test' is a second recording"),
        ("info BAG --mode test", "unrecognized arguments: --mode test"),
    ],
)
def test_invalid_arguments_are_refused(arguments, problem, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == 2 and problem in capsys.readouterr().err


def test_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and re.fullmatch(r"crossspec \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize("command", [["bench", "latency", "--windows", "3"], ["synth", "x"], ["train"]])
def test_missing_laboratory_is_named(command, capsys, monkeypatch):
    monkeypatch.setattr(cli, "entry_points", lambda **selection: ())
    assert main(command) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"crossspec: error: crossspec {command[0]} is in the laboratory, which is not")
    assert "pip install ./lab" in error


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom crossspec_ros.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "replay" in result.stdout and result.stdout.splitlines()[-1] == "[]"


def test_too_little_memory_is_one_sentence(capsys, monkeypatch):
    def run(args):
        raise MemoryError("the models need 9.0 GB on the CPU, 1.0 GB are free")

    monkeypatch.setattr(
        cli, "_robot", lambda subparsers: subparsers.add_parser("x").set_defaults(handler=run)
    )
    error = sentence(capsys, "x")
    assert "memory ran out (the models need 9.0 GB on the CPU, 1.0 GB are free): end" in error


def sentence(capsys, *arguments):
    assert main([str(argument) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("crossspec: error: ") and error.count("\n") == 1
    return error


@pytest.mark.parametrize("command", ["info", "bench events --no-ros --repeats 1"])
def test_outputs_are_tried_before_the_work(capsys, tmp_path, command, monkeypatch):
    bag = tmp_path / "no bag"
    arguments = [*command.split(), bag]
    for output in (tmp_path, tmp_path / "nowhere" / "x.json"):
        assert "cannot be written" in sentence(capsys, *arguments, "--json", output)
    error = sentence(capsys, *arguments, "--json", tmp_path / "x.json")
    assert "does not exist" in error and not (tmp_path / "x.json").exists()


def test_link_to_a_new_output_stays(capsys, tmp_path):
    link, target = tmp_path / "link.json", tmp_path / "target.json"
    link.symlink_to(target)
    assert "does not exist" in sentence(capsys, "info", tmp_path / "no bag", "--json", link)
    assert link.is_symlink() and not target.exists()


def test_unusable_input_is_one_sentence(capsys, tmp_path, shared):
    models, bag = write_models(tmp_path / "models"), shared / "data" / "events_real" / "evt3_bag"
    (tmp_path / "config.yaml").write_text("dsec_player: {ros__parameters: {rte: 1}}")
    for arguments, problem in (
        (["replay", bag, "--models", models, "--rate", "0"], "from 0.01 to 100"),
        (["replay", bag, "--models", models, "--mode", "x"], "mode is 'x'"),
        (["replay", bag, "--models", models, "--config", tmp_path / "config.yaml"], "did you mean rate?"),
        (["replay", bag, "--models", tmp_path / "none"], "there are no models"),
        (["replay", tmp_path / "nowhere"], "does not exist"),
        (["replay", tmp_path], "is no recording"),
        (["bench", "figure", tmp_path / "x.txt"], "picture"),
        (["info", share_dir() / "rosbags" / "synthetic_drive", "--json", "/dev/full"], "the disk is full"),
    ):
        assert problem in sentence(capsys, *arguments)
