"""Qwen3-VL: pairs of frames, positions on three axes, time stamps, and features for several layers."""

from __future__ import annotations

import json
from contextlib import closing

import numpy as np
import pytest
import torch
from checkpoint_layouts import load_target
from crossspec_lab.baselines.generate_inputs import generate_inputs
from scripted_answer import WAIT_S, ScriptedAnswer, ahead_of
from tiny_targets import QUESTION, TINY_FAMILIES, noise

from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.models.base import Chunk
from crossspec_ros.models.qwen3_vl import read_size
from crossspec_ros.models.registry import target_spec
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.resize import resize_shortest

FAMILY = TINY_FAMILIES["qwen3_vl"]
SHAPES = {8: (48, 64), 7: (90, 40), 1: (30, 100)}
"""Sizes of frames by their number; the first keeps its size, the others are shrunk."""


def film(count):
    return noise(count, *SHAPES[count], seed=count)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return FAMILY.checkpoint(tmp_path_factory.mktemp("qwen3_vl"))


@pytest.fixture(scope="module")
def target(folder):
    return load_target(folder)


def test_removed_frame_leaves_no_gap(folder, target):
    """A blind frame is removed: later frames move up and form new pairs."""
    frames, kept = film(8), [0, 1, 2, 4, 5, 6, 7]
    tokens = FAMILY.generated(folder, frames[kept], QUESTION, 6)
    with closing(LocalEngine(target)) as engine:
        request, answer = engine.open(0, Trace()), ScriptedAnswer(ahead_of(tokens), 2)
        for i, frame in enumerate(frames):
            engine.add_frame(request, frame, i).result(WAIT_S)
        engine.ask(request, answer, (frames[kept], kept)).result(WAIT_S)
        assert answer.tokens[: len(tokens)] == tokens


@pytest.mark.parametrize("count", SHAPES)
@torch.inference_mode()
def test_ids_and_positions_equal_processors(folder, target, count):
    frames, prompt = film(count), FAMILY.inputs(folder, film(count), QUESTION)
    units = [target.unit(features, i) for i, features in enumerate(target.encode(frames))]
    read = Chunk.joined([target.opening(), *units, target.closing(QUESTION)])
    ids, is_video = prompt["input_ids"][0], prompt["mm_token_type_ids"][0] == 2
    embeds = target.module.get_input_embeddings()(ids)
    assert torch.equal(read.embeds[~is_video], embeds[~is_video])
    assert read.layers is not None and not read.layers[:, ~is_video].any()
    positions, _ = target.module.model.get_rope_index(
        ids[None], prompt["mm_token_type_ids"], video_grid_thw=prompt["video_grid_thw"]
    )
    assert torch.equal(read.positions, positions[:, 0])
    assert sum(map(len, units)) <= target.spec.frame_tokens
    seen = target.module.model.get_video_features(prompt["pixel_values_videos"], prompt["video_grid_thw"])
    torch.testing.assert_close(read.embeds[is_video], torch.cat(seen.pooler_output), atol=1e-5, rtol=0)


def test_full_prompt(target):
    """The marks around all units are those of transformers from 5.10 on; see docs/real_models.md."""
    unit = f"<|vision_start|>{'<|video_pad|>' * (6 * 8)}<|vision_end|>"
    text = (
        f"<|im_start|>user\n<|vision_start|><0.1 seconds>{unit}<0.3 seconds>{unit}<0.6 seconds>{unit}"
        f"<0.8 seconds>{unit}<|vision_end|>{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = generate_inputs(target, film(8), QUESTION)["input_ids"][0]
    assert ids.tolist() == target.tokenizer.encode(text).ids


def test_released_sizes_of_window(folder, tmp_path):
    values = json.loads((folder / "config.json").read_text())
    values["vision_config"] |= {"patch_size": 16}
    (tmp_path / "config.json").write_text(json.dumps(values))
    released = {"longest_edge": 25165824, "shortest_edge": 4096}
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps({"size": released}))
    found = target_spec(tmp_path)
    assert (found.frames, found.frames_per_unit, found.image_size, found.axes) == (8, 2, 384, 3)
    # A time stamp has 13 characters.
    assert found.frame_tokens == 4 * (13 + 256 + 2)
    assert found.eos_ids == (values["text_config"]["eos_token_id"],)
    for shape, size in (((480, 640), (384, 512)), ((720, 1280), (384, 672)), ((600, 600), (384, 384))):
        small = resize_shortest(np.zeros((*shape, 3), np.uint8), found.image_size)
        assert read_size(*small.shape[:2], 2, 32, 256 * 32 * 32) == size
