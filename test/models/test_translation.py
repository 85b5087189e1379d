"""Drafts of another vocabulary: what of their text is proposed to the target, and how probable."""

from __future__ import annotations

import json
import math
from functools import cache

import pytest
from crossspec_lab.world.phrases import QUESTION, caption
from crossspec_lab.world.scene import drive
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from crossspec_ros.models.eventgpt import draft_prompt
from crossspec_ros.models.translation import Translation
from crossspec_ros.models.video_llava import target_prompt
from crossspec_ros.paths import tiny_models

CHATML = "<|im_start|>assistant\n"
SENTENCES = [caption(scene) for seed in range(60) for scene in drive(seed, 2)]
EOS = {"bytes": "<|end|>", "pieces": "</s>", "tiny": "</s>", "chatml": "<|im_end|>"}
SPECIAL = {"bytes": {0}, "pieces": {0, 1, 2}, "tiny": {0, 1, 2, 575, 576}, "chatml": {370, 371}}
PAIRS = [
    ("pieces", "chatml"),
    ("bytes", "chatml"),
    ("bytes", "pieces"),
    ("pieces", "bytes"),
    ("pieces", "tiny"),
]

WORDS = st.text("aeThx1.,'-<>é日ß😀\u00a0\n\t", max_size=7) | st.sampled_from(
    ["car", "</s>", "<video>", "The"]
)
TEXTS = st.lists(WORDS, max_size=8).map(lambda words: " " + " ".join(words))


@cache
def tokenizer(name: str) -> Tokenizer:
    if name == "tiny":
        return Tokenizer.from_file(str(tiny_models() / "target" / "tokenizer.json"))
    prompts = ["".join(prompt(QUESTION)) for prompt in (target_prompt, draft_prompt)]
    kinds = {"bytes": _bytes, "pieces": _pieces, "chatml": _chatml}
    return kinds[name]([*SENTENCES, *prompts * 20])


def _bytes(texts: list[str]) -> Tokenizer:
    """GPT-2's kind; it has tokens of several spaces, and of a colon and what follows it."""
    texts = [*texts, *["x   x\n   x\u00a0   x", "x:-)"] * 300]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=370, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(texts, trainer)
    return made


def _pieces(texts: list[str]) -> Tokenizer:
    """LLaMA's kind, as its published tokenizer.json is laid out."""
    single = [f"<0x{byte:02X}>" for byte in range(256)]
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>", *single]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    made.train_from_iterator(texts, trainer)
    layout = json.loads(made.to_str())
    prepend, replace = {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}}
    space = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    layout |= {
        "added_tokens": layout["added_tokens"][:3],
        "pre_tokenizer": None,
        "normalizer": {"type": "Sequence", "normalizers": [prepend, {**replace, "content": "▁"}]},
        "decoder": {
            "type": "Sequence",
            "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"}, strip],
        },
    }
    return Tokenizer.from_str(json.dumps(layout))


