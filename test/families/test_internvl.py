"""InternVL, read piece by piece, against transformers' own class, its processor's text and its pixels."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import interpolate
from transformers import InternVLConfig, InternVLForConditionalGeneration
from transformers.models.internvl.processing_internvl import InternVLProcessor
from transformers.utils.chat_template_utils import render_jinja_template

from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import InputSpec
from crossspec_ros.models.footprint import measured_bytes, weight_bytes
from crossspec_ros.models.internvl import InternVL, architecture, frame_pixels, spec
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import target_architecture, target_spec
from crossspec_ros.telemetry.trace import Trace

QUESTION = "What are the key elements in this scene?"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>"]
SIDE, PATCH, TOKENS = 32, 4, 16
SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n'}}"
    "{% for content in message['content'] %}"
    "{% if content['type'] == 'video' %}{{ '<video>\\n' }}"
    "{% elif content['type'] == 'text' %}{{ content['text'] }}{% endif %}{% endfor %}"
    "{{'<|im_end|>\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{'<|im_start|>assistant\\n' }}{% endif %}"
)
"""What the released template says of a question about a video."""
QWEN2 = {
    "model_type": "qwen2",
    "rope_scaling": {"factor": 2.0, "rope_type": "dynamic", "type": "dynamic"},
    "rope_theta": 1000000.0,
}
# With larger weights it would say one word only.
QWEN3 = {"model_type": "qwen3", "head_dim": 16, "initializer_range": 0.02}


def checkpoint(folder: Path, language: dict[str, Any] = QWEN2, tied: bool = False) -> None:
    """Write a tiny random one, whose language model is as in 3 unless said otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizer()
    made.save(str(folder / "tokenizer.json"))
    start, end, context = (made.token_to_id(token) for token in (SPECIAL[0], SPECIAL[2], SPECIAL[5]))
    layers = {"num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3}
    config = InternVLConfig(
        text_config={
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_key_value_heads": 2,
            "max_position_embeddings": 2048,
            # A released vocabulary has more rows than tokens.
            "vocab_size": made.get_vocab_size() + 7,
            "eos_token_id": end,
            **layers,
            **language,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "image_size": SIDE,
            "patch_size": PATCH,
            "attention_bias": True,
            **layers,
        },
        image_token_id=context,
        image_seq_length=TOKENS,
        tie_word_embeddings=tied,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = InternVLForConditionalGeneration(config)
        # Zeros as they are made, which would hide a patch's place.
        torch.nn.init.normal_(model.model.vision_tower.embeddings.position_embeddings)
    model.generation_config.eos_token_id = [end, start]
    model.generation_config.pad_token_id = start
    model.save_pretrained(folder)


def tokenizer() -> Tokenizer:
    """It splits texts as those of Qwen do."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator([f"user\nFrame1: \nFrame2: {QUESTION} assistant\n The red car."] * 9, trainer)
    made.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    return made


def generated(folder: Path, frames: np.ndarray, question: str, max_new_tokens: int) -> list[int]:
    """What transformers says, greedily, of (n, H, W, 3) uint8 frames; the end of sequence included."""
    model = InternVLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = inputs(folder, frames, question)
    with torch.inference_mode():
        out = model.generate(**prompt, do_sample=False, max_new_tokens=max_new_tokens)
    said: list[int] = out[0, prompt["input_ids"].shape[1] :].tolist()
    return said


def inputs(
    folder: Path, frames: np.ndarray, question: str, template: str = TEMPLATE
) -> dict[str, torch.Tensor]:
    """What transformers' processor makes of (n, H, W, 3) uint8 frames."""
    values = json.loads((folder / "config.json").read_text())
    text = rendered(len(frames), question, template, values["image_seq_length"])
    ids = torch.tensor([Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids])
    side = values["vision_config"]["image_size"][0]
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": pixels(frames, side),
    }


def rendered(frames: int, question: str, template: str = TEMPLATE, tokens: int = TOKENS) -> str:
    """The chat template's text, with the video in it as transformers' processor writes it."""
    content = [{"type": "video"}, {"type": "text", "text": question}]
    messages = [[{"role": "user", "content": content}]]
    (chat,), _ = render_jinja_template(messages, chat_template=template, add_generation_prompt=True)
    # Itself it cannot be made without torchvision.
    processor: Any = SimpleNamespace(
        start_image_token="<img>",
        end_image_token="</img>",
        image_token="<IMG_CONTEXT>",
        image_seq_length=tokens,
    )
    videos = {"pixel_values_videos": torch.zeros(1, frames)}
    return chat.replace("<video>", InternVLProcessor.replace_video_token(processor, videos, 0), 1)


def pixels(frames: np.ndarray, side: int) -> torch.Tensor:
    """(n, 3, side, side) float32, as `InternVLVideoProcessor` has it with what image processors name."""
    images = torch.tensor(frames).permute(0, 3, 1, 2)
    mean = torch.tensor([0.485, 0.456, 0.406]).mul(255).view(3, 1, 1)
    deviation = torch.tensor([0.229, 0.224, 0.225]).mul(255).view(3, 1, 1)
    return interpolate(images, [side, side], mode="bicubic", antialias=True).float().sub(mean).div(deviation)


def noise(count: int, height: int, width: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, height, width, 3), np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("internvl")
    checkpoint(made)
    return made


@pytest.fixture(scope="module")
def target(folder: Path) -> InternVL:
    return loaded(folder)


def loaded(folder: Path) -> InternVL:
    known = architecture(folder)
    return known.model(known.load(Placement()), known.tokenizer())


def edit(folder: Path, part: str = "", **values: Any) -> None:
    """Set values in config.json, or in a part of it."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    (config[part] if part else config).update(values)
    file.write_text(json.dumps(config))


def said(target: InternVL, frames: np.ndarray, limit: int) -> list[int]:
    """What the engine says, of which no frame is read ahead, with static buffers."""
    engine = LocalEngine(target, is_static=True)
    session = engine.open(0, Trace())
    session.fit(frames, range(len(frames)))
    session.ask(QUESTION, Trace())
    tokens, ended = list[int](), False
    while not ended and len(tokens) < limit:
        step = session.step(DraftTree()).result(20)
        tokens += step.tokens
        ended = step.ended
    engine.close()
    return tokens[:limit]


@pytest.mark.parametrize(("language", "tied"), [(QWEN2, False), (QWEN2, True), (QWEN3, False)])
def test_languages_and_heads(tmp_path: Path, language: dict[str, Any], tied: bool) -> None:
    checkpoint(tmp_path, language, tied)
    module, frames = loaded(tmp_path).module, noise(8, 40, 60)
    assert (module.lm_head.weight is module.get_input_embeddings().weight) == tied
    expected = generated(tmp_path, frames, QUESTION, 16)
    assert len(set(expected)) > 5 and expected != generated(tmp_path, frames[::-1].copy(), QUESTION, 16)
    assert said(loaded(tmp_path), frames, 16) == expected
    known = architecture(tmp_path)
    assert measured_bytes(module) == weight_bytes(known.skeleton(), Placement(), known.unquantized)


def test_dynamic_scaling_is_left_out_for_it_changes_nothing(folder: Path, target: InternVL) -> None:
    own = InternVLForConditionalGeneration.from_pretrained(folder).model.language_model.rotary_emb
    ours = target.module.model.language_model.rotary_emb
    assert (own.rope_type, ours.rope_type) == ("dynamic", "default")
    torch.testing.assert_close(ours.inv_freq, own.inv_freq, rtol=0, atol=0)
    assert ours.inv_freq[1] == 1000000.0 ** (-2 / 16) and ours.attention_scaling == own.attention_scaling


@pytest.mark.parametrize("question", [QUESTION, "", "  Où est 日本? \n\n", "\n<img>a</img><|im_end|>b"])
@pytest.mark.parametrize("frames", [1, 7, 8])
@torch.inference_mode()
def test_the_pieces_are_the_chat_templates_text(target: InternVL, frames: int, question: str) -> None:
    window = noise(frames, SIDE, SIDE)
    units = [target.unit(features, i) for i, features in enumerate(target.encode(window))]
    pieces = [target.opening(), *units, target.closing(question)]
    assert all(piece.positions.tolist() == [list(range(len(piece)))] for piece in pieces)
    ids = tuple(target.tokenizer.encode(rendered(frames, question)).ids)
    assert tuple(target.inputs(window, question)["input_ids"][0].tolist()) == ids
    assert len(units[0]) == TOKENS + 2 and {len(unit) for unit in units[1:]} <= {TOKENS + 7}
    if frames == target.spec.frames:
        assert sum(map(len, units)) == target.spec.frame_tokens
    embeds = torch.cat([piece.embeds for piece in pieces])
    is_text = torch.tensor(ids) != target.module.config.image_token_id
    assert len(embeds) == len(ids)
    assert torch.equal(embeds[is_text], target.words(ids).embeds[is_text])


# Digests of what `InternVLVideoProcessor` makes of these frames, with torchvision 0.29.2.
@pytest.mark.parametrize(
    ("height", "width", "side", "digest"),
    [
        (270, 480, 64, 0xCE7A16D3),
        (401, 225, 64, 0x77CA10C1),
        (31, 47, 64, 0xBFDD1327),
        (64, 64, 64, 0x5A93BBAE),
        (480, 640, 448, 0x4A1E9D14),
    ],
)
def test_pixels_are_bit_for_bit_those_of_the_processor(
    height: int, width: int, side: int, digest: int
) -> None:
    made = frame_pixels(noise(2, height, width), side)
    assert made.shape == (2, 3, side, side) and made.dtype == torch.float32
    assert crc32(made.numpy().tobytes()) == digest


def test_the_released_names_and_those_of_the_module(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    stored = load_file(folder / "model.safetensors")
    # transformers stores by the names of the releases.
    assert {name.split(".")[0] for name in stored} == {
        "language_model", "vision_tower", "multi_modal_projector"
    }  # fmt: skip
    plain = InternVLForConditionalGeneration.from_pretrained(folder).state_dict()
    for tensors in stored, plain:
        save_file(tensors, tmp_path / "model.safetensors")
        loaded = architecture(tmp_path).load(Placement()).state_dict()
        assert loaded.keys() == plain.keys()
        assert all(torch.equal(loaded[name], tensor) for name, tensor in plain.items())


def test_a_stored_head_counts_where_nothing_is_said_of_tied_embeddings(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    # As in the released ones, and so taken for true.
    del config["tie_word_embeddings"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    frames = noise(8, 30, 40)
    target = loaded(tmp_path)
    assert said(target, frames, 16) == generated(tmp_path, frames, QUESTION, 16)
    # So it is counted, also before a download.
    for _ in range(2):
        known = architecture(tmp_path)
        assert weight_bytes(known.skeleton(), Placement(), known.unquantized) == measured_bytes(target.module)
        (tmp_path / "model.safetensors").unlink(missing_ok=True)


RELEASED = {
    "3-1B": ({**QWEN2, "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14,
              "num_hidden_layers": 24, "num_key_value_heads": 2, "vocab_size": 151674}, 32768),
    "3.5-8B": ({**QWEN3, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288,
                "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
                "vocab_size": 151936, "max_position_embeddings": 40960}, 40960),
}  # fmt: skip
PARAMETERS = {"3-1B": 938_193_024, "3.5-8B": 8_528_318_464}


@pytest.mark.parametrize("size", RELEASED)
def test_the_released_sizes(tmp_path: Path, size: str) -> None:
    text, most = RELEASED[size]
    text = {**text, "eos_token_id": 151645}
    vision = {"model_type": "internvl_vision", "attention_bias": True, "image_size": [448, 448]}
    values = {"model_type": "internvl", "text_config": text, "vision_config": vision}
    (tmp_path / "config.json").write_text(json.dumps({**values, "tie_word_embeddings": False}))
    known = target_architecture(tmp_path)
    assert target_spec(tmp_path) == known.spec == InputSpec(8, 1, 448, 8 * 258 + 7 * 5, most, (151645,))
    assert sum(parameter.numel() for parameter in known.skeleton().parameters()) == PARAMETERS[size]


def test_what_is_reckoned_with_for_memory(folder: Path) -> None:
    known = architecture(folder)
    assert known.sizes.cached == 2 * 2 * 2 * 16
    assert known.sizes.tower == ((SIDE // PATCH) ** 2 + 1) * (6 * 32 + 4 * 64)


def test_end_tokens(folder: Path, tmp_path: Path) -> None:
    assert spec(folder).eos_ids == (302, 300)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    assert spec(tmp_path).eos_ids == (302,)


@pytest.mark.parametrize(
    ("part", "values", "sentence"),
    [
        ("text_config", {"model_type": "llama"}, "model_type is llama, not qwen2 or qwen3"),
        ("text_config", {"use_sliding_window": True}, "use_sliding_window is True, not False"),
        ("text_config", {"max_position_embeddings": "many"}, "invalid literal"),
        ("vision_config", {"model_type": "clip_vision_model"}, "is clip_vision_model, not internvl_vision"),
        ("vision_config", {"patch_size": 0}, "division"),
        ("vision_config", {"image_size": 28}, "image_seq_length is 16, not that of 7 patches a side"),
        ("vision_config", {"image_size": [32, 64]}, r"\[32, 64\] is no square"),
        ("", {"vision_feature_select_strategy": "full"}, "strategy is full, not default"),
        ("", {"image_seq_length": 64}, "image_seq_length is 64, not that of 8 patches a side"),
        ("", {"downsample_ratio": "half"}, "could not convert"),
        ("", {"text_config": 7}, "not a mapping"),
    ],
)
@pytest.mark.parametrize("known", [target_spec, target_architecture])
def test_another_config_is_refused(
    folder: Path, tmp_path: Path, part: str, values: dict[str, Any], sentence: str, known: Any
) -> None:
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    edit(tmp_path, part, **values)
    refused = rf"'{tmp_path}/config.json' is no config of InternVL \(.*{sentence}.*\): take"
    with pytest.raises(InputError, match=refused):
        known(tmp_path)
