"""`crossspec bench latency` lives through windows in real time and compares decoders in one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossspec_ros.cli import main

pytestmark = pytest.mark.realtime


@pytest.mark.nightly
def test_a_few_windows_in_real_time(tmp_path: Path) -> None:
    out, plot = tmp_path / "latency.json", tmp_path / "latency.png"
    assert main(["bench", "latency", "--windows", "2", "--json", str(out), "--plot", str(plot)]) == 0
    figures = json.loads(out.read_text())
    for key in ("close_to_caption_ratio", "close_to_first_token_ratio"):
        spread = figures[f"{key}_spread"]
        assert spread == figures["modes"]["ours"][key]
        assert spread["p10"] <= figures[key] == spread["median"] <= spread["p90"]
    assert figures["modes"]["autoregressive"]["close_to_caption_ratio"]["median"] == 1.0
    assert all(mode["equal"] == 2 for mode in figures["modes"].values())
    assert figures["modes"]["ours"]["stages_ms"]["hidden"] > 0
    assert plot.stat().st_size > 10_000
