"""Heads are trained and compared by the commands that docs/drafters.md names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from crossspec_lab.baselines.retrieval import taught_tokens
from crossspec_lab.bench import heads as bench_heads
from crossspec_lab.bench.heads import COLD, FIRST, NOVELTY, REPEATED, USUAL, Captioned
from crossspec_lab.train.pairs import PairShards
from crossspec_lab.world.dataset import UNSEEN
from crossspec_lab.world.phrases import caption

from crossspec_ros.cli import main
from crossspec_ros.models.loading import load_pair
from crossspec_ros.paths import share_dir, tiny_models

NAMES = ["L1", "medusa"]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_heads_are_trained_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["--out", str(tmp_path / "heads"), "--work", str(tmp_path / "work")]
    train = ["train", "heads", *NAMES, "--windows", "10", "--steps", "3", *folders]
    assert main(train) == 0
    config = json.loads((tmp_path / "heads" / "L1" / "config.json").read_text())
    assert config["training"]["variant"] == "L1" and config["training"]["windows"] == 10
    said = capsys.readouterr().out.replace("\n", "")
    assert all(str(tmp_path / "heads" / name) in said for name in NAMES)

    out = tmp_path / "heads.json"
    bench = ["bench", "heads", "--heads", str(tmp_path / "heads"), "--windows", "8", "--warm", "0"]
    assert main([*bench, "--json", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert figures["windows"] == {COLD: 2, FIRST: 2, REPEATED: 6}
    rows = figures["heads"]
    assert list(rows) == [USUAL, "L1", "medusa"]
    for name, row in rows.items():
        for novelty in NOVELTY:
            length = row["tokens_per_pass"][novelty]
            assert 1 <= length["low"] <= length["mean"] <= length["high"]
        assert row["time_ratio"]["median"] > 0 and ("parameters" in row) == (name != USUAL)
    assert rows[USUAL]["gain"][FIRST] == {"mean": 0, "low": 0, "high": 0}
    assert 0 <= rows["L1"]["offline"]["top1"] <= rows["L1"]["offline"]["top5"] <= 1
    assert -1 <= rows["L1"]["offline"]["cosine"] <= 1 and "cosine" not in rows["medusa"]["offline"]
    assert rows["L1"]["alone_tokens_per_pass"]["mean"] >= 1


@pytest.mark.nightly
def test_a_head_learns_first_what_the_target_was_taught(tmp_path: Path) -> None:
    out, work = tmp_path / "heads", tmp_path / "work"
    folders = ["--out", str(out), "--work", str(work)]
    train = ["train", "heads", "massv", "--taught", "12", "--windows", "10", "--steps", "2", *folders]
    assert main(train) == 0
    taught, own = PairShards(work / "taught"), PairShards(work / "pairs")
    target = load_pair(tiny_models()).target
    assert (len(taught), len(own)) == (12, 10)
    assert taught.batch([11]).tokens[0].tolist() == list(taught_tokens(target, caption, UNSEEN + 11))
    assert not taught.batch([11]).states.numel() and own.batch([0]).states.numel()
    # Its own captions are of windows that were not among the taught.
    frames = np.load(work / "frames.npy", mmap_mode="r")
    units = [target.unit(one, i).embeds for i, one in enumerate(target.encode(np.array(frames[12])))]
    assert torch.allclose(own.batch([0]).frames[0], torch.cat(units).detach(), atol=0.05)
    assert json.loads((out / "massv" / "config.json").read_text())["training"]["taught"] == 12
    bag = str(share_dir() / "rosbags" / "synthetic_drive")
    assert main([*train, "--recordings", bag]) == 2


def test_lengths_and_gains_have_intervals_over_drives() -> None:
    usual = [Captioned(i // 4, 10 + i // 4, 2, 8.0, 1.0, 0.5) for i in range(8)]
    mine = [row._replace(passes=1, ms=4.0) for row in usual]
    lengths = {name: bench_heads.length(rows) for name, rows in (("usual", usual), ("mine", mine))}
    assert lengths["usual"] == {"mean": 5.25, "low": 5.0, "high": 5.5}
    live = {
        name: dict.fromkeys(NOVELTY, rows)
        for name, rows in ((USUAL, usual), (bench_heads.NONE, usual), ("head", mine), ("head, alone", mine))
    }
    row = bench_heads.summary([], {"head": {"top1": 0.5}}, live)["heads"]["head"]
    assert row["gain"][COLD] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert row["time_ratio"]["median"] == 0.5 and row["propose_ms"]["median"] == 1.0
    assert row["alone_tokens_per_pass"] == lengths["mine"] and row["offline"] == {"top1": 0.5}
    # Of one drive nothing tells how another would be.
    assert bench_heads.length(usual[:4]) == {"mean": 5.0, "low": 5.0, "high": 5.0}
