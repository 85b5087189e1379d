"""Qwen3-VL read pair by pair says what transformers says of the whole video."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor, smart_resize
from transformers.utils.chat_template_utils import render_jinja_template
from transformers.video_utils import VideoMetadata

from crossspec_ros.cli import main
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import Chunk
from crossspec_ros.models.footprint import measured_bytes, weight_bytes
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.qwen3_vl import Features, Qwen3VL, read_size, unit_patches
from crossspec_ros.models.registry import target_architecture, target_spec
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.resize import resize_shortest

RECORDED = np.load(Path(__file__).parent / "recorded" / "qwen3_vl_patches.npz")
QUESTION = "What is on the road, and where?"
# What the template of the released checkpoints writes for users and for the start of an answer.
TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- for content in message.content %}
        {%- if content.type == 'video' or 'video' in content -%}
            <|vision_start|><|video_pad|><|vision_end|>
        {%- elif 'text' in content %}
            {{- content.text }}
        {%- endif %}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
MERGES = (("s", "e"), ("o", "n"), ("c", "on"), ("d", "s"), ("Ġ", "se"), ("Ġse", "con"), ("Ġsecon", "ds"))
SPLIT = r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATCH, MERGED = 4, 2
FACTOR = PATCH * MERGED
MOST_PIXELS = 48 * FACTOR**2
SHAPES = {8: (48, 64), 7: (90, 40), 1: (30, 100)}
"""Sizes of frames by their number: one that is read as it is, and two that are shrunk."""


def checkpoint(folder: Path, tied: bool = False) -> None:
    """Write a tiny one with random weights."""
    tokenizer = tiny_tokenizer()
    ids = {token: tokenizer.token_to_id(token) for token in SPECIAL}
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": 288,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]},
            "eos_token_id": ids["<|im_end|>"],
        },
        vision_config={
            "depth": 3,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "patch_size": PATCH,
            "spatial_merge_size": MERGED,
            "out_hidden_size": 64,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
        tie_word_embeddings=tied,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    torch.manual_seed(0)
    module = Qwen3VLForConditionalGeneration(config)
    for parameter in module.parameters():
        # So large that what is said depends on all that was read.
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    module.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    eos = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))
    size = {"longest_edge": 8 * MOST_PIXELS, "shortest_edge": 4096}
    (folder / "video_preprocessor_config.json").write_text(json.dumps({"size": size}))


def tiny_tokenizer() -> Tokenizer:
    """Bytes, a few merges, and the special tokens, split as the released one does it."""
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in MERGES)]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, list(MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    return tokenizer


class Processor(Qwen3VLProcessor):
    """transformers' own without its parts, which need torchvision."""

    image_token, video_token = "<|image_pad|>", "<|video_pad|>"
    vision_start_token, vision_end_token = "<|vision_start|>", "<|vision_end|>"
    video_processor = SimpleNamespace(merge_size=MERGED, temporal_patch_size=2)

    def __init__(self) -> None:
        pass


def written(question: str, template: str = TEMPLATE) -> str:
    """What the chat template makes of a video and a question."""
    content = [{"type": "video"}, {"type": "text", "text": question}]
    messages = [[{"role": "user", "content": content}]]
    (chat,), _ = render_jinja_template(messages, chat_template=template, add_generation_prompt=True)
    return chat


def inputs(
    folder: Path, frames: np.ndarray, question: str, template: str = TEMPLATE
) -> dict[str, torch.Tensor]:
    """What transformers' processor makes of frames that come 8 a second, in the size of a video of 8 with at
    most 256 tokens a pair."""
    count, height, width, _ = frames.shape
    patch = json.loads((folder / "config.json").read_text())["vision_config"]["patch_size"]
    factor = patch * MERGED
    budget = json.loads((folder / "video_preprocessor_config.json").read_text())["size"]
    most = min(budget["longest_edge"], 8 * 256 * factor**2)
    size = smart_resize(8, height, width, 2, factor, budget["shortest_edge"], most)
    pixels = torch.from_numpy(frames).permute(0, 3, 1, 2).contiguous()
    resized = torch.nn.functional.interpolate(pixels, size, mode="bicubic", antialias=True)
    normal = (resized.float() - 127.5) / 127.5
    patches, *grid = Qwen3VLVideoProcessor.patchify(None, normal[None], patch, MERGED, 2)
    video: dict[str, Any] = {
        "video_grid_thw": torch.tensor([grid]),
        "video_metadata": [VideoMetadata(count, fps=8.0, frames_indices=list(range(count)))],
    }
    processor = Processor()
    replaced = processor.replace_video_token(video, 0)
    (text,), _ = processor.get_text_with_replacements(
        [written(question, template)], videos_replacements=[replaced]
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = torch.tensor([tokenizer.encode(text).ids])
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": 2 * (ids == tokenizer.token_to_id("<|video_pad|>")).int(),
        "pixel_values_videos": patches[0],
        "video_grid_thw": video["video_grid_thw"],
    }


