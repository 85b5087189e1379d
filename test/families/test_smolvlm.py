"""SmolVLM2 read piece by piece says what transformers says in one pass; its frames are the processor's."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jinja2 import Environment
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, SmolVLMConfig, SmolVLMForConditionalGeneration
from transformers.models.smolvlm import processing_smolvlm as processing
from transformers.models.smolvlm.configuration_smolvlm import SmolVLMVisionConfig

from crossspec_ros.errors import InputError
from crossspec_ros.models.base import InputSpec
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import target_architecture, target_spec
from crossspec_ros.models.smolvlm import SmolVLM, SmolVLMArchitecture, architecture, frame_pixels

SIDE, PATCH, SCALE = 64, 8, 2
TOKENS = (SIDE // PATCH // SCALE) ** 2
TOLD = "eight"
QUESTION = "What are the key elements in this scene?"
RECORDED = np.load(Path(__file__).parent / "recorded" / "smolvlm_pixels.npz")


def checkpoint(folder: Path) -> None:
    """Write a tiny random SmolVLM2 in float32, whose tokenizer cuts the prompt as the released one does."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = tokenizer.token_to_id
    ends = [ids("<end_of_utterance>"), ids("<|im_end|>")]
    vocabulary = tokenizer.get_vocab_size()
    text = LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=vocabulary, max_position_embeddings=1024, pad_token_id=2,
    )  # fmt: skip
    vision = SmolVLMVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        image_size=SIDE, patch_size=PATCH,
    )  # fmt: skip
    config = SmolVLMConfig(
        text_config=text.to_dict(), vision_config=vision.to_dict(), scale_factor=SCALE,
        image_token_id=ids("<image>"), dtype="float32",
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(11)
        model = SmolVLMForConditionalGeneration(config)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                # Else everything looks the same to it.
                torch.nn.init.normal_(parameter, std=2 * parameter[0].numel() ** -0.5)
    model.save_pretrained(folder)
    values = {"bos_token_id": 1, "eos_token_id": ends, "pad_token_id": 2}
    (folder / "generation_config.json").write_text(json.dumps(values))


def generated(folder: Path, frames: np.ndarray, question: str, max_new_tokens: int) -> list[int]:
    """What transformers' own class says greedily of (n, H, W, 3) uint8 RGB frames.

    The text before the frames tells of a whole window, also where there are fewer.
    """
    prompt = inputs(folder, frames, question)
    with torch.inference_mode():
        out: Any = _loaded(folder).generate(**prompt, do_sample=False, max_new_tokens=max_new_tokens)
    return out[0, prompt["input_ids"].shape[1] :].tolist()


def inputs(
    folder: Path, frames: np.ndarray, question: str, template: str = processing.DEFAULT_CHAT_TEMPLATE
) -> dict[str, torch.Tensor]:
    """What transformers' processor makes of (n, H, W, 3) uint8 frames; it has a template of its own for
    videos."""
    values = json.loads((folder / "config.json").read_text())
    vision = values["vision_config"]
    tokens = (vision["image_size"] // vision["patch_size"] // values["scale_factor"]) ** 2
    tokenizer, side = Tokenizer.from_file(str(folder / "tokenizer.json")), vision["image_size"]
    ids = torch.tensor([tokenizer.encode(text(len(frames), question, tokens)).ids])
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": pixels(frames, side)[None],
        "pixel_attention_mask": torch.ones(1, len(frames), side, side, dtype=torch.long),
    }


def text(frames: int, question: str, tokens: int = TOKENS) -> str:
    """The chat template's text, with the video in it as transformers' processor writes it."""
    content = [{"type": "video"}, {"type": "text", "text": question}]
    # transformers trims blocks, as jinja2 itself does not.
    template = Environment(trim_blocks=True, lstrip_blocks=True).from_string(processing.DEFAULT_CHAT_TEMPLATE)
    chat = template.render(messages=[{"role": "user", "content": content}], add_generation_prompt=True)
    video = processing.DEFAULT_VIDEO_INTRO.format(frame_count=TOLD, video_duration="0:00:01")
    for _ in range(frames):
        video += processing.FRAME_TIMESTAMP_MESSAGE.format(timestamp="00:00")
        video += f"<fake_token_around_image><global-img>{'<image>' * tokens}<fake_token_around_image>"
    return chat.replace("<video>", video + processing.DEFAULT_MEDIA_OUTTRO)


def pixels(frames: np.ndarray, side: int) -> torch.Tensor:
    """(n, 3, side, side) float32, as the released processors have it, whose `size` is 4 sides."""
    images = torch.from_numpy(frames).permute(0, 3, 1, 2)
    height, width = images.shape[-2:]
    longest = 4 * side
    if width >= height:
        sizes = [int(longest / (width / height)), longest]
    else:
        sizes = [longest, int(longest * (width / height))]
    for size in [[n + n % 2 for n in sizes], [side, side]]:
        images = torch.nn.functional.interpolate(images, size, mode="lanczos", antialias=True)
    return images.float().sub(127.5).div(127.5)


@lru_cache(2)
def _loaded(folder: Path) -> SmolVLMForConditionalGeneration:
    return SmolVLMForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()


def _tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text(8, QUESTION)] * 50, trainer)
    tokenizer.add_special_tokens(
        ["<global-img>", "<fake_token_around_image>", "<image>", "<end_of_utterance>"]
    )
    return tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("smolvlm")
    checkpoint(path)
    return path


