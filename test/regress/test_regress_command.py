"""`crossspec regress` on the sample bag: shipped goldens pass, and every output shows planted regressions."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from xml.etree import ElementTree

import pytest
from planted import write_drive
from stand_ins import write_models

from crossspec_ros.cli import main
from crossspec_ros.paths import share_dir, tiny_models
from crossspec_ros.regress.golden import golden_folder

pytest_plugins = ["pytester"]

BAG = share_dir() / "rosbags" / "synthetic_drive"
WINDOWS = len(json.loads((BAG / "ground_truth.json").read_text())["windows"])


@pytest.mark.nightly
def test_separately_named_models_have_their_own_goldens(tmp_path, capsys, brief):
    bag, golden = write_drive(tmp_path / "drive"), tmp_path / "golden"
    tiny = tiny_models()
    named = [*f"--target {tiny}/target --draft {tiny}/draft --golden {golden}".split(), *brief]
    assert main(["regress", str(bag), "--update", *named]) == 0
    capsys.readouterr()
    assert main(["regress", str(bag), *named]) == 0
    assert re.fullmatch(r"all \d checks passed\n", capsys.readouterr().out)
    assert main(["regress", str(bag), *named, "--dtype", "bf16"]) == 2
    assert "with models_dtype 'float32', but this run has 'bf16': use the same" in capsys.readouterr().err
    # Links to models are followed, and other models are distinguished.
    other = tmp_path / "models"
    shutil.copytree(tiny, other)
    config = other / "draft" / "config.json"
    config.write_text(config.read_text() + "\n")
    (tmp_path / "linked").mkdir()
    for name, models in (("target", tiny), ("draft", other)):
        (tmp_path / "linked" / name).symlink_to(models / name)
    linked = ["--golden", str(golden), "--models", str(tmp_path / "linked"), *brief]
    assert main(["regress", str(bag), *linked]) == 2
    assert "was made with another pair of models" in capsys.readouterr().err


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Return goldens with another word, stamp and window, and the command's exit code and output."""
    folder = tmp_path_factory.mktemp("planted")
    content = json.loads((golden_folder(BAG) / "windows.json").read_text())
    windows = content["windows"]
    windows[2]["caption"] = windows[2]["caption"].replace("The key", "No key", 1)
    windows[4]["frame_stamps_ns"][3] += 1_000_000
    windows.append({**windows[-1], "end_ns": windows[-1]["end_ns"] + 10**9})
    (folder / "windows.json").write_text(json.dumps(content))
    arguments = ["--golden", folder, "--junit", folder / "junit.xml"]
    with redirect_stdout(StringIO()) as printed:
        code = main(["regress", str(BAG), *map(str, arguments)])
    return folder, code, printed.getvalue()


def test_planted_regressions_are_printed(planted):
    _, code, printed = planted
    assert code == 1
    word, stamp, window, verdict = printed.splitlines()
    assert word.startswith("window 2-3 s: caption: [-No-] {+The+} key elements in this scene include ")
    assert stamp == ("window 4-5 s: stamp of frame 4: expected 104.401000000 s, is 104.400000000 s (-1 ms)")
    assert re.match(rf"window {WINDOWS}-{WINDOWS + 1} s: dropped window: expected \d+ events, '\w", window)
    assert verdict == f"3 of {WINDOWS + 2} checks failed"


def test_planted_regressions_are_in_the_junit_file(planted):
    suite = ElementTree.parse(planted[0] / "junit.xml").getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == (str(WINDOWS + 2), "3")
    failures = {case.get("name"): case.find("failure") for case in suite.iter("testcase")}
    assert {name: f.get("message") for name, f in failures.items() if f is not None} == {
        "window 2-3 s": "caption",
        "window 4-5 s": "stamp of frame 4",
        f"window {WINDOWS}-{WINDOWS + 1} s": "dropped window",
    }
    assert "[-No-] {+The+}" in failures["window 2-3 s"].text


@pytest.mark.nightly
def test_update_writes_the_shipped_goldens(tmp_path, capsys):
    assert main(["regress", str(BAG), "--golden", str(tmp_path / "new"), "--update"]) == 0
    written = (tmp_path / "new" / "windows.json").read_text()
    assert written == (golden_folder(BAG) / "windows.json").read_text()
    assert capsys.readouterr().out == f"{tmp_path / 'new' / 'windows.json'}: {WINDOWS} windows\n"


def sentence(capsys, *arguments):
    assert main(["regress", *map(str, arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("crossspec: error: ") and error.count("\n") == 1
    return error


def test_bad_input_is_refused_before_any_work(capsys, tmp_path):
    missing = tmp_path / "missing" / "file"
    assert "name a file in an existing folder" in sentence(capsys, BAG, "--html", missing)
    assert "name a file in an existing folder" in sentence(capsys, BAG, "--junit", missing)
    assert "does not exist" in sentence(capsys, missing)
    assert "write goldens with --update" in sentence(capsys, BAG, "--golden", tmp_path)
    assert "--update does not compare" in sentence(capsys, BAG, "--update", "--html", tmp_path / "page")


def test_goldens_of_another_recording_are_refused(capsys, tmp_path):
    drive = write_drive(tmp_path / "drive")
    arguments = ("--golden", golden_folder(BAG), "--models", write_models(tmp_path / "models"))
    assert "was made with another recording" in sentence(capsys, drive, *arguments)


TEST_OF_A_USER = """
def test_planted(crossspec_regress):
    planted = crossspec_regress({bag!r}, golden={golden!r})
    assert [d.what for d in planted] == ["caption", "stamp of frame 4", "dropped window"]
    assert "[-No-]" in str(planted[0])
"""


def test_fixture_returns_planted_differences(pytester, planted, monkeypatch):
    # After an installation of the package, the plugin would be loaded twice.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(TEST_OF_A_USER.format(bag=str(BAG), golden=str(planted[0])))
    result = pytester.runpytest_inprocess("-p", "crossspec_ros.regress.plugin")
    result.assert_outcomes(passed=1)


def test_unused_plugin_imports_nothing():
    code = (
        "import sys, crossspec_ros.regress.plugin\n"
        "print([name for name in ('numpy', 'torch', 'rclpy', 'rosbags') if name in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == "[]\n"