@torch.inference_mode()
def generated(folder: Path, frames: np.ndarray, question: str, max_new_tokens: int) -> list[int]:
    """transformers' own greedy tokens."""
    module = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    prompt = inputs(folder, frames, question)
    out = module.generate(**prompt, do_sample=False, max_new_tokens=max_new_tokens)
    return out[0, prompt["input_ids"].shape[1] :].tolist()


def noise(count: int) -> np.ndarray:
    shape = (count, *SHAPES[count], 3)
    return np.random.default_rng(count).integers(0, 256, shape, np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen3_vl")
    checkpoint(folder)
    return folder


def loaded(folder: Path) -> Qwen3VL:
    known = target_architecture(folder)
    return known.model(known.load(Placement()), known.tokenizer())


@pytest.fixture(scope="module")
def target(folder: Path) -> Qwen3VL:
    return loaded(folder)


def right(tokens: list[int]) -> DraftTree:
    return DraftTree.chain(tokens[:5], [0.9] * 5, "guess")


def wrong(tokens: list[int]) -> DraftTree:
    return DraftTree.chain([token ^ 1 for token in tokens[:4]], [0.9] * 4, "guess")


def branching(tokens: list[int]) -> DraftTree:
    """The right tokens as second children, each beside a wrong one that has a child as well."""
    ids: list[int] = []
    parents: list[int] = []
    last = ROOT
    for token in tokens[:3]:
        ids += [token ^ 1, token, token]
        parents += [last, last, len(ids) - 3]
        last = len(ids) - 2
    return DraftTree(tuple(ids), tuple(parents), (0.5,) * len(ids), (("guess",),) * len(ids))


def said(
    target: Qwen3VL, frames: np.ndarray, ahead: int, tree: Callable[[list[int]], DraftTree], tokens: list[int]
) -> tuple[list[int], int]:
    """What the engine says that has read `ahead` frames before the question, and in how many passes."""
    engine = LocalEngine(target)
    session = engine.open(0, Trace())
    try:
        for i in range(ahead):
            session.append(frames[i], i).result(20)
        session.fit(frames, range(len(frames)))
        session.ask(QUESTION, Trace())
        answer: list[int] = []
        passes, ended = 0, False
        while len(answer) < len(tokens) and not ended:
            step = session.step(tree(tokens[len(answer) :])).result(20)
            passes, ended = passes + 1, step.ended
            answer += step.tokens
        return answer[: len(tokens)], passes
    finally:
        session.close()
        engine.close()


@pytest.mark.parametrize("count", SHAPES)
def test_the_engine_says_what_transformers_says(folder: Path, target: Qwen3VL, count: int) -> None:
    frames = noise(count)
    tokens = generated(folder, frames, QUESTION, 24)
    assert len(tokens) == 24 and len(set(tokens)) > 5
    for ahead in {0, count // 2, count}:
        assert said(target, frames, ahead, right, tokens) == (tokens, 4)
    assert said(target, frames, count, lambda _: DraftTree(), tokens) == (tokens, 24)
    assert said(target, frames, count, wrong, tokens) == (tokens, 24)
    assert said(target, frames, count, branching, tokens) == (tokens, 6)


def test_frames_that_turn_out_blind_leave_no_gap(folder: Path, target: Qwen3VL) -> None:
    """Those behind them move up, and pairs are made anew."""
    frames, kept = noise(8), [0, 1, 2, 4, 5, 6, 7]
    tokens = generated(folder, frames[kept], QUESTION, 6)
    engine = LocalEngine(target)
    session = engine.open(0, Trace())
    try:
        for i, frame in enumerate(frames):
            session.append(frame, i).result(20)
        session.fit(frames[kept], kept)
        session.ask(QUESTION, Trace())
        assert session.step(right(tokens)).result(20).tokens == tuple(tokens)
    finally:
        session.close()
        engine.close()


def test_further_questions_and_passes_on_static_buffers(folder: Path, target: Qwen3VL) -> None:
    frames = noise(7)
    engine = LocalEngine(target, is_static=True)
    engine.warm_up(1)
    session = engine.open(0, Trace())
    try:
        for i, frame in enumerate(frames[:5]):
            session.append(frame, i).result(20)
        session.fit(frames, range(7))
        for question in (QUESTION, "Who?", QUESTION):
            tokens = generated(folder, frames, question, 12)
            session.ask(question, Trace())
            for i in (0, 6):
                assert session.step(right(tokens[i:])).result(20).tokens == tuple(tokens[i : i + 6])
    finally:
        session.close()
        engine.close()


@pytest.mark.parametrize("ended_by", [0, 1])
def test_any_of_several_end_tokens_ends_it(folder: Path, tmp_path: Path, ended_by: int) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    frames = noise(8)
    tokens = generated(folder, frames, QUESTION, 24)
    ends = [287, 287]
    ends[ended_by] = tokens[5]
    (tmp_path / "generation_config.json").unlink()
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    ended = generated(tmp_path, frames, QUESTION, 24)
    assert ended == tokens[: tokens.index(tokens[5]) + 1]
    target = loaded(tmp_path)
    assert target.spec.eos_ids == tuple(ends)
    assert said(target, frames, 8, lambda _: right(tokens), ended)[0] == ended


def test_tied_embeddings_are_the_head(tmp_path: Path) -> None:
    checkpoint(tmp_path, tied=True)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    target, frames = loaded(tmp_path), noise(7)
    assert target.module.lm_head.weight is target.module.get_input_embeddings().weight
    tokens = generated(tmp_path, frames, QUESTION, 8)
    assert said(target, frames, 7, right, tokens)[0] == tokens
    known = target_architecture(tmp_path)
    estimated = weight_bytes(known.skeleton(), Placement(), known.unquantized)
    assert estimated == measured_bytes(target.module)


def test_tensors_have_the_names_of_the_released_ones(folder: Path) -> None:
    names = {".".join(name.split(".")[:2]) for name in load_file(folder / "model.safetensors")}
    assert names == {"model.visual", "model.language_model", "lm_head.weight"}


@pytest.mark.parametrize("count", SHAPES)
@torch.inference_mode()
def test_ids_and_positions_are_those_of_the_processor(folder: Path, target: Qwen3VL, count: int) -> None:
    frames, prompt = noise(count), inputs(folder, noise(count), QUESTION)
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


@pytest.mark.parametrize("question", [QUESTION, "", " Zwei\n\nZeilen\n", "<|im_end|>?"])
def test_the_prompt_is_that_of_the_chat_template(target: Qwen3VL, question: str) -> None:
    before, after = written(question).split("<|video_pad|>")
    ids = tuple(tuple(target.tokenizer.encode(text).ids) for text in (before, after))
    assert target.prompt_ids(question) == ids
    assert after.endswith(f"{question}<|im_end|>\n<|im_start|>assistant\n")


def test_the_prompt_written_out(target: Qwen3VL) -> None:
    """The marks around all units are those of transformers from 5.10 on; the decision is in
    docs/real_models.md."""
    frames = noise(8)
    unit = f"<|vision_start|>{'<|video_pad|>' * (6 * 8)}<|vision_end|>"
    whole = (
        f"<|im_start|>user\n<|vision_start|><0.1 seconds>{unit}<0.3 seconds>{unit}<0.6 seconds>{unit}"
        f"<0.8 seconds>{unit}<|vision_end|>{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert target.inputs(frames, QUESTION)["input_ids"][0].tolist() == target.tokenizer.encode(whole).ids


@pytest.mark.parametrize("name", ["kept", "shrunk", "portrait", "small"])
def test_patches_are_bit_for_bit_those_of_the_processor(name: str) -> None:
    """As scripts/record_qwen3_vl.py recorded them, in which a frame has 4 tokens at most."""
    frames, levels = RECORDED[f"{name}_frames"], RECORDED[f"{name}_levels"]
    size = read_size(*frames.shape[1:3], 32, 0, 4 * 32 * 32)
    assert [1, size[0] // 16, size[1] // 16] == RECORDED[f"{name}_grid"].tolist()
    patches = unit_patches(frames, size, 2, 16, 2).numpy()
    np.testing.assert_array_equal(patches, (levels.astype(np.float32) - 127.5) / 127.5)


def test_the_last_frame_is_repeated_where_one_lacks() -> None:
    (frame,) = noise(1)
    alone, twice = (unit_patches(np.stack([frame] * n), (32, 96), 2, PATCH, MERGED) for n in (1, 2))
    assert torch.equal(alone, twice)


@given(st.integers(2, 2000), st.integers(2, 2000), st.integers(0, 256))
def test_sizes_are_those_of_the_processor_and_fit(height: int, width: int, least: int) -> None:
    if max(height, width) <= 200 * min(height, width):
        token, most = 32 * 32, 256 * 32 * 32
        size = read_size(height, width, 32, least * token, most)
        own = smart_resize(8, height, width, 2, 32, 8 * least * token, 8 * most)
        # Its least may take more than its most.
        assert size == own or own[0] * own[1] > most
        assert size[0] * size[1] <= most


def test_a_window_of_the_released_ones(folder: Path, tmp_path: Path) -> None:
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
        assert read_size(*small.shape[:2], 32, 0, 256 * 32 * 32) == size


@pytest.mark.parametrize(
    ("part", "values"),
    [("vision_config", {"patch_size": "wide"}),
     ("vision_config", {"spatial_merge_size": 0}),
     ("vision_config", {"temporal_patch_size": -2}),
     ("text_config", {"max_position_embeddings": None})],
)  # fmt: skip
@pytest.mark.parametrize("known", [target_spec, target_architecture])
def test_values_that_make_no_model(
    folder: Path, tmp_path: Path, part: str, values: dict[str, object], known: Callable[[Path], object]
) -> None:
    config = json.loads((folder / "config.json").read_text())
    config[part] |= values
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=rf"'{tmp_path}/config.json' is no config of Qwen3-VL .*: take"):
        known(tmp_path)


def test_a_pair_that_could_not_be_encoded_is_encoded_again(
    target: Qwen3VL, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = noise(7)
    tokens = generated(folder, frames, QUESTION, 6)
    encode, calls = target.encode, 0

    def failing(given: np.ndarray) -> list[Features]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise torch.OutOfMemoryError("no memory")
        return encode(given)

    monkeypatch.setattr(target, "encode", failing)
    engine = LocalEngine(target)
    session = engine.open(0, Trace())
    try:
        for i in range(3):
            session.append(frames[i], i).result(20)
        with pytest.raises(torch.OutOfMemoryError):
            session.append(frames[3], 3).result(20)
        session.fit(frames, range(7))
        session.ask(QUESTION, Trace())
        assert session.step(right(tokens)).result(20).tokens == tuple(tokens[:6])
    finally:
        session.close()
        engine.close()
    # The first pair is not encoded twice; the second and the third go together, the odd frame alone.
    assert calls == 4


def test_what_it_is_told_is_said_at_its_places_on_three_axes(folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(json.dumps({"target_tokens": [10, 11, 12, 13], "draft_tokens": [10, 11, 9]}) + "\n")
    short = ["--tiny", "--dtypes", "float32", "--windows", "1", "--rounds", "1", "--repeats", "1"]
    assert main(["bench", "gpu", "--trace", str(trace), *short, "--target", str(folder)]) == 0


@pytest.mark.parametrize("most", [-5, 0, 7, True, 1e6, "large", 8 * FACTOR**2 - 1])
def test_a_budget_that_is_none_is_refused(folder: Path, tmp_path: Path, most: object) -> None:
    copy = shutil.copytree(folder, tmp_path / "target")
    (copy / "video_preprocessor_config.json").write_text(json.dumps({"size": {"longest_edge": most}}))
    with pytest.raises(InputError, match=r"video_preprocessor_config.json' gives a video .* pixels"):
        target_spec(copy)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [("vision_config", "num_hidden_layers", "x"), ("vision_config", "num_hidden_layers", None),
     ("vision_config", "num_heads", -1), ("vision_config", "model_type", []),
     ("text_config", "model_type", {})],
)  # fmt: skip
def test_values_that_transformers_lets_pass(
    folder: Path, tmp_path: Path, part: str, name: str, value: object
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "target"))
    config = json.loads((copy / "config.json").read_text())
    config[part][name] = value
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=rf"'{copy}.* (is no config of|describes no) Qwen3.?VL"):
        target_architecture(copy).load(Placement())
