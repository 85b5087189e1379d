"""The gate's benchmark tells changed windows from others by their true captions, and times the target."""

from __future__ import annotations

import json

from crossspec_lab.compare import bench_change

from crossspec_ros.cli import main


def test_both_kinds_of_drive_have_curves_and_the_target_works_less(tmp_path, monkeypatch):
    monkeypatch.setattr(bench_change, "CONTRASTS", (0.0, 0.14, 5.0))
    monkeypatch.setattr(bench_change, "WINDOWS_PER_DRIVE", 5)
    monkeypatch.setattr(bench_change, "TIMED_DRIVES", 1)
    monkeypatch.setattr(bench_change, "REPEATS", 1)
    out, plot = tmp_path / "change.json", tmp_path / "change.png"
    assert main(["bench", "change", "--windows", "5", "--json", str(out), "--plot", str(plot)]) == 0
    figures = json.loads(out.read_text())
    for world in ("stop and go", "driving"):
        for curve in figures["curves"][world].values():
            assert curve["0.0"]["changed_captioned"] == 1.0 and not curve["0.0"]["same_held_back"]
            assert curve["5.0"]["changed_captioned"] == 0.0
        assert figures[world]["changed"] + figures[world]["same"] == 4
    times = figures["target_s_per_minute"]
    assert 0 < times["windows_captioned"] <= times["windows"] == 5
    assert times["always"]["median"] > 0 and times["changed"]["median"] > 0
    assert plot.stat().st_size