def _chatml(texts: list[str]) -> Tokenizer:
    """Qwen2's kind: its own split, and special tokens behind the vocabulary."""
    layout = json.loads(_bytes(texts).to_str())
    split = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    steps = [
        {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
    ]
    layout |= {
        "added_tokens": [],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
    }
    made = Tokenizer.from_str(json.dumps(layout))
    made.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return made


def eos(name: str) -> int:
    found = tokenizer(name).token_to_id(EOS[name])
    assert found is not None
    return found


def context(name: str) -> str:
    """How its prompt ends."""
    return CHATML if name == "chatml" else "ASSISTANT:"


def prompt_ids(name: str) -> list[int]:
    return tokenizer(name).encode(f"<|im_end|>{context(name)}").ids


def response(name: str, text: str) -> str:
    """What begins with a space behind a colon, as it stands behind the model's own prompt."""
    return text.removeprefix(" ") if name == "chatml" else text


def make(draft: str, target: str) -> Translation:
    return Translation(tokenizer(draft), tokenizer(target), eos(draft), eos(target), prompt_ids(target))


used = cache(make)


def written(name: str, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """The tokens of a response, and where in it they begin and end, from one encoding of everything."""
    plain = Tokenizer.from_str(tokenizer(name).to_str())
    plain.encode_special_tokens = True
    said, prompt = response(name, text), context(name)
    before, whole = plain.encode(prompt), plain.encode(prompt + said)
    size, moved = len(before.ids), len(text) - len(said) - len(prompt)
    # A line break of the text may become one token with the prompt's own: no response has that token.
    assume(whole.ids[:size] == before.ids)
    return whole.ids[size:], [(b + moved, e + moved) for b, e in whole.offsets[size:]]


def read(name: str, tokens: list[int] | tuple[int, ...]) -> str:
    before = tokenizer(name).encode(context(name)).ids
    text = tokenizer(name).decode([*before, *tokens], skip_special_tokens=False)
    return text[len(tokenizer(name).decode(before, skip_special_tokens=False)) :]


def probs(tokens: list[int]) -> list[float]:
    return [0.5 + 0.5 / (2 + (7 * i + token) % 11) for i, token in enumerate(tokens)]


@pytest.mark.parametrize(("draft", "target"), PAIRS)
def test_a_caption_becomes_the_targets_own_tokens(draft: str, target: str) -> None:
    translation = used(draft, target)
    for sentence in SENTENCES[:40]:
        tokens = [*written(draft, " " + sentence)[0], eos(draft)]
        said, _ = translation(tokens, probs(tokens))
        assert list(said) == [*written(target, " " + sentence)[0], eos(target)]


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(PAIRS), TEXTS, st.data())
def test_any_text(pair: tuple[str, str], text: str, data: st.DataObject) -> None:
    draft, target = pair
    tokens = [*written(draft, text)[0], eos(draft)]
    assume(eos(draft) not in tokens[:-1])
    own, _ = written(target, text)
    end = data.draw(st.integers(0, len(tokens)))
    said, likely = used(draft, target)(tokens[:end], probs(tokens))
    ended = end == len(tokens) and said[-1:] == (eos(target),)
    assert list(said) == ([*own, eos(target)] if ended else own[: len(said)])
    assert response(target, text).startswith(read(target, said[:-1] if ended else said))
    assert not SPECIAL[target] & set(said[: len(own)])
    # The path probability is the draft's up to the end of the last word.
    products = [math.prod(probs(tokens)[:i]) for i in range(end + 1)]
    assert any(math.prod(likely) == pytest.approx(product) for product in products)
    if ended:
        assert math.prod(likely) == pytest.approx(math.prod(probs(tokens)))
    if pair in (("bytes", "pieces"), ("pieces", "bytes")) and end == len(tokens):
        assert ended, "both write any text"


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(PAIRS), st.lists(st.integers(0, 600), max_size=24))
def test_any_tokens_give_words_of_the_target_only(pair: tuple[str, str], tokens: list[int]) -> None:
    draft, target = pair
    said, likely = used(draft, target)(tokens, probs(tokens))
    assert len(said) == len(likely) and all(0 < p <= 1 for p in likely)
    words = set(tokenizer(target).get_vocab(with_added_tokens=False).values()) - SPECIAL[target]
    assert words.issuperset(said[:-1]) and words | {eos(target)} >= set(said[-1:])
    # What it remembers makes no difference.
    assert make(draft, target)(tokens, probs(tokens)) == (said, likely)
    grown, _ = used(draft, target)([*tokens, *tokens], probs(tokens * 2))
    assert grown[: len(said)] == said


def test_half_a_letter_is_held_back_and_a_broken_one_ends_it() -> None:
    translation = used("bytes", "pieces")
    tokens = written("bytes", " a é b c")[0]
    half = tokens.index(written("bytes", " é")[0][-1])
    assert read("pieces", translation(tokens[:half], [1.0] * 9)[0]) == " a"
    assert read("pieces", translation(tokens[: half + 1], [1.0] * 9)[0]) == " a"
    assert read("pieces", translation(tokens, [1.0] * 9)[0]) == " a é b"
    broken = [*tokens[:half], *tokens[half + 1 :]]
    assert read("pieces", translation([*broken, eos("bytes")], [1.0] * 9)[0]) == " a"


