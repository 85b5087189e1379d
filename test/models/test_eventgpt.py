"""Our EventGPT against outputs of the published code, wholly from a checkpoint's folder and its events.

Further folders of the same layout come from CROSSSPEC_EVENTGPT_FIXTURES, separated by colons.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoint_layouts import TINY, TOWER, copied, edit, weights, write
from crossspec_lab.world.event_images import event_images
from refusals import refused

from crossspec_ros.events.batch import EventBatch
from crossspec_ros.models.eventgpt import EventGPTModule, architecture, draft_prompt_ids
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.preprocess import clip_pixels

EVENT_TOKEN_ID = -200
"""Stands in the `input_ids` of the published code where the event tokens go."""
OTHERS = [Path(name) for name in os.environ.get("CROSSSPEC_EVENTGPT_FIXTURES", "").split(":") if name]


@pytest.fixture(scope="module", params=[None, *OTHERS], ids=str)
def reference(request: pytest.FixtureRequest) -> Path:
    return request.param or request.getfixturevalue("shared") / "data" / "eventgpt_tiny"


@pytest.fixture(scope="module")
def expected(reference: Path) -> dict[str, np.ndarray]:
    return dict(np.load(reference / "expected.npz"))


@pytest.fixture(scope="module")
def model(reference: Path) -> EventGPTModule:
    return architecture(reference).load(Placement())


@pytest.fixture(scope="module")
def drawn(reference: Path, expected: dict[str, np.ndarray]) -> np.ndarray:
    """Event images of equal counts."""
    count, height, width = expected["event_images"].shape[:3]
    with np.load(reference / "events.npz") as arrays:
        t, x, y, p = (arrays[name] for name in "txyp")
    pixels = (values.astype(np.uint16) for values in (x, y))
    batch = EventBatch(t.astype(np.int64), *pixels, p.astype(np.uint8), width, height)
    return np.stack(event_images(batch, count))


def test_event_images(expected: dict[str, np.ndarray], drawn: np.ndarray) -> None:
    assert np.array_equal(drawn, expected["event_images"])


@torch.inference_mode()
def test_from_events_to_greedy_tokens(
    model: EventGPTModule, expected: dict[str, np.ndarray], drawn: np.ndarray
) -> None:
    pixels = clip_pixels(drawn, model.vision_config.image_size)
    assert np.array_equal(pixels.numpy(), expected["pixel_values"])
    tokens = model.encode_events(pixels)
    np.testing.assert_allclose(tokens.numpy(), expected["event_tokens"], atol=1e-4)
    ids = torch.from_numpy(expected["input_ids"][0])
    at = int((ids == EVENT_TOKEN_ID).nonzero())
    words = model.get_input_embeddings()
    inputs = torch.cat([words(ids[:at]), tokens, words(ids[at + 1 :])])[None]
    np.testing.assert_allclose(model(inputs_embeds=inputs).logits[0].numpy(), expected["logits"], atol=1e-4)
    length = len(expected["greedy"])
    said = model.generate(inputs_embeds=inputs, do_sample=False, max_new_tokens=length, min_new_tokens=length)
    assert said[0].tolist() == expected["greedy"].tolist()


@torch.inference_mode()
def test_a_batch_of_windows_is_the_windows_one_by_one(model: EventGPTModule) -> None:
    side = model.vision_config.image_size
    pixels = torch.randn(3, 5, 3, side, side, generator=torch.Generator().manual_seed(0))
    alone = torch.stack([model.encode_events(one) for one in pixels])
    torch.testing.assert_close(model.encode_events(pixels), alone)


@torch.inference_mode()
def test_one_event_image(model: EventGPTModule) -> None:
    side = model.vision_config.image_size
    pixels = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    seen = model.model.visual_tower.visual_tower(pixels).last_hidden_state
    features = model.model.feature_adaptor(model.model.visual_projector(seen))[0]
    torch.testing.assert_close(model.encode_events(pixels), torch.cat([features.mean(0)[None], features]))


@torch.inference_mode()
def test_the_events_stand_in_the_middle_of_the_prompt() -> None:
    known = architecture(TINY / "draft")
    draft = known.model(known.load(Placement()), known.tokenizer())
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
    whole = draft.module(inputs_embeds=prompt.embeds[None]).logits[0]
    torch.testing.assert_close(draft.logits(hidden[-1:]), whole[-1:])
    assert (draft.event_images, draft.image_size, draft.eos_ids) == (5, 64, (2,))


@pytest.fixture(scope="module")
def plain() -> dict[str, torch.Tensor]:
    return architecture(TINY / "draft").load(Placement()).state_dict()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copied("draft", tmp_path / "draft")


def assert_loads(folder: Path, plain: dict[str, torch.Tensor]) -> None:
    loaded = architecture(folder).load(Placement()).state_dict()
    assert loaded.keys() == plain.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in plain.items())


def test_tensors_that_the_model_does_not_need(folder: Path, plain: dict[str, torch.Tensor]) -> None:
    spare = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(16),
        TOWER + "vision_model.embeddings.position_ids": torch.arange(17)[None],
        "model.query_embeddings": torch.zeros(4, 128),
        "model.attention_layers.0.self_attn.in_proj_weight": torch.zeros(384, 128),
    }
    # The published code makes and applies the adaptor whatever the flag says.
    edit(folder / "config.json", event_feature_adaptor=False)
    write(folder, weights("draft") | spare, "bin")
    assert_loads(folder, plain)


def test_a_head_that_is_the_embeddings(folder: Path, plain: dict[str, torch.Tensor]) -> None:
    tensors = weights("draft")
    del tensors["lm_head.weight"]
    edit(folder / "config.json", tie_word_embeddings=True)
    write(folder, tensors, "safetensors")
    words = plain["model.embed_tokens.weight"]
    assert_loads(folder, plain | {"lm_head.weight": words})


def apart() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The shipped draft's weights, and those of its tower apart."""
    whole, inner = weights("draft"), TOWER + "vision_model."
    tower = {name.removeprefix(inner): whole.pop(name) for name in list(whole) if name.startswith(inner)}
    return whole, tower


