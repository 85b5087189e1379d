"""`crossspec bench forecast`: times of a target that never ran, from recorded captions and rates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from crossspec_lab.compare.bench_forecast import Rates, row

from crossspec_ros.cli import main
from crossspec_ros.models.window_rate import Pace

QUICK = Pace(8, 1, unit_s=0.02, prompt_s=0.01, token_s=0.01, tree_s=0.02)


def test_times_follow_from_passes_and_rates() -> None:
    figures = row(Rates(QUICK, QUICK), [5, 5], [50, 50])
    assert figures["ours"]["median"] == pytest.approx(20 + 10 + 5 * 20)
    assert figures["alone"]["median"] == pytest.approx(8 * 20 + 10 + 49 * 10)
    assert figures["sooner"]["median"] == pytest.approx(660 / 130)
    assert figures["windows a second"] == pytest.approx(1 / 0.27)
    # A tree that does not pay is not verified.
    refused = row(Rates(QUICK, QUICK), [40], [50])
    assert refused["ours"]["median"] == pytest.approx(20 + 10 + 500)


def test_frames_that_cannot_be_read_in_time_are_waited_for_and_rates_may_be_off() -> None:
    slow = Pace(8, 1, unit_s=0.25, prompt_s=0.0, token_s=0.01, tree_s=0.02)
    figures = row(Rates(slow, slow, 1 / 3), [5], [51])
    ours, alone = figures["ours"], figures["alone"]
    assert ours["median"] == pytest.approx(8 * 250 - 875 + 100)
    assert ours["p10"] == pytest.approx((8 * 250 + 100) * 2 / 3 - 875)
    assert ours["p90"] == pytest.approx((8 * 250 + 100) * 4 / 3 - 875)
    assert alone["p90"] == pytest.approx((8 * 250 + 500) * 4 / 3)
    assert figures["sooner"]["p10"] == pytest.approx(alone["p90"] / ours["p90"])


def test_a_trace_and_figures_of_a_gpu_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, out = tmp_path / "trace.jsonl", tmp_path / "forecast.json"
    trace.write_text("".join(json.dumps({"target_tokens": [7, 8, 9, 10, 2]}) + "\n" for _ in range(6)))
    stages = {"stages_ms": {"frame_encode": 40.0, "target_prefill": 40.0}}
    latency = {"modes": {"autoregressive": stages, "ours": stages}}
    verify = {str(size): {"median": 10.0 + size / 32} for size in (1, 32)}
    gpu = tmp_path / "gpu.json"
    gpu.write_text(json.dumps({"device": "A", "dtypes": {"bf16": {"verify_ms": verify, "latency": latency}}}))
    command = ["bench", "forecast", str(trace), "--stride", "1", "--json", str(out)]
    assert main([*command, "--gpu", str(gpu), "--plot", str(tmp_path / "forecast.png")]) == 0
    figures = json.loads(out.read_text())
    assert figures["responses"] == 6 and figures["tokens_a_pass"] > 1
    assert list(figures["devices"]) == [
        "A, bf16",
        "Jetson Orin NX, 16 GB, 4 bits",
        "Jetson AGX Orin, 64 GB, 4 bits",
    ]
    assert figures["devices"]["A, bf16"]["alone"]["median"] == pytest.approx(80 + 4 * (10 + 1 / 32))
    gpu.write_text("{}")
    assert main([*command, "--gpu", str(gpu)]) == 2
    assert "has no figures of bench gpu" in capsys.readouterr().err
