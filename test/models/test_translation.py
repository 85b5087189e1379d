"""Translation of drafts into another vocabulary: tokens and probabilities."""

from __future__ import annotations

import json
import math
from functools import cache

import pytest
from crossspec_lab.world.phrases import caption
from crossspec_lab.world.scene import drive
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from crossspec_ros.models.translation import Translation
from crossspec_ros.paths import share_dir

SENTENCES = [caption(scene) for seed in range(30) for scene in drive(seed, 2)]
PROMPTS = {"pieces": "ASSISTANT:", "tiny": "ASSISTANT:", "chatml": "assistant\n"}
EOS = {"pieces": 2, "tiny": 2, "chatml": 576}
PAIRS = [("pieces", "tiny"), ("tiny", "pieces"), ("pieces", "chatml"), ("tiny", "chatml")]


@cache
def tokenizer(name):
    """Return a tokenizer like LLaMA's ("pieces"), the shipped one ("tiny"), or one for ChatML prompts."""
    if name != "pieces":
        folder = {"tiny": "tiny/target", "chatml": "tiny_qwen3_vl"}[name]
        return Tokenizer.from_file(str(share_dir() / "models" / folder / "tokenizer.json"))
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    made.train_from_iterator([*SENTENCES, *["ASSISTANT: é"] * 20], trainer)
    layout = json.loads(made.to_str())
    prepend, replace = {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}}
    space = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    decoders = [space, {"type": "ByteFallback"}, {"type": "Fuse"}, strip]
    layout |= {
        "added_tokens": layout["added_tokens"][:3],
        "pre_tokenizer": None,
        "normalizer": {"type": "Sequence", "normalizers": [prepend, {**replace, "content": "▁"}]},
        "decoder": {"type": "Sequence", "decoders": decoders},
    }
    return Tokenizer.from_str(json.dumps(layout))


def make(draft, target):
    prompt = tokenizer(target).encode(PROMPTS[target]).ids
    return Translation(tokenizer(draft), tokenizer(target), EOS[draft], EOS[target], prompt)


used = cache(make)


def response(name, text):
    """Return the tokens of a response, encoded together with the model's prompt."""
    before = tokenizer(name).encode(PROMPTS[name]).ids
    text = text.removeprefix(" ") if name == "chatml" else text
    return [*tokenizer(name).encode(PROMPTS[name] + text).ids[len(before) :], EOS[name]]


def probs(tokens):
    return [0.5 + 0.5 / (2 + (7 * i + token) % 11) for i, token in enumerate(tokens)]


@pytest.mark.parametrize(("draft", "target"), PAIRS)
def test_caption_becomes_target_tokens(draft, target):
    """A part of it becomes complete words, with the probabilities that they have in the draft."""
    for sentence in SENTENCES[:20]:
        tokens, own = response(draft, f" {sentence}"), response(target, f" {sentence}")
        products = [math.prod(probs(tokens)[:i]) for i in range(len(tokens) + 1)]
        for end in range(len(tokens)):
            translated, likely = used(draft, target)(tokens[:end], probs(tokens))
            assert list(translated) == own[: len(translated)] and len(likely) == len(translated)
            assert any(math.prod(likely) == pytest.approx(product) for product in products[: end + 1])
        translated, likely = used(draft, target)(tokens, probs(tokens))
        assert list(translated) == own and math.prod(likely) == pytest.approx(products[-1])


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(PAIRS), st.lists(st.integers(0, 600), max_size=24))
def test_translation_has_only_target_words(pair, tokens):
    draft, target = pair
    translated, likely = used(draft, target)(tokens, probs(tokens))
    assert len(translated) == len(likely) and all(0 < p <= 1 for p in likely)
    words = set(tokenizer(target).get_vocab(with_added_tokens=False).values()) - {0, 1, 2}
    assert words.issuperset(translated[:-1]) and words | {EOS[target]} >= set(translated[-1:])
    # Cached words make no difference.
    assert make(draft, target)(tokens, probs(tokens)) == (translated, likely)
    grown, _ = used(draft, target)([*tokens, *tokens], probs(tokens * 2))
    assert grown[: len(translated)] == translated


def test_translation_ends_at_broken_letter():
    *tokens, end = response("tiny", " a é b")
    half = tokens.index(response("tiny", " é")[-2])
    broken = [*tokens[:half], *tokens[half + 1 :], end]
    assert list(used("tiny", "pieces")(broken, [1.0] * 9)[0]) == response("pieces", " a")[:-1]


def test_translation_ends_at_changed_text():
    """The target's tokenizer would change the text to lower case."""
    layout = json.loads(tokenizer("tiny").to_str()) | {"normalizer": {"type": "Lowercase"}}
    lower = Tokenizer.from_str(json.dumps(layout))
    translation = Translation(tokenizer("pieces"), lower, 2, 2, lower.encode("ASSISTANT:").ids)
    translated, _ = translation(response("pieces", " a car. The car"), [1.0] * 99)
    assert list(translated) == response("tiny", " a car.")[:-1]


def test_shared_ids_pass_unchanged():
    translation = make("tiny", "tiny")
    assert translation.unchanged
    for sentence in SENTENCES[:5]:
        tokens = response("tiny", f" {sentence}")
        assert translation(tokens, probs(tokens)) == (tuple(tokens), tuple(probs(tokens)))
        for special in (0, 1, 575, 577, 9999):
            mixed = [*tokens[:5], special, *tokens[5:]]
            assert translation(mixed, [0.5] * 99) == (tuple(tokens[:5]), (0.5,) * 5)


def test_different_vocabulary_is_translated():
    layout = json.loads(tokenizer("tiny").to_str())
    vocabulary = layout["model"]["vocab"]
    vocabulary["a"], vocabulary["e"] = vocabulary["e"], vocabulary["a"]
    swapped = Tokenizer.from_str(json.dumps(layout))
    prompt = tokenizer("tiny").encode(PROMPTS["tiny"]).ids
    translation = Translation(swapped, tokenizer("tiny"), 2, 2, prompt)
    assert not translation.unchanged and not used("tiny", "chatml").unchanged
    translated, _ = translation([vocabulary["a"], 2], [1.0] * 2)
    assert tokenizer("tiny").decode(list(translated)) == "a"
