"""Properties of single families: layout, head, RoPE, prompt."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from checkpoint_layouts import TINY, copied, edit, hub_weights, load_target, write
from crossspec_lab.baselines.generate_inputs import generate_inputs
from safetensors.torch import load_file
from tiny_targets import QUESTION, TINY_FAMILIES, noise

from crossspec_ros.models.footprint import measured_bytes, weight_bytes
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import target_architecture, target_spec


def test_video_llava_reads_published_layout(tmp_path):
    plain = target_architecture(TINY / "target").load(Placement()).state_dict()
    folder = copied("target", tmp_path / "target")
    write(folder, hub_weights(), "safetensors shards index")
    model = target_architecture(folder).load(Placement())
    loaded = model.state_dict()
    assert loaded.keys() == plain.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in plain.items())
    assert model.model.image_tower is None
    assert not model.training and not any(p.requires_grad for p in model.parameters())
    # These buffers are not stored, so they must be computed.
    assert model.model.video_tower.embeddings.position_ids.tolist() == [list(range(17))]
    assert model.model.language_model.rotary_emb.inv_freq[0] == 1


def test_video_llava_frames_follow_config(tmp_path):
    spec, folder = target_spec(TINY / "target"), copied("target", tmp_path / "target")
    edit(folder / "config.json", video_seq_length=3 * 17 + 5)
    fewer = replace(spec, frames=3, frame_tokens=3 * 17)
    assert target_spec(folder) == target_architecture(folder).spec == fewer


def test_internvl_dynamic_rope_equals_default(tmp_path):
    """Dynamic scaling is replaced by default RoPE, which has the same frequencies."""
    family = TINY_FAMILIES["internvl"]
    folder = family.checkpoint(tmp_path)
    own = family.loaded(folder).model.language_model.rotary_emb
    ours = load_target(folder).module.model.language_model.rotary_emb
    assert (own.rope_type, ours.rope_type) == ("dynamic", "default")
    torch.testing.assert_close(ours.inv_freq, own.inv_freq, rtol=0, atol=0)
    assert ours.inv_freq[1] == 1000000.0 ** (-2 / 16) and ours.attention_scaling == own.attention_scaling


QWEN3 = {"model_type": "qwen3", "head_dim": 16, "rope_scaling": None}


@pytest.mark.parametrize(
    ("name", "tied", "text"),
    [("internvl", False, QWEN3), ("internvl", True, {}), ("llava_onevision", True, {}),
     ("qwen3_vl", True, {}), ("smolvlm", True, {})],
)  # fmt: skip
def test_tied_and_qwen3_variants_equal_transformers(tmp_path, name, tied, text):
    family, frames = TINY_FAMILIES[name], noise(8, 40, 60)
    text = text | ({"tie_word_embeddings": True} if name == "llava_onevision" else {})
    folder = family.checkpoint(tmp_path, tied, **text)
    assert any("lm_head" in key for key in load_file(folder / "model.safetensors")) == (not tied)
    target, architecture = load_target(folder), target_architecture(folder)
    assert (target.module.lm_head.weight is target.module.get_input_embeddings().weight) == tied
    assert measured_bytes(target.module) == weight_bytes(Placement(), architecture)
    with torch.inference_mode():
        out = target.module.generate(
            **generate_inputs(target, frames, QUESTION), do_sample=False, max_new_tokens=12
        )
    assert tuple(out[0, -12:].tolist()) == family.generated(folder, frames, QUESTION, 12)


def test_internvl_head_counts_before_download(tmp_path):
    """The released configs do not set tie_word_embeddings, and transformers assumes tied embeddings."""
    folder = TINY_FAMILIES["internvl"].checkpoint(tmp_path)
    edit(folder / "config.json", tie_word_embeddings=None)
    module, stored = load_target(folder).module, load_file(folder / "model.safetensors")
    assert any(torch.equal(module.lm_head.weight, tensor) for tensor in stored.values())
    (folder / "model.safetensors").unlink()
    architecture = target_architecture(folder)
    assert weight_bytes(Placement(), architecture) == measured_bytes(module)


@pytest.fixture(scope="module", params=["llava_onevision", "internvl", "smolvlm", "qwen3_vl"])
def made(request, tmp_path_factory):
    """Return a family's name, its tiny checkpoint, and the loaded target."""
    folder = TINY_FAMILIES[request.param].checkpoint(tmp_path_factory.mktemp(request.param))
    return request.param, folder, load_target(folder)


@pytest.mark.parametrize(
    ("question", "frames"),
    [(QUESTION, 1), ("", 8), ("  Où est 日本? \n\n", 8), ("a<|im_end|>b <video><img>", 1)],
)
@torch.inference_mode()
def test_chunks_equal_processors_text(made, question, frames):
    name, folder, target = made
    window = noise(frames, 48, 64)
    units = [target.unit(features, i) for i, features in enumerate(target.encode(window))]
    pieces = [target.opening(), *units, target.closing(question)]
    if target.spec.axes == 1:
        assert all(piece.positions.tolist() == [list(range(len(piece)))] for piece in pieces)
    ids = TINY_FAMILIES[name].inputs(folder, window, question)["input_ids"][0]
    assert torch.equal(generate_inputs(target, window, question)["input_ids"][0], ids)
    embeds = torch.cat([piece.embeds for piece in pieces])
    before, after = target.prompt_ids(question)
    seen = {target.module.config.image_token_id, getattr(target.module.config, "video_token_id", None)}
    is_text = torch.tensor([token not in seen for token in ids.tolist()])
    is_text[: len(before)] = is_text[len(ids) - len(after) :] = True
    if name == "llava_onevision":
        is_text[len(ids) - len(after) - 1] = False  # the newline
    assert len(embeds) == len(ids)
    assert torch.equal(embeds[is_text], target.words(tuple(ids.tolist())).embeds[is_text])
