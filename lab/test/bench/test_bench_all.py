"""`crossspec bench all` runs every benchmark once, each with arguments that it knows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from crossspec_lab.bench import all as bench_all

from crossspec_ros.cli import main, make_parser


def test_what_is_there_is_kept_and_a_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def bench(command: list[str]) -> SimpleNamespace:
        make_parser().parse_args(command[3:])
        file = Path(command[-1])
        ran.append(file.stem)
        file.write_text(json.dumps({}))
        return SimpleNamespace(returncode=int(file.stem == "events"))

    monkeypatch.setattr(subprocess, "run", bench)
    monkeypatch.setattr(bench_all, "_SMOL_FOLDER", tmp_path)
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "latency.json").write_text("{}")
    assert main(["bench", "all", "--results", str(tmp_path)]) == 1
    assert ran == [name for name in bench_all.RUNS if name != "latency"]
    assert "events: 0 minutes, exit code 1" in capsys.readouterr().out
    assert main(["bench", "all", "--results", str(tmp_path)]) == 1 and ran[-1] == "events"
    assert {"smol_captions", "smol_stream", "smol_latency", "smol_lossless"} <= {*ran}
    (tmp_path / "model.safetensors").unlink()
    assert main(["bench", "all", "--results", str(tmp_path / "without")]) == 1
    assert ran[-1] == "events" and "left out: runs of smol" in capsys.readouterr().out
    assert main(["bench", "all", "smol_stream", "--results", str(tmp_path / "without")]) == 2
