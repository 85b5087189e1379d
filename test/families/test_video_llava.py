"""Video-LLaVA's port from a folder, read piece by piece; the original is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_layouts import TINY, copied, edit, hub_weights, write

from crossspec_ros.errors import InputError
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.preprocess import clip_pixels
from crossspec_ros.models.registry import target_architecture, target_spec
from crossspec_ros.models.video_llava import VideoLlava, architecture, target_prompt_ids


def checkpoint(folder: Path) -> None:
    """A tiny checkpoint of the family: here the trained one."""
    shutil.copytree(TINY / "target", folder)


@torch.inference_mode()
def generated(folder: Path, frames: np.ndarray, question: str, max_new_tokens: int) -> list[int]:
    """What transformers' own `generate` says of (n, H, W, 3) uint8 frames, end of sequence included."""
    known = architecture(folder)
    module, tokenizer = known.load(Placement()), known.tokenizer()
    before, after = target_prompt_ids(tokenizer, question)
    video = [module.config.video_token_index] * (17 * len(frames))
    ids = torch.tensor([[*before, *video, *after]])
    out = module.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        pixel_values_videos=clip_pixels(frames, known.spec.image_size)[None],
        do_sample=False,
        max_new_tokens=max_new_tokens,
    )
    return out[0, ids.shape[1] :].tolist()


@pytest.fixture(scope="module")
def plain() -> dict[str, torch.Tensor]:
    return architecture(TINY / "target").load(Placement()).state_dict()


@pytest.mark.parametrize("layout", ["safetensors shards index", "bin shards index"])
def test_the_published_layout(tmp_path: Path, plain: dict[str, torch.Tensor], layout: str) -> None:
    folder, tensors = copied("target", tmp_path / "target"), hub_weights()
    assert {name.split(".")[0] for name in tensors} == {
        "language_model", "video_tower", "image_tower", "multi_modal_projector"
    }  # fmt: skip
    write(folder, tensors, layout)
    model = architecture(folder).load(Placement())
    loaded = model.state_dict()
    assert loaded.keys() == plain.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in plain.items())
    assert model.model.image_tower is None
    assert not model.training and not any(p.requires_grad for p in model.parameters())
    # Not stored, but needed: computed anew.
    positions = model.model.video_tower.embeddings.position_ids
    assert positions.tolist() == [list(range(17))]
    assert model.model.language_model.rotary_emb.inv_freq[0] == 1


@pytest.mark.parametrize(
    "values",
    [
        {"mm_video_tower": "LanguageBind/LanguageBind_Video_merge"},
        {"architectures": ["LlavaLlamaForCausalLM"]},
    ],
)
@pytest.mark.parametrize("kind", ["llava", "video_llava"])
@pytest.mark.parametrize("known", [target_spec, target_architecture])
def test_the_original_is_refused(
    tmp_path: Path, values: dict[str, object], kind: str, known: Callable[[Path], object]
) -> None:
    folder = copied("target", tmp_path / "target")
    edit(folder / "config.json", model_type=kind, **values)
    sentence = (
        r"attends over time, so that its frames cannot .*: take its port LanguageBind/Video-LLaVA-7B-hf$"
    )
    with pytest.raises(InputError, match=sentence):
        known(folder)


def test_a_tokenizer_without_the_video_token(tmp_path: Path) -> None:
    folder = copied("target", tmp_path / "target")
    shutil.copy(TINY / "draft" / "tokenizer.json", folder)
    values = json.loads((folder / "config.json").read_text())["text_config"]
    edit(folder / "config.json", text_config=values | {"vocab_size": 600})
    with pytest.raises(InputError, match=rf"'{folder}' lacks '<video>'"):
        architecture(folder).tokenizer()


@pytest.fixture(scope="module")
def target() -> VideoLlava:
    known = architecture(TINY / "target")
    return known.model(known.load(Placement()), known.tokenizer())


@pytest.mark.parametrize("question", ["What are the key elements in this scene?", ""])
@torch.inference_mode()
def test_the_pieces_are_what_transformers_makes_of_ids_and_pixels(target: VideoLlava, question: str) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (8, 70, 90, 3), np.uint8)
    before, after = target_prompt_ids(target.tokenizer, question)
    video = [target.module.config.video_token_index] * target.spec.frame_tokens
    reference = target.module(
        input_ids=torch.tensor([[*before, *video, *after]]),
        pixel_values_videos=clip_pixels(frames, target.spec.image_size)[None],
    ).logits[0]
    units = [target.unit(features, i) for i, features in enumerate(target.encode(frames))]
    pieces = [target.opening(), *units, target.closing(question)]
    assert [len(piece) for piece in pieces] == [len(before), *[17] * 8, len(after)]
    assert all(piece.positions.tolist() == [list(range(len(piece)))] for piece in pieces)
    embeds = torch.cat([piece.embeds for piece in pieces])[None]
    logits = target.logits(target.body(inputs_embeds=embeds).last_hidden_state[0])
    torch.testing.assert_close(logits, reference, atol=1e-4, rtol=0)


def test_what_a_window_is_follows_from_the_config(tmp_path: Path) -> None:
    spec = target_spec(TINY / "target")
    assert (spec.frames, spec.frames_per_unit, spec.image_size) == (8, 1, 64)
    assert (spec.frame_tokens, spec.most_tokens, spec.eos_ids) == (8 * 17, 1024, (2,))
    folder = copied("target", tmp_path / "target")
    edit(folder / "config.json", video_seq_length=3 * 17 + 5)
    assert target_spec(folder) == architecture(folder).spec == replace(spec, frames=3, frame_tokens=3 * 17)
    edit(folder / "config.json", video_seq_length=16)
    with pytest.raises(InputError, match=r"is no config of Video-LLaVA \(video_seq_length 16 is less than"):
        target_spec(folder)


def test_what_a_config_leaves_out_is_what_transformers_takes(tmp_path: Path) -> None:
    folder = copied("target", tmp_path / "target")
    (folder / "generation_config.json").unlink()
    edit(folder / "config.json", text_config={"model_type": "llama"}, video_seq_length=None)
    edit(folder / "config.json", vision_config={"model_type": "clip_vision_model"})
    assert target_spec(folder) == architecture(folder).spec
