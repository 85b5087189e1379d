"""The doctor's report, on this machine and on one with simulated GPUs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from checkpoint_layouts import edit
from crossspec_lab.bench.random_pair import released_pair
from huggingface_hub import constants
from stand_in_hub import COMMIT, stand_in_hub

from crossspec_ros.captioning import doctor
from crossspec_ros.cli import main
from crossspec_ros.models.placement import Placement
from crossspec_ros.paths import tiny_models

TINY = tiny_models()
MODELS = released_pair()


def test_report_is_printed_and_written(tmp_path, monkeypatch, capsys):
    chosen = [Placement("float32"), Placement("nf4")]
    monkeypatch.setattr(doctor, "placements", lambda target: chosen)
    out = tmp_path / "doctor.json"
    assert main(["doctor", "--models", str(TINY), "--json", str(out)]) == 0
    report, printed = json.loads(out.read_text()), capsys.readouterr().out
    assert report["machine"]["cpu_cores"] >= 1 and report["machine"]["versions"]["torch"] in printed
    assert report["recommendation"] == "--dtype float32 --device cpu"
    assert f"recommended: {report['recommendation']}" in printed
    for choice, placement in zip(report["choices"], chosen, strict=True):
        assert Placement(**choice["placement"]) == placement and str(placement) in printed
        parts = [sum(choice["estimated"][model].values()) for model in ("target", "draft")]
        assert choice["needed"] == {"cpu": sum(parts)} and choice["verdict"] == "fits"


@pytest.fixture
def on_gpus(monkeypatch):
    """Return a function that simulates GPUs with free and total GB, on a machine with plenty of RAM.

    The function returns the verdict on each placement, and the recommendation.
    """

    def judge(number, free, total):
        sizes = {"cpu": (10**12, 10**12)}
        gpu = int(free * 1e9), int(total * 1e9)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: number > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
        monkeypatch.setattr(doctor, "memory", lambda device: sizes.get(device, gpu))
        choices = [doctor.judge(doctor.estimate(one, *MODELS)) for one in doctor.placements(MODELS[0])]
        verdicts = {str(Placement(**choice["placement"])): choice["verdict"] for choice in choices}
        return verdicts, doctor.recommend(choices)

    return judge


def test_7b_models_on_several_cards(on_gpus):
    verdicts, recommended = on_gpus(1, 79, 80)
    assert set(verdicts.values()) == {"fits"} and recommended == "--dtype bf16 --device cuda:0"
    verdicts, _ = on_gpus(1, 23.5, 24)
    assert [name for name in verdicts if "llama" not in name] == [
        "float32 on cuda:0", "bf16 on cuda:0", "int8 on cuda:0", "nf4 on cuda:0",
        "nf4 on cuda:0, draft on cpu", "bf16 on cpu", "int8 on cpu", "nf4 on cpu",
    ]  # fmt: skip
    assert verdicts["float32 on cuda:0"] == "does not fit" and verdicts["nf4 on cuda:0"] == "fits"
    for sizes, verdict in (
        ((23.5, 24), "fits without a draft"),
        ((10, 80), "fits only without other programs"),
        ((23.5, 48), "fits without a draft"),
    ):
        assert on_gpus(1, *sizes)[0]["bf16 on cuda:0"] == verdict
    assert on_gpus(2, 23.5, 24)[1] == "--dtype bf16 --device cuda:0 --draft-device cuda:1"
    assert on_gpus(1, 3, 4)[1] == "--dtype bf16 --device cpu"


def test_target_on_hub_is_examined_before_download(tmp_path, monkeypatch, capsys):
    models, out = {"ORG/NAME": TINY / "target"}, tmp_path / "doctor.json"
    arguments = ["doctor", "--target", "ORG/NAME", "--draft", "none", "--json", str(out)]
    with stand_in_hub(monkeypatch, tmp_path / "hub", models, license="mit") as hub:
        hub.pretended = {"model-00002.safetensors": 10**10}
        assert main(arguments) == 0
        assert set(hub.sent) == {"config.json", "generation_config.json", "tokenizer.json"}
        download = sum(hub.sizes("ORG/NAME").values())
    report, printed = json.loads(out.read_text()), capsys.readouterr().out
    missing = download - sum(hub.sent.values())
    offer = {"download": download, "missing": missing, "licence": "mit", "revision": COMMIT}
    assert report["hub"] == {"target": offer}
    assert printed.count(f"revision {COMMIT}") == 1
    assert "the target on the hub: 10 GB, 10 GB of it not yet downloaded; licence mit according" in printed
    assert "licence mit according to its card: read the terms before you use it" in printed
    assert report["window"] == {"frames": 8, "image_size": 64, "frame_tokens": 8 * 17}
    assert "a window: 8 frames of 64 px, 136 tokens" in printed
    assert {choice["needed"]["cpu"] for choice in report["choices"]} and report["draft"] == "none"
    # The downloaded files are still in the cache.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert main(arguments) == 0
    assert json.loads(out.read_text())["hub"] == {"target": None}
    assert "size and licence are unknown, because the hub does not answer" in capsys.readouterr().out


def test_missing_target_is_refused(tmp_path, monkeypatch, capsys):
    with stand_in_hub(monkeypatch, tmp_path / "hub", {}):
        assert main(["doctor", "--target", "ORG/NAME"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "'ORG/NAME' is not a folder and cannot be fetched" in error


def test_faults_of_installation_are_found(monkeypatch):
    monkeypatch.setattr(doctor, "installed_version", lambda name: "")
    monkeypatch.setattr(doctor, "SEGMENT_BYTES", 1 << 60)
    found = "\n".join(doctor.findings())
    assert "MB free, which makes images" in found and "bitsandbytes is missing" in found


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [("target", lambda folder: None, ""),
     ("target", lambda folder: (folder / "tokenizer.json").unlink(), "lacks 'tokenizer.json'"),
     ("target", lambda folder: os.truncate(folder / "model.safetensors", 5000), "missing or damaged"),
     ("target", lambda folder: edit(folder / "generation_config.json", eos_token_id=2), ""),
     ("target", lambda folder: edit_text(folder, max_position_embeddings=150), "leave room for -50: shorten"),
     ("draft", lambda folder: (folder / "model.safetensors").unlink(), "has neither 'model.safetensors'")],
)  # fmt: skip
def test_unusable_models_are_found(tmp_path, name, change, sentence):
    folder = Path(shutil.copytree(TINY / name, tmp_path / name))
    change(folder)
    names = [str(folder) if one == name else "none" for one in ("target", "draft")]
    if name == "draft":
        names[0] = str(TINY / "target")
    found = list(doctor.refusals(names, doctor.architectures("", *names)))
    assert len(found) == bool(sentence) and all(sentence in one for one in found)


def edit_text(folder, **values):
    file = folder / "config.json"
    edit(file, text_config=json.loads(file.read_text())["text_config"] | values)