@pytest.fixture(scope="module")
def target(folder: Path) -> SmolVLM:
    known = architecture(folder)
    return known.model(known.load(Placement()), known.tokenizer())


def noise(frames: int, height: int, width: int) -> np.ndarray:
    return np.random.default_rng(frames).integers(0, 256, (frames, height, width, 3), np.uint8)


def test_a_response_ends_with_any_end_token(folder: Path, target: SmolVLM) -> None:
    ends = target.spec.eos_ids
    assert [target.tokenizer.id_to_token(i) for i in ends] == ["<end_of_utterance>", "<|im_end|>"]
    answers = [generated(folder, noise(n, 64, 64), QUESTION, 48) for n in range(1, 9)]
    assert any(answer[-1] in ends for answer in answers)


@pytest.mark.parametrize("question", [QUESTION, "", " <image>\nWhat? "])
@pytest.mark.parametrize("frames", [1, 8])
@torch.inference_mode()
def test_the_pieces_are_the_chat_templates_text(target: SmolVLM, frames: int, question: str) -> None:
    window = noise(frames, 64, 64)
    units = [target.unit(features, i) for i, features in enumerate(target.encode(window))]
    pieces = [target.opening(), *units, target.closing(question)]
    assert all(piece.positions.tolist() == [list(range(len(piece)))] for piece in pieces)
    ids = target.tokenizer.encode(text(frames, question)).ids
    before, after = target.prompt_ids(question)
    assert ids[: len(before)] == list(before) and ids[-len(after) :] == list(after)
    if frames == target.spec.frames:
        assert sum(map(len, units)) == target.spec.frame_tokens
    embeds, is_text = torch.cat([piece.embeds for piece in pieces]), torch.ones(len(ids), dtype=torch.bool)
    images = [i for i, token in enumerate(ids) if token == target.module.config.image_token_id]
    is_text[images[: frames * TOKENS]] = False
    assert len(embeds) == len(ids)
    assert torch.equal(embeds[is_text], target.words(tuple(ids)).embeds[is_text])


@pytest.mark.parametrize("name", ["landscape", "portrait", "tiny", "odd", "wide", "square"])
def test_pixels_are_bit_for_bit_those_of_the_processor(name: str) -> None:
    side = int(RECORDED[f"{name}_side"])
    made = frame_pixels(RECORDED[f"{name}_frame"][None], side, 4 * side)
    assert made.shape == (1, 3, side, side) and made.dtype == torch.float32
    np.testing.assert_array_equal(made[0, :, :: side // 32, :: side // 32], RECORDED[f"{name}_pixels"])


NAMES = """
lm_head.weight model.connector.modality_projection.proj.weight model.text_model.embed_tokens.weight
model.text_model.layers.0.input_layernorm.weight model.text_model.layers.0.mlp.down_proj.weight
model.text_model.layers.0.mlp.gate_proj.weight model.text_model.layers.0.mlp.up_proj.weight
model.text_model.layers.0.post_attention_layernorm.weight model.text_model.layers.0.self_attn.k_proj.weight
model.text_model.layers.0.self_attn.o_proj.weight model.text_model.layers.0.self_attn.q_proj.weight
model.text_model.layers.0.self_attn.v_proj.weight model.text_model.norm.weight
model.vision_model.embeddings.patch_embedding.bias model.vision_model.embeddings.patch_embedding.weight
model.vision_model.embeddings.position_embedding.weight
model.vision_model.encoder.layers.0.layer_norm1.bias model.vision_model.encoder.layers.0.layer_norm1.weight
model.vision_model.encoder.layers.0.layer_norm2.bias model.vision_model.encoder.layers.0.layer_norm2.weight
model.vision_model.encoder.layers.0.mlp.fc1.bias model.vision_model.encoder.layers.0.mlp.fc1.weight
model.vision_model.encoder.layers.0.mlp.fc2.bias model.vision_model.encoder.layers.0.mlp.fc2.weight
model.vision_model.encoder.layers.0.self_attn.k_proj.bias
model.vision_model.encoder.layers.0.self_attn.k_proj.weight
model.vision_model.encoder.layers.0.self_attn.out_proj.bias
model.vision_model.encoder.layers.0.self_attn.out_proj.weight
model.vision_model.encoder.layers.0.self_attn.q_proj.bias
model.vision_model.encoder.layers.0.self_attn.q_proj.weight
model.vision_model.encoder.layers.0.self_attn.v_proj.bias
model.vision_model.encoder.layers.0.self_attn.v_proj.weight
model.vision_model.post_layernorm.bias model.vision_model.post_layernorm.weight
"""


def test_the_released_names_of_tensors_load(folder: Path, target: SmolVLM) -> None:
    stored = load_file(folder / "model.safetensors")
    assert {re.sub(r"layers\.\d+", "layers.0", name) for name in stored} == set(NAMES.split())
    loaded = target.module.state_dict()
    assert loaded.keys() == stored.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in stored.items())


def copied(folder: Path, to: Path, **values: object) -> Path:
    """A copy of the checkpoint with other values in its config; None takes one away."""
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text())
    for name, value in values.items():
        config[name] = {**config.get(name, {}), **value} if isinstance(value, dict) else value
    kept = {name: value for name, value in config.items() if value is not None}
    (to / "config.json").write_text(json.dumps(kept))
    return to


