"""LLaVA-OneVision, read piece by piece, against transformers' own class and the released chat template."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from plain_target import chain, event_draft
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import interpolate
from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration
from transformers.utils.chat_template_utils import render_jinja_template

from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.errors import InputError
from crossspec_ros.models.footprint import measured_bytes, weight_bytes
from crossspec_ros.models.llava_onevision import LlavaOnevision, architecture, spec
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import target_architecture, target_spec
from crossspec_ros.paths import share_dir
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

QUESTION = "What are the key elements in this scene?"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"]
SIDE, PATCH, POOLED = 30, 4, 4
"""As in the released ones, patches leave a margin, are odd in number, and are pooled to half, rounded up."""
TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + ' '}}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'video') %}{{ '<video>' }}"
    "{% endfor %}{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ '\\n' + content['text'] }}{% endfor %}{{'<|im_end|>'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""What the released template says of a question about a video."""


def checkpoint(folder: Path, **text: Any) -> None:
    """Write a tiny random one, whose language model differs by `text`."""
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizer()
    made.save(str(folder / "tokenizer.json"))
    start, end, image, video = (made.token_to_id(token) for token in (SPECIAL[0], *SPECIAL[2:]))
    layers = {"num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3}
    config = LlavaOnevisionConfig(
        text_config={
            "model_type": "qwen2",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_key_value_heads": 2,
            "max_position_embeddings": 2048,
            # A released vocabulary has more rows than tokens.
            "vocab_size": made.get_vocab_size() + 7,
            "eos_token_id": end,
            **layers,
            **text,
        },
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": 32,
            "intermediate_size": 64,
            "image_size": SIDE,
            "patch_size": PATCH,
            "vision_use_head": False,
            **layers,
        },
        image_token_index=image,
        video_token_index=video,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlavaOnevisionForConditionalGeneration(config)
    model.generation_config.eos_token_id = [end, start]
    model.generation_config.pad_token_id = start
    model.save_pretrained(folder)


def tokenizer() -> Tokenizer:
    """Of Qwen2's kind."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator([f"{QUESTION} user assistant The red car is left of the van."] * 9, trainer)
    made.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    return made


def generated(folder: Path, frames: np.ndarray, question: str, max_new_tokens: int) -> list[int]:
    """What transformers says, greedily, of (n, H, W, 3) uint8 frames; the end of sequence included."""
    model = LlavaOnevisionForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    prompt = inputs(folder, frames, question)
    with torch.inference_mode():
        out = model.generate(**prompt, do_sample=False, max_new_tokens=max_new_tokens)
    said: list[int] = out[0, prompt["input_ids"].shape[1] :].tolist()
    return said


def inputs(
    folder: Path, frames: np.ndarray, question: str, template: str = TEMPLATE
) -> dict[str, torch.Tensor]:
    """What transformers' processor makes of (n, H, W, 3) uint8 frames."""
    vision = json.loads((folder / "config.json").read_text())["vision_config"]
    side, pooled = vision["image_size"], math.ceil(vision["image_size"] // vision["patch_size"] / 2)
    text = rendered(question, template).replace("<video>", "<video>" * (len(frames) * pooled**2 + 1))
    ids = torch.tensor([Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids])
    pixels = torch.tensor(frames).permute(0, 3, 1, 2)
    scaled = interpolate(pixels, (side, side), mode="bicubic", antialias=True)
    mean = torch.full((3, 1, 1), 0.5) * 255
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values_videos": ((scaled.to(torch.float32) - mean) / mean)[None],
    }


def rendered(question: str, template: str = TEMPLATE) -> str:
    content = [{"type": "video"}, {"type": "text", "text": question}]
    messages = [[{"role": "user", "content": content}]]
    (chat,), _ = render_jinja_template(messages, chat_template=template, add_generation_prompt=True)
    return chat


def noise(count: int, height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("llava_onevision")
    checkpoint(made)
    return made


@pytest.fixture(scope="module")
def target(folder: Path) -> LlavaOnevision:
    return loaded(folder)


def loaded(folder: Path) -> LlavaOnevision:
    known = architecture(folder)
    return known.model(known.load(Placement()), known.tokenizer())


def edit(folder: Path, part: str = "", **values: Any) -> None:
    """Set values in config.json, or in a part of it; None takes them out."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    (config[part] if part else config).update(values)
    file.write_text(json.dumps(config))


def test_checkpoints_are_small_and_always_the_same(folder: Path, tmp_path: Path) -> None:
    checkpoint(tmp_path / "again")
    assert sum(file.stat().st_size for file in folder.iterdir()) < 2_000_000
    for file in folder.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()


Guess = Callable[[list[int]], DraftTree]


def said(target: LlavaOnevision, frames: np.ndarray, limit: int, *guesses: Guess) -> list[list[int]]:
    """What the engine says with each of these, whatever number of frames is read one by one before."""
    engine = LocalEngine(target)
    try:
        return [
            _said(engine, frames, ahead, limit, guess)
            for guess in guesses
            for ahead in {0, len(frames) - 1, len(frames)}
        ]
    finally:
        engine.close()


def _said(engine: LocalEngine, frames: np.ndarray, ahead: int, limit: int, guess: Guess) -> list[int]:
    session, tokens, ended = engine.open(0, Trace()), list[int](), False
    for i in range(ahead):
        session.append(frames[i], i).result()
    session.fit(frames, range(len(frames)))
    session.ask(QUESTION, Trace())
    while not ended and len(tokens) < limit:
        step = session.step(guess(tokens)).result()
        tokens += step.tokens
        ended = step.ended
    session.close()
    return tokens[:limit]


def wrong(tokens: Sequence[int]) -> DraftTree:
    return DraftTree((5, 6, 7, 8), (ROOT, ROOT, 0, 2), (0.5,) * 4, (("guess",),) * 4)


@pytest.mark.parametrize(("count", "height", "width"), [(8, SIDE, SIDE), (8, 17, 90)])
def test_the_tokens_are_those_of_generate(
    folder: Path, target: LlavaOnevision, count: int, height: int, width: int
) -> None:
    frames = noise(count, height, width, seed=count + width)
    expected = generated(folder, frames, QUESTION, 24)
    assert len(set(expected)) > 5

    def right(tokens: list[int]) -> DraftTree:
        ahead = expected[len(tokens) : len(tokens) + 6]
        return chain([*ahead[:4], 3, *ahead[5:]])

    for tokens in said(target, frames, 24, lambda _: DraftTree(), wrong, right):
        assert tokens == expected


def test_either_end_of_sequence_ends_the_response(folder: Path, tmp_path: Path) -> None:
    checkpoint(tmp_path)
    frames = noise(8, 30, 40)
    whole = generated(folder, frames, QUESTION, 24)
    for end in whole[3], whole[7]:
        file = tmp_path / "generation_config.json"
        file.write_text(json.dumps({"eos_token_id": [300, end], "pad_token_id": 300}))
        expected = generated(tmp_path, frames, QUESTION, 24)
        assert expected == whole[: whole.index(end) + 1]
        assert spec(tmp_path).eos_ids == (300, end)
        for tokens in said(loaded(tmp_path), frames, 24, lambda tokens: chain(whole[len(tokens) :])):
            assert tokens == expected


@pytest.mark.parametrize("question", [QUESTION, "", "  Où est 日本? \n\n", "a<|im_end|>b <video>"])
def test_the_prompt_is_that_of_the_chat_template(target: LlavaOnevision, question: str) -> None:
    before, after = target.prompt_ids(question)
    video = target.tokenizer.token_to_id("<video>")
    assert [*before, video, *after] == target.tokenizer.encode(rendered(question)).ids


@torch.inference_mode()
def test_the_newline_belongs_to_the_closing(target: LlavaOnevision) -> None:
    unit, closing = target.unit(target.encode(noise(1, 30, 40))[0], 0), target.closing(QUESTION)
    assert len(unit) == POOLED**2 == target.spec.frame_tokens // target.spec.frames
    assert len(closing) == 1 + len(target.prompt_ids(QUESTION)[1])
    assert torch.equal(closing.embeds[0], target.module.model.image_newline)
    assert closing.positions.tolist() == [list(range(len(closing)))]


def test_what_a_window_is_follows_from_the_config(folder: Path, tmp_path: Path) -> None:
    known = target_spec(folder)
    assert (known.frames, known.frames_per_unit, known.image_size, known.axes) == (8, 1, SIDE, 1)
    assert (known.frame_tokens, known.most_tokens, known.eos_ids) == (8 * POOLED**2, 2048, (302, 300))
    assert target_architecture(folder).spec == known
    checkpoint(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    assert spec(tmp_path).eos_ids == (302,)
    edit(tmp_path, "vision_config", image_size=384, patch_size=14)
    assert spec(tmp_path).frame_tokens == architecture(tmp_path).spec.frame_tokens == 8 * 196


@pytest.mark.parametrize(
    ("part", "values", "sentence"),
    [
        ("text_config", {"model_type": "llama"}, "model_type is llama, not qwen2"),
        ("text_config", {"use_sliding_window": True}, "use_sliding_window is True, not False"),
        ("vision_config", {"model_type": "clip_vision_model"}, "is clip_vision_model, not siglip_vision"),
        ("", {"vision_feature_select_strategy": "default"}, "strategy is default, not full"),
        ("", {"text_config": 7}, "not a mapping"),
        ("vision_config", {"patch_size": 0}, "division"),
        ("vision_config", {"patch_size": 64}, "image_size 30 is less than a patch"),
        ("vision_config", {"image_size": [30, 30]}, "list"),
        ("", {"projector_hidden_act": 7}, "projector_hidden_act"),
    ],
)
def test_another_config_is_refused(
    folder: Path, tmp_path: Path, part: str, values: dict[str, Any], sentence: str
) -> None:
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    edit(tmp_path, part, **values)
    refused = rf"'{tmp_path}/config.json' is no config of LLaVA-OneVision \(.*{sentence}.*\): take"
    with pytest.raises(InputError, match=refused):
        architecture(tmp_path)
    if part:
        with pytest.raises(InputError, match=refused):
            spec(tmp_path)


def released(name: str) -> str:
    """A tensor's name in the released checkpoints, by that of the module in transformers 5."""
    if name.startswith("lm_head."):
        return f"language_model.{name}"
    name = name.removeprefix("model.")
    if name.startswith("language_model."):
        return name.replace("language_model.", "language_model.model.", 1)
    return name.replace("vision_tower.", "vision_tower.vision_model.", 1)


@pytest.mark.parametrize("tied", [False, True])
def test_the_released_names(tmp_path: Path, tied: bool) -> None:
    checkpoint(tmp_path, tie_word_embeddings=tied)
    plain = LlavaOnevisionForConditionalGeneration.from_pretrained(tmp_path).state_dict()
    # That of 0.5B has none, its embeddings being tied.
    kept = {name: tensor for name, tensor in plain.items() if not (tied and name == "lm_head.weight")}
    for rename in (released, lambda name: name):
        save_file(
            {rename(name): tensor.contiguous() for name, tensor in kept.items()},
            tmp_path / "model.safetensors",
        )
        module = loaded(tmp_path).module
        assert module.state_dict().keys() == plain.keys()
        assert all(torch.equal(tensor, plain[name]) for name, tensor in module.state_dict().items())
        assert (module.lm_head.weight is module.get_input_embeddings().weight) == tied
        skeleton = architecture(tmp_path).skeleton()
        assert measured_bytes(module) == weight_bytes(
            skeleton, Placement(), architecture(tmp_path).unquantized
        )


def test_a_stored_head_counts_although_embeddings_are_said_to_be_tied(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    edit(tmp_path, "text_config", tie_word_embeddings=True)
    frames = noise(8, 30, 40)
    expected = generated(tmp_path, frames, QUESTION, 24)
    stored = load_file(tmp_path / "model.safetensors")
    module = loaded(tmp_path).module
    assert any(torch.equal(module.lm_head.weight, tensor) for tensor in stored.values())
    assert all(tokens == expected for tokens in said(loaded(tmp_path), frames, 24, wrong))


def test_eventgpt_drafts_for_it(folder: Path, windows: list[Window]) -> None:
    pair = load_pair(share_dir() / "models" / "tiny", target=str(folder))
    assert pair.draft is not None
    draft = event_draft(pair, windows[0].event_images, QUESTION, 64)
    assert draft.run(Trace())
    drafted, probs = draft.proposal()
    assert len(draft.text.split()) > 5 and len(drafted) == len(probs)
    # As the target's own chat template has it: no space before the first word, and its end of the text.
    tokens = pair.target.tokenizer.encode(f"{draft.text}<|im_end|>").ids
    assert list(drafted) == tokens
