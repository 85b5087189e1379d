"""The command line: at once where it can be, one sentence where the input is bad."""

from __future__ import annotations

import subprocess
import sys

from crossspec_ros.cli import main

HEAVY = ("torch", "numpy", "rclpy", "cv2", "h5py", "transformers", "yaml")


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


def test_a_path_that_is_no_recording(capsys, tmp_path):
    assert "does not exist" in sentence(capsys, "replay", tmp_path / "nowhere")
    assert "is no recording" in sentence(capsys, "replay", tmp_path)


def test_models_that_are_not_there(capsys, tmp_path, shared):
    bag = shared / "data" / "events_real" / "evt3_bag"
    assert "there are no models" in sentence(capsys, "replay", bag, "--models", tmp_path / "none")


def test_options_and_configuration_that_do_not_fit(capsys, tmp_path, shared):
    models = tmp_path / "models"
    for file, content in (
        ("target", '{"vision_config": {"image_size": 64}}'),
        ("draft/clip", '{"image_size": 64}'),
    ):
        (models / file).mkdir(parents=True)
        (models / file / "config.json").write_text(content)
    bag = shared / "data" / "events_real" / "evt3_bag"
    assert "from 0.01 to 100" in sentence(capsys, "replay", bag, "--models", models, "--rate", "0")
    assert "mode is 'x'" in sentence(capsys, "replay", bag, "--models", models, "--mode", "x")
    config = tmp_path / "config.yaml"
    config.write_text("dsec_player: {ros__parameters: {rte: 1}}")
    assert "did you mean rate?" in sentence(capsys, "replay", bag, "--models", models, "--config", config)