def test_text_that_the_target_would_change_ends_it() -> None:
    layout = json.loads(tokenizer("bytes").to_str()) | {"normalizer": {"type": "Lowercase"}}
    translation = Translation(
        tokenizer("pieces"), Tokenizer.from_str(json.dumps(layout)), 2, 0, prompt_ids("bytes")
    )
    said, _ = translation([*written("pieces", " a car. The car")[0], 2], [1.0] * 99)
    assert read("bytes", said) == " a car."


def test_a_beginning_that_fuses_with_the_prompt_is_not_proposed() -> None:
    tokens = [*written("pieces", "-) a")[0], eos("pieces")]
    assert used("pieces", "bytes")(tokens, [1.0] * 9) == ((), ())


def test_shared_ids_pass_as_they_are() -> None:
    folder = tiny_models()
    draft, target = (Tokenizer.from_file(str(folder / n / "tokenizer.json")) for n in ("draft", "target"))
    translation = Translation(draft, target, 2, 2, prompt_ids("tiny"))
    assert translation.unchanged
    for sentence in SENTENCES[:5]:
        tokens = [*draft.encode(" " + sentence, add_special_tokens=False).ids, 2]
        assert translation(tokens, probs(tokens)) == (tuple(tokens), tuple(probs(tokens)))
        for special in (0, 1, 575, 577, 9999):
            assert translation([*tokens[:5], special, *tokens[5:]], [0.5] * 99) == (
                tuple(tokens[:5]),
                (0.5,) * 5,
            )


def test_one_vocabulary_behind_another_prompt_is_translated() -> None:
    tiny = tokenizer("tiny")
    translation = Translation(tiny, tiny, 2, 2, tiny.encode("assistant\n").ids)
    assert not translation.unchanged
    for sentence in SENTENCES[:5]:
        tokens = [*tiny.encode(" " + sentence, add_special_tokens=False).ids, 2]
        said, likely = translation(tokens, probs(tokens))
        assert list(said) == [*tiny.encode(sentence, add_special_tokens=False).ids, 2]
        assert math.prod(likely) == pytest.approx(math.prod(probs(tokens)))


@pytest.mark.parametrize(("prompt", "begins"), [("Assistant:", " The"), ("assistant\n", "The"), ("", "The")])
def test_a_response_begins_as_the_targets_prompt_ends(prompt: str, begins: str) -> None:
    target = tokenizer("chatml")
    prompt_end = target.encode(f"<|im_end|>{prompt}").ids
    translation = Translation(tokenizer("pieces"), target, 2, eos("chatml"), prompt_end)
    tokens = written("pieces", " The car")[0]
    assert target.decode(translation(tokens, [1.0] * 9)[0]) == begins


def test_one_vocabulary_in_two_layouts_passes_as_it_is() -> None:
    spaces = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    layout = json.loads(tokenizer("pieces").to_str()) | {"normalizer": None, "pre_tokenizer": spaces}
    other = Tokenizer.from_str(json.dumps(layout))
    other.add_special_tokens(["<image>"])
    assert Translation(other, tokenizer("pieces"), 2, 2, prompt_ids("pieces")).unchanged


def test_one_token_that_differs_is_never_passed_by_its_id() -> None:
    layout = json.loads(tokenizer("pieces").to_str())
    vocabulary = layout["model"]["vocab"]
    vocabulary["a"], vocabulary["e"] = vocabulary["e"], vocabulary["a"]
    translation = Translation(
        Tokenizer.from_str(json.dumps(layout)), tokenizer("pieces"), 2, 2, prompt_ids("pieces")
    )
    assert not translation.unchanged
    said, _ = translation([vocabulary["▁"], vocabulary["a"], 2], [1.0] * 3)
    assert read("pieces", said[:-1]) == " a"
