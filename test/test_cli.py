"""The command line: at once where it can be, one sentence where the input is bad."""

from __future__ import annotations

import subprocess
import sys

import pytest
from stand_ins import write_models

from crossspec_ros.cli import main
from crossspec_ros.paths import share_dir

HEAVY = ("torch", "numpy", "rclpy", "cv2", "h5py", "transformers", "yaml")


@pytest.mark.parametrize("command", [["caption", "BAG"], ["bench", "latency"], ["train", "tiny"]])
def test_an_unknown_option_is_told_with_the_usage_of_its_command(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command, "--nonsense"])
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert error.startswith(f"usage: crossspec {' '.join(word for word in command if word != 'BAG')} [-h]")
    assert "unrecognized arguments: --nonsense" in error


def test_the_module_runs_as_the_command_does():
    result = subprocess.run(
        [sys.executable, "-m", "crossspec_ros.cli", "experiments", "--help"], capture_output=True, text=True
    )
    assert result.returncode == 0 and "usage: crossspec experiments" in result.stdout, result.stderr


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom crossspec_ros.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "replay" in result.stdout and result.stdout.splitlines()[-1] == "[]"


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
    told = sentence(capsys, *arguments, "--json", tmp_path / "x.json")
    assert "does not exist" in told and not (tmp_path / "x.json").exists()


def test_a_link_to_an_output_that_is_not_there_yet_stays(capsys, tmp_path):
    link, target = tmp_path / "link.json", tmp_path / "target.json"
    link.symlink_to(target)
    assert "does not exist" in sentence(capsys, "info", tmp_path / "no bag", "--json", link)
    assert link.is_symlink() and not target.exists()


def test_a_full_disk_is_a_sentence(capsys):
    bag = share_dir() / "rosbags" / "synthetic_drive"
    assert "the disk is full: make room" in sentence(capsys, "info", bag, "--json", "/dev/full")


def test_options_are_not_guessed_from_their_beginnings(capsys):
    with pytest.raises(SystemExit):
        main(["caption", "bag", "--mode", "autoregressive"])
    assert "unrecognized arguments: --mode autoregressive" in capsys.readouterr().err


def test_a_picture_needs_a_picture_s_name(capsys, tmp_path):
    assert "no picture's name" in sentence(capsys, "bench", "figure", tmp_path / "x.txt")


@pytest.mark.parametrize(
    "arguments",
    [
        "bench events --repeats 0",
        "bench figure x.png --second -1",
        "bench soak --seconds nan",
    ],
)
def test_numbers_out_of_range_are_refused(capsys, arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments.split())
    assert end.value.code == 2 and "is no" in capsys.readouterr().err


def test_a_path_that_is_no_recording(capsys, tmp_path):
    assert "does not exist" in sentence(capsys, "replay", tmp_path / "nowhere")
    assert "is no recording" in sentence(capsys, "replay", tmp_path)


def test_models_that_are_not_there(capsys, tmp_path, shared):
    bag = shared / "data" / "events_real" / "evt3_bag"
    assert "there are no models" in sentence(capsys, "replay", bag, "--models", tmp_path / "none")


def test_options_and_configuration_that_do_not_fit(capsys, tmp_path, shared):
    models, bag = write_models(tmp_path / "models"), shared / "data" / "events_real" / "evt3_bag"
    assert "from 0.01 to 100" in sentence(capsys, "replay", bag, "--models", models, "--rate", "0")
    assert "mode is 'x'" in sentence(capsys, "replay", bag, "--models", models, "--mode", "x")
    config = tmp_path / "config.yaml"
    config.write_text("dsec_player: {ros__parameters: {rte: 1}}")
    assert "did you mean rate?" in sentence(capsys, "replay", bag, "--models", models, "--config", config)


@pytest.mark.parametrize("command", ["info", "caption", "replay"])
def test_a_second_recording_is_told(tmp_path, capsys, command):
    with pytest.raises(SystemExit):
        main([command, str(tmp_path), str(tmp_path)])
    assert f"one recording is taken, and '{tmp_path}' is another" in capsys.readouterr().err
