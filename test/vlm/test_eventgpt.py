"""Our EventGPT against outputs of the published code on a tiny random checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import CLIPVisionConfig, LlamaConfig

from crossspec_ros.vlm.eventgpt import EVENT_TOKEN_ID, EventGPT, load_eventgpt_state, released_state
from crossspec_ros.vlm.loading import _LLAMA_KEYS
from crossspec_ros.vlm.preprocess import clip_pixels


@pytest.fixture(scope="module")
def reference(shared: Path) -> Path:
    return shared / "data" / "eventgpt_tiny"


@pytest.fixture(scope="module")
def expected(reference: Path) -> dict[str, np.ndarray]:
    return dict(np.load(reference / "expected.npz"))


@pytest.fixture(scope="module")
def model(reference: Path) -> EventGPT:
    values = json.loads((reference / "config.json").read_text())
    vision = CLIPVisionConfig(**json.loads((reference / "clip" / "config.json").read_text()))
    model = EventGPT(LlamaConfig(**{k: v for k, v in values.items() if k in _LLAMA_KEYS}), vision)
    load_eventgpt_state(model, load_file(reference / "model.safetensors"))
    return model.eval()


def test_pixel_values(expected: dict[str, np.ndarray]) -> None:
    assert np.array_equal(clip_pixels(expected["event_images"], 56).numpy(), expected["pixel_values"])


@torch.inference_mode()
def test_event_tokens_logits_and_greedy_tokens(model: EventGPT, expected: dict[str, np.ndarray]) -> None:
    tokens = model.encode_events(torch.from_numpy(expected["pixel_values"]))
    np.testing.assert_allclose(tokens.numpy(), expected["event_tokens"], atol=1e-5)
    inputs = model.embed_prompt(torch.from_numpy(expected["input_ids"][0]), tokens)
    np.testing.assert_allclose(model(inputs_embeds=inputs).logits[0].numpy(), expected["logits"], atol=1e-4)
    said = model.generate(inputs_embeds=inputs, do_sample=False, max_new_tokens=24, min_new_tokens=24)
    assert said[0].tolist() == expected["greedy"].tolist()


def test_the_names_of_the_released_checkpoint_come_back(model: EventGPT, reference: Path) -> None:
    assert set(released_state(model)) == set(load_file(reference / "model.safetensors"))


@torch.inference_mode()
def test_a_batch_of_windows_is_the_windows_one_by_one(model: EventGPT) -> None:
    pixels = torch.randn(3, 5, 3, 56, 56, generator=torch.Generator().manual_seed(0))
    alone = torch.stack([model.encode_events(one) for one in pixels])
    torch.testing.assert_close(model.encode_events(pixels), alone)


def test_the_event_token_marks_exactly_one_place(model: EventGPT) -> None:
    tokens = torch.zeros(6, model.config.hidden_size)
    out = model.embed_prompt(torch.tensor([1, EVENT_TOKEN_ID, 7]), tokens)
    assert out.shape == (1, 8, model.config.hidden_size)
    assert torch.equal(out[0, 1:7], tokens)