@pytest.mark.parametrize("place", ["clip", "inside", "beside", "absolute"])
@pytest.mark.parametrize("kind", ["whole CLIP", "vision model", "bare"])
def test_a_tower_beside_the_checkpoint(
    folder: Path, plain: dict[str, torch.Tensor], tmp_path: Path, place: str, kind: str
) -> None:
    whole, tower = apart()
    write(folder, whole, "safetensors shards index")
    to = {
        "clip": folder / "clip",
        "inside": folder / "my-clip",
        "beside": folder.parent / "my-clip",
        "absolute": tmp_path / "far" / "away",
    }[place]
    to.parent.mkdir(exist_ok=True)
    (folder / "clip").rename(to)
    edit(folder / "config.json", mm_visual_tower=str(to) if place == "absolute" else "someone/my-clip")
    if kind != "bare":
        tower = {f"vision_model.{name}": tensor for name, tensor in tower.items()}
    if kind == "whole CLIP":
        tower |= {"text_model.final_layer_norm.weight": torch.zeros(7), "logit_scale": torch.zeros(())}
        values = (to / "config.json").read_text()
        (to / "config.json").write_text(
            f'{{"model_type": "clip", "text_config": {{}}, "vision_config": {values}}}'
        )
    write(to, tower, "bin" if kind == "whole CLIP" else "safetensors")
    assert_loads(folder, plain)


def test_the_tower_inside_wins_over_one_beside(folder: Path, plain: dict[str, torch.Tensor]) -> None:
    write(folder, weights("draft"), "safetensors")
    write(folder / "clip", {"vision_model.embeddings.class_embedding": torch.zeros(128)}, "safetensors")
    assert_loads(folder, plain)


def test_the_tower_of_the_release_is_known_by_name(folder: Path) -> None:
    (folder / "clip" / "config.json").unlink()
    edit(folder / "config.json", mm_visual_tower="openai/clip-vit-large-patch14-336")
    vision = architecture(folder).vision
    assert (vision.hidden_size, vision.num_hidden_layers, vision.num_attention_heads) == (1024, 24, 16)
    assert ((vision.image_size // vision.patch_size) ** 2 + 1, vision.intermediate_size) == (577, 4096)
    assert vision.hidden_act == "quick_gelu"
    write(folder, apart()[0], "safetensors")
    with refused("tower-missing"):
        architecture(folder).load(Placement())


@pytest.mark.parametrize("name", ["clip-of-theirs", 300 * "x"])
def test_a_tower_that_is_nowhere(folder: Path, name: str) -> None:
    write(folder, weights("draft"), "safetensors")
    (folder / "clip" / "config.json").unlink()
    edit(folder / "config.json", mm_visual_tower=f"someone/{name}")
    with refused("tower-nowhere", name=name):
        architecture(folder).load(Placement())


@pytest.mark.parametrize("file", ["config.json", "clip/config.json"])
@pytest.mark.parametrize(
    ("value", "code"),
    [({"num_attention_heads": 7}, "eventgpt-heads"), ({"hidden_act": "os.system"}, "eventgpt-activation")],
)
def test_a_config_of_no_model(folder: Path, file: str, value: dict[str, object], code: str) -> None:
    write(folder, weights("draft"), "safetensors")
    edit(folder / file, **value)
    with refused(code, library_text=True, file=file):
        architecture(folder).load(Placement())


def test_code_that_a_config_names_is_not_looked_for(folder: Path, plain: dict[str, torch.Tensor]) -> None:
    write(folder, weights("draft"), "safetensors")
    edit(folder / "config.json", auto_map={"AutoConfig": "evil.Config"}, trust_remote_code=True)
    (folder / "evil.py").write_text("raise SystemExit")
    assert_loads(folder, plain)
