"""`crossspec bench gpu` with small models on the CPU: captions follow the script, and figures add up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from crossspec_lab.bench.columns import EQUAL, SOONER, TOKENS
from crossspec_lab.bench.decoders import ALONE, GENERATE, HIDING
from crossspec_lab.bench.gpu_windows import EARLIER, HURRIED, ITSELF, NONE, latencies, replay_windows
from crossspec_lab.bench.random_pair import _filled, random_pair
from crossspec_lab.bench.random_pair import tiny as tiny_dimensions
from crossspec_lab.bench.trace import Response, read_trace
from tokenizers import Tokenizer

from crossspec_ros.cli import main
from crossspec_ros.engine.model_runner import SIZES
from crossspec_ros.models.footprint import estimate, measured_bytes
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import target_architecture
from crossspec_ros.paths import share_dir, tiny_models

TEXTS = ("a red car turns left at night", "a red car turns right at night", "a blue bus stops at dusk")


@pytest.fixture(scope="module")
def tiny() -> ModelPair:
    return load_pair(tiny_models())


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Return a trace of captions that resemble each other, and drafts that begin like them."""
    tokenizer = Tokenizer.from_file(str(tiny_models() / "target" / "tokenizer.json"))
    path = tmp_path / "trace.jsonl"
    with path.open("w") as file:
        for text in TEXTS * 3:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            print(json.dumps({"target_tokens": ids, "draft_tokens": [*ids[:3], 9, 9, 9]}), file=file)
    return path


def bench(*arguments: object) -> int:
    return main(["bench", "gpu", *map(str, arguments)])


@pytest.mark.nightly
def test_gpu_command_writes_all_figures(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gpu.json"
    sizes = ["--tiny", "--dtypes=float32,nf4", "--heard=1", "--windows=2", "--hurried=1", "--repeats=1"]
    assert bench("--trace", trace, *sizes, "--json", out) == 0
    result = json.loads(out.read_text())
    assert set(result["dtypes"]) == {"float32", "nf4"}
    for run in result["dtypes"].values():
        assert list(map(int, run["verify_ms"])) == list(SIZES)
        pass_ms = run["verify_ms"]["1"]["median"]
        assert run["bandwidth_share"] == pytest.approx(run["bound_ms"] / pass_ms, rel=1e-6)
        assert run["achieved_gb_s"] == pytest.approx(run["pass_bytes"] / pass_ms / 1e6, rel=1e-6)
        latency = run["latency"]
        names = {ITSELF, EARLIER, NONE, ALONE, HIDING, GENERATE}
        assert latency["windows"] == 2 and set(latency["modes"]) == names
        passes = {name: row[TOKENS] for name, row in latency["modes"].items() if row[TOKENS]}
        # The memory has learned similar captions, and the rehearsal is the caption.
        assert passes[NONE] > 1 and passes[ITSELF] >= passes[EARLIER]
        assert latency["modes"][ALONE][SOONER]["median"] == 1
        assert 0 <= latency["modes"][NONE]["hidden share"]["median"] < 1 + 1e-9
        assert set(run["bytes"]) >= {"passes on cpu", "latency on cpu"}
    full, small = (result["dtypes"][dtype]["bytes"]["target's weights"] for dtype in ("float32", "nf4"))
    assert small < full / 2
    printed = capsys.readouterr().out
    assert "scripted" in printed and "random weights" in printed and "T(1), ms" in printed


@pytest.mark.nightly
def test_decoders_write_the_scripted_captions(tiny: ModelPair, trace: Path) -> None:
    lines = read_trace(trace)
    heard, scripted = lines[:3], [*lines[3:5], Response(lines[5].target, ())]
    pair = random_pair(tiny, tiny_dimensions(), Placement("float32"))
    cases = [(one, lines[2].target) for one in [*scripted, lines[6]]]
    # It raises if a decoder writes something else.
    records, pass_s = replay_windows(pair, cases, 1, heard, window_s=0.5)
    found = latencies(records, pass_s)
    assert found["windows"] == 3 and len(records.of(HURRIED)) == len(found["modes"])
    # Without proposers each token is a pass.
    assert found["modes"][ITSELF][TOKENS].value > found["modes"][ALONE][TOKENS].value == 1
    assert all(row[EQUAL] == "3 of 3" for row in found["modes"].values())


@pytest.mark.parametrize("dtype", ["float32", "bf16", "int8", "nf4"])
def test_random_pair_matches_the_footprint(tiny: ModelPair, dtype: str) -> None:
    torch.manual_seed(0)
    dimensions, placement = tiny_dimensions(), Placement(dtype)
    pair = random_pair(tiny, dimensions, placement)
    estimated = estimate(placement, dimensions.target, dimensions.draft)
    assert pair.draft and tiny.draft
    target, draft = pair.target.module, pair.draft.module
    assert measured_bytes(target) == pytest.approx(estimated.target.weights, rel=0.02)
    assert measured_bytes(draft) == pytest.approx(estimated.draft.weights, rel=0.02)
    for tensor in (*target.buffers(), *draft.buffers(), *target.parameters()):
        assert tensor.device.type == "cpu"
    for mine, real in ((target, tiny.target.module), (draft, tiny.draft.module)):
        assert list(mine.state_dict()) and not mine.training
        for (name, buffer), (_, wanted) in zip(mine.named_buffers(), real.named_buffers(), strict=True):
            torch.testing.assert_close(buffer, wanted, msg=name)
    logits = target(input_ids=torch.arange(3, 40)[None]).logits
    assert logits.isfinite().all() and logits.std() > 0.01


def test_random_pair_keeps_a_tied_head() -> None:
    architecture = target_architecture(share_dir() / "models" / "tiny_qwen3_vl")
    module = _filled(architecture, Placement(), "cpu")
    assert module.lm_head.weight is module.get_input_embeddings().weight