def test_tied_embeddings(tmp_path: Path, folder: Path) -> None:
    tied = copied(folder, tmp_path / "tied", tie_word_embeddings=True)
    tensors = load_file(tied / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, tied / "model.safetensors", metadata={"format": "pt"})
    module = architecture(tied).load(Placement())
    assert module.lm_head.weight is module.model.text_model.embed_tokens.weight
    assert torch.equal(module.lm_head.weight, tensors["model.text_model.embed_tokens.weight"])


RELEASED = {
    "500M": (
        {"scale_factor": 4},
        {"hidden_size": 768, "image_size": 512, "num_attention_heads": 12, "patch_size": 16},
        {"head_dim": 64, "hidden_size": 960, "intermediate_size": 2560, "num_attention_heads": 15,
         "num_hidden_layers": 32, "num_key_value_heads": 5},
        InputSpec(8, 1, 512, 8 * 67 + 7 * 10, 8192, (2,)),
        507_482_304,
    ),
    "2.2B": (
        {"scale_factor": 3},
        {"hidden_size": 1152, "image_size": 384, "intermediate_size": 4304, "num_hidden_layers": 27,
         "patch_size": 14},
        {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24},
        InputSpec(8, 1, 384, 8 * 84 + 7 * 10, 8192, (2,)),
        2_246_784_880,
    ),
}  # fmt: skip


@pytest.mark.parametrize("size", RELEASED)
def test_the_released_sizes(tmp_path: Path, size: str) -> None:
    top, vision, text, expected, parameters = RELEASED[size]
    vision |= {"model_type": "smolvlm_vision", "max_image_size": {"longest_edge": vision["image_size"]}}
    text |= {"model_type": "llama", "is_llama_config": True, "max_position_embeddings": 8192}
    text |= {"vocab_size": 49280, "rope_theta": 100000, "rms_norm_eps": 1e-05, "pad_token_id": 2}
    values = {"model_type": "smolvlm", **top, "vision_config": vision, "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(values))
    known = target_architecture(tmp_path)
    assert target_spec(tmp_path) == known.spec == expected
    module = known.skeleton()
    assert sum(parameter.numel() for parameter in module.parameters()) == parameters
    assert module.model.image_seq_len * 8 + 8 * 3 + 7 * 10 == expected.frame_tokens


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"text_config": None}, "lacks the value 'text_config'"),
        ({"vision_config": []}, "is no config of SmolVLM2"),
        ({"vision_config": {"image_size": "large"}}, "is no config of SmolVLM2"),
        ({"vision_config": {"image_size": 4}}, "0 patches a side are no multiple of the scale_factor 2"),
        ({"scale_factor": 3}, "8 patches a side are no multiple of the scale_factor 3"),
        ({"scale_factor": 0}, "is no config of SmolVLM2"),
        ({"text_config": {"model_type": "gpt2"}}, "text_config is of the type gpt2, not llama"),
        ({"quantization_config": {"bits": 4}}, "is of a quantised checkpoint"),
    ],
)
@pytest.mark.parametrize("known", [target_spec, target_architecture])
def test_a_config_that_is_none(
    tmp_path: Path,
    folder: Path,
    values: dict[str, object],
    problem: str,
    known: Callable[[Path], object],
) -> None:
    file = copied(folder, tmp_path / "changed", **values) / "config.json"
    with pytest.raises(InputError, match=rf"^'{file}' .*{problem}.*: take [^\n]*$"):
        known(file.parent)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"text_config": {"num_hidden_layers": 9}}, "says 9 layers, but 3 are stored"),
        ({"text_config": {"hidden_size": "wide"}}, "is no config of SmolVLM2"),
        ({"vision_config": {"patch_size": 16}}, "patch_embedding.weight' in .* has shape"),
    ],
)
def test_a_config_of_other_weights(
    tmp_path: Path, folder: Path, values: dict[str, object], problem: str
) -> None:
    changed = copied(folder, tmp_path / "changed", **values)
    with pytest.raises(InputError, match=problem):
        architecture(changed).load(Placement())


def test_what_is_reckoned_with_for_memory(folder: Path) -> None:
    known: SmolVLMArchitecture = architecture(folder)
    assert known.sizes.cached == 2 * 3 * 2 * 16
    assert known.sizes.tower == (SIDE // PATCH) ** 2 * (6 * 32 + 4 * 48)
