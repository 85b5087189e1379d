"""A device with the tiny models: captions are the target's own, graphs are captured, robots share passes.

`bash lab/gpu/run.sh` runs these tests on a GPU. Elsewhere the models run on the CPU, and what needs CUDA is
skipped.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from typing import Any

import pytest
import torch
from crossspec_lab.baselines.generate import TransformersGenerate
from crossspec_lab.baselines.one_shot import GuessedAnswer, Waiting
from crossspec_lab.baselines.prefill_hiding import PublishedPrefillHiding
from crossspec_lab.bench.input_windows import held_out_windows
from crossspec_lab.bench.live import take_turns, timed
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.captioning.load_decoder import speculative_decoder
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.placement import available
from crossspec_ros.paths import share_dir
from crossspec_ros.telemetry.trace import Trace

pytestmark = [pytest.mark.gpu, pytest.mark.nightly]
MODELS = share_dir() / "models"
DEVICE = os.environ.get("GPU_DEVICE") or ("cuda:0" if torch.cuda.is_available() else "cpu")
needs_cuda = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
WINDOWS, ROBOTS = 2, 4


def count_graphs(runner: Any) -> int:
    """Return the number of the runner's passes that were captured as CUDA graphs."""
    return sum(step.graph is not None for step in runner.static)


@pytest.mark.parametrize(
    ("dtype", "target", "draft_device"),
    [
        ("float32", "", ""),
        ("float32", str(MODELS / "tiny_qwen3_vl"), ""),
        ("bf16", "", ""),
        ("nf4", "", ""),
        pytest.param("float32", "", "cpu", marks=needs_cuda),
    ],
)
def test_device_captions_as_the_target_alone(dtype: str, target: str, draft_device: str) -> None:
    """Every decoder captions; in float32 all captions are equal, and graphs are captured on a GPU."""
    pair = load_pair(MODELS / "tiny", 1, available(dtype, DEVICE, draft_device), target=target)
    windows = [window for window, _ in held_out_windows(pair, WINDOWS)]
    with ExitStack() as stack:
        ours = speculative_decoder(pair)
        decoders = {
            "ours": timed(ours, stack),
            "alone": timed(Waiting(ours.alone()), stack),
            "hiding": timed(PublishedPrefillHiding(pair), stack),
            "generate": timed(TransformersGenerate(pair, "plain"), stack),
        }
        records = list(take_turns(decoders, windows))
        if DEVICE != "cpu" and not draft_device:
            assert ours._drafts is not None
            assert count_graphs(ours.engine.runner) and count_graphs(ours._drafts.runner)  # type: ignore[attr-defined]
    captions = {name: [one.tokens for one in records if one.decoder == name] for name in decoders}
    assert all(all(caption) for caption in captions.values())
    if dtype == "float32":
        assert captions == dict.fromkeys(captions, captions["alone"])


def test_robots_share_passes_of_unlike_lengths() -> None:
    pair = load_pair(MODELS / "tiny", 1, available("float32", DEVICE))
    windows = [window for window, _ in held_out_windows(pair, WINDOWS)] * (ROBOTS // WINDOWS)
    with closing(LocalEngine(pair.target, robots=ROBOTS)) as engine:
        engine.warm_up(1)
        # Passes are shared only where that was measured.
        engine.measure()
        answers = []
        for robot, window in enumerate(windows):
            tree = DraftTree.chain([0] * (2 * robot), [1.0] * (2 * robot), "")
            answer = GuessedAnswer(QUESTION, Trace(), lambda tokens, tree=tree: tree)
            handle = engine.open(0, Trace(), f"robot{robot}")
            engine.ask(handle, answer, (list(window.frames), list(window.frame_stamps_ns)))
            answers.append(answer)
        for answer in answers:
            answer.future.result()
    assert [answer.tokens for answer in answers[:WINDOWS]] == [answer.tokens for answer in answers[WINDOWS:]]
    assert max(row for answer in answers for row in answer.rows) > 1
