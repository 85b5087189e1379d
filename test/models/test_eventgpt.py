"""EventGPT equals the outputs of the published code, for a checkpoint and its events."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from checkpoint_layouts import TINY, TOWER, copied, edit, weights, write
from crossspec_lab.world.event_images import event_images
from refusals import refused

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.models.eventgpt import EventGPTArchitecture, draft_prompt_ids
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.preprocess import clip_pixels

EVENT_TOKEN_ID = -200
"""Placeholder for the event tokens in `input_ids` of the published code."""


@pytest.fixture(scope="module")
def reference(shared):
    return shared / "data" / "eventgpt_tiny"


@pytest.fixture(scope="module")
def expected(reference):
    return dict(np.load(reference / "expected.npz"))


@pytest.fixture(scope="module")
def model(reference):
    return EventGPTArchitecture.of_folder(reference).load(Placement())


@pytest.fixture(scope="module")
def drawn(reference, expected):
    """Return event images with equal numbers of events."""
    count, height, width = expected["event_images"].shape[:3]
    with np.load(reference / "events.npz") as arrays:
        t, x, y, p = (arrays[name] for name in "txyp")
    pixels = (values.astype(np.uint16) for values in (x, y))
    batch = EventBatch(t.astype(np.int64), *pixels, p.astype(np.uint8), width, height)
    return np.stack(event_images(batch, count))


@torch.inference_mode()
def test_from_events_to_greedy_tokens(model, expected, drawn):
    assert np.array_equal(drawn, expected["event_images"])
    pixels = clip_pixels(drawn, model.config.vision_config.image_size)
    assert np.array_equal(pixels.numpy(), expected["pixel_values"])
    tokens = model.encode_events(pixels)
    np.testing.assert_allclose(tokens.numpy(), expected["event_tokens"], atol=1e-4)
    ids = torch.from_numpy(expected["input_ids"][0])
    at = int((ids == EVENT_TOKEN_ID).nonzero())
    words = model.get_input_embeddings()
    inputs = torch.cat([words(ids[:at]), tokens, words(ids[at + 1 :])])[None]
    np.testing.assert_allclose(model(inputs_embeds=inputs).logits[0].numpy(), expected["logits"], atol=1e-4)
    length = len(expected["greedy"])
    out = model.generate(inputs_embeds=inputs, do_sample=False, max_new_tokens=length, min_new_tokens=length)
    assert out[0].tolist() == expected["greedy"].tolist()


@torch.inference_mode()
def test_windows_may_be_encoded_together(model):
    side = model.config.vision_config.image_size
    pixels = torch.randn(3, 5, 3, side, side, generator=torch.Generator().manual_seed(0))
    apart = torch.stack([model.encode_events(one) for one in pixels])
    torch.testing.assert_close(model.encode_events(pixels), apart)


@torch.inference_mode()
def test_prompt_contains_event_tokens():
    architecture = EventGPTArchitecture.of_folder(TINY / "draft")
    draft = architecture.model(architecture.load(Placement()), architecture.tokenizer())
    images = np.random.default_rng(0).integers(0, 256, (5, 70, 90, 3), np.uint8)
    events = draft.encode(images)
    torch.testing.assert_close(events, draft.module.encode_events(clip_pixels(images, 64)))
    question = "What are the key elements in this scene?"
    before, after = (tuple(ids) for ids in draft_prompt_ids(draft.tokenizer, question))
    prompt = draft.prompt(question, events)
    parts = draft.words(before).embeds, events, draft.words(after).embeds
    assert torch.equal(prompt.embeds, torch.cat(parts))
    assert prompt.positions.tolist() == [list(range(len(before) + len(events) + len(after)))]
    hidden = draft.body(inputs_embeds=prompt.embeds[None]).last_hidden_state[0]
    logits = draft.module(inputs_embeds=prompt.embeds[None]).logits[0]
    torch.testing.assert_close(draft.logits(hidden[-1:]), logits[-1:])
    assert (draft.event_images, draft.image_size, draft.eos_ids) == (5, 64, (2,))


@pytest.fixture(scope="module")
def plain():
    return EventGPTArchitecture.of_folder(TINY / "draft").load(Placement()).state_dict()


@pytest.fixture
def folder(tmp_path):
    return copied("draft", tmp_path / "draft")


def assert_loads(folder, plain):
    loaded = EventGPTArchitecture.of_folder(folder).load(Placement()).state_dict()
    assert loaded.keys() == plain.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in plain.items())


def test_spare_tensors_and_code_are_ignored(folder, plain):
    spare = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(16),
        TOWER + "vision_model.embeddings.position_ids": torch.arange(17)[None],
        "model.query_embeddings": torch.zeros(4, 128),
        "model.attention_layers.0.self_attn.in_proj_weight": torch.zeros(384, 128),
    }
    # The published code ignores this flag.
    edit(folder / "config.json", event_feature_adaptor=False)
    edit(folder / "config.json", auto_map={"AutoConfig": "evil.Config"}, trust_remote_code=True)
    (folder / "evil.py").write_text("raise SystemExit")
    write(folder, weights("draft") | spare, "bin")
    assert_loads(folder, plain)


def test_head_may_be_tied(folder, plain):
    tensors = weights("draft")
    del tensors["lm_head.weight"]
    edit(folder / "config.json", tie_word_embeddings=True)
    write(folder, tensors, "safetensors")
    assert_loads(folder, plain | {"lm_head.weight": plain["model.embed_tokens.weight"]})


@pytest.mark.parametrize("is_full_clip", [True, False])
def test_tower_may_have_own_folder(folder, plain, is_full_clip):
    tensors, inner, to = weights("draft"), TOWER + "vision_model.", folder / "clip"
    tower = {name.removeprefix(TOWER): tensors.pop(name) for name in list(tensors) if name.startswith(inner)}
    write(folder, tensors, "safetensors")
    if is_full_clip:
        tower |= {"text_model.final_layer_norm.weight": torch.zeros(7), "logit_scale": torch.zeros(())}
        values = (to / "config.json").read_text()
        (to / "config.json").write_text(f'{{"text_config": {{}}, "vision_config": {values}}}')
    with refused("tower-missing"):
        EventGPTArchitecture.of_folder(folder).load(Placement())
    write(to, tower, "safetensors")
    assert_loads(folder, plain)


def test_released_tower_needs_no_config(folder):
    (folder / "clip" / "config.json").unlink()
    edit(folder / "config.json", mm_visual_tower="openai/clip-vit-large-patch14-336")
    vision = EventGPTArchitecture.of_folder(folder).config.vision_config
    assert (vision.hidden_size, vision.num_hidden_layers, vision.num_attention_heads) == (1024, 24, 16)
    assert ((vision.image_size // vision.patch_size) ** 2 + 1, vision.intermediate_size) == (577, 4096)
    assert vision.hidden_act == "quick_gelu"
    edit(folder / "config.json", mm_visual_tower="someone/clip-of-theirs")
    with refused("tower-nowhere"):
        EventGPTArchitecture.of_folder(folder)


@pytest.mark.parametrize("file", ["config.json", "clip/config.json"])
@pytest.mark.parametrize(
    ("value", "code"),
    [({"num_attention_heads": 7}, "eventgpt-heads"), ({"hidden_act": "os.system"}, "eventgpt-activation")],
)
def test_invalid_eventgpt_config_is_refused(folder, file, value, code):
    edit(folder / file, **value)
    with refused(code, library_text=True, file=file):
        assert EventGPTArchitecture.of_folder(folder).skeleton
