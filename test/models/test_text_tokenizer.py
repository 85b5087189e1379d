"""Tokenizers of both kinds give the ids that sentencepiece and the published code give."""

from __future__ import annotations

import base64
import json
import os
import struct
from pathlib import Path

import pytest
import sentencepiece
from checkpoint_layouts import TINY, copied, edit
from tokenizers import Tokenizer

from crossspec_ros.errors import InputError
from crossspec_ros.models import text_tokenizer
from crossspec_ros.models.eventgpt import architecture, draft_prompt, draft_prompt_ids
from crossspec_ros.models.text_tokenizer import load_tokenizer
from crossspec_ros.models.video_llava import target_prompt, target_prompt_ids

QUESTION = "What are the key elements in this scene?"
TEXTS = ["A car waits at the light.", "USER: What is it?\nASSISTANT:", "two  spaces", "naïve 赤 😀", "x"]
HUGE = 1500 << 20
"""Size of a file with nothing in it."""
EVENT_TOKENS = ("<ev_patch>", "<ev_start>", "<ev_end>")


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `tokenizer.model` of LLaMA's kind: BPE with bytes for what it does not know."""
    folder = tmp_path_factory.mktemp("llama")
    # Lines, so that the end of a line is a byte to it, as to LLaMA's.
    corpus = " ".join([*draft_prompt(QUESTION), *target_prompt(QUESTION), *TEXTS]).splitlines() * 20
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_prefix=str(folder / "tokenizer"), model_type="bpe",
        vocab_size=400, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1,
        split_digits=True, minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    return folder


@pytest.fixture
def folder(llama: Path, tmp_path: Path) -> Path:
    (tmp_path / "tokenizer.model").write_bytes((llama / "tokenizer.model").read_bytes())
    return tmp_path


@pytest.fixture
def pieces(llama: Path) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(llama / "tokenizer.model"))


@pytest.mark.parametrize("text", TEXTS)
def test_the_ids_are_those_of_sentencepiece(
    folder: Path, pieces: sentencepiece.SentencePieceProcessor, text: str
) -> None:
    tokenizer = load_tokenizer(folder, 500, EVENT_TOKENS)
    ids = tokenizer.encode(text).ids
    assert ids == [pieces.bos_id(), *pieces.encode(text)]
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode(text, add_special_tokens=False).ids == ids[1:]


@pytest.mark.parametrize("legacy", [None, True, False])
def test_the_prompt_of_eventgpt(
    folder: Path, pieces: sentencepiece.SentencePieceProcessor, legacy: bool | None
) -> None:
    if legacy is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"legacy": legacy}))
    tokenizer = load_tokenizer(folder, 500, EVENT_TOKENS)
    _, start, end = (pieces.vocab_size() + i for i in range(3))
    before, after = draft_prompt_ids(tokenizer, QUESTION)
    text, rest = draft_prompt(QUESTION)[0].removesuffix("<ev_start>"), f"\n{QUESTION} ASSISTANT:"
    assert before == [pieces.bos_id(), *pieces.encode(text), start]
    said = pieces.encode(rest)
    # The dummy space before a text: only newer tokenizers leave it out behind a special token.
    assert pieces.id_to_piece(said[0]) == "▁"
    assert after == [end, *(said[1:] if legacy is False else said)]


@pytest.mark.parametrize("legacy", [True, False])
def test_the_prompt_of_video_llava_is_that_of_the_whole_text(folder: Path, legacy: bool) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"legacy": legacy}))
    tokenizer = load_tokenizer(folder, 500, ["<image>", "<video>"])
    before, after = target_prompt_ids(tokenizer, QUESTION)
    whole = tokenizer.encode(f"USER: <video>\n{QUESTION} ASSISTANT:").ids
    assert whole == [*before, tokenizer.token_to_id("<video>"), *after]
    assert (tokenizer.id_to_token(after[0]) == "▁") is legacy


def test_the_shipped_prompts_are_as_they_were_trained() -> None:
    target, draft = (Tokenizer.from_file(str(TINY / n / "tokenizer.json")) for n in ("target", "draft"))
    for ids, prompt, tokenizer in (
        (target_prompt_ids(target, QUESTION), target_prompt(QUESTION), target),
        (draft_prompt_ids(draft, QUESTION), draft_prompt(QUESTION), draft),
    ):
        before, after = prompt
        assert ids == (tokenizer.encode(before).ids, tokenizer.encode(after, add_special_tokens=False).ids)


def test_added_tokens_keep_their_ids(folder: Path, pieces: sentencepiece.SentencePieceProcessor) -> None:
    size = pieces.vocab_size()
    recorded = {"<ev_end>": size + 2, "<pad>": size, "<ev_start>": size + 1}
    (folder / "added_tokens.json").write_text(json.dumps(recorded))
    (folder / "special_tokens_map.json").write_text('{"pad_token": "<pad>", "bos_token": "<s>"}')
    tokenizer = load_tokenizer(folder, size + 3, EVENT_TOKENS[1:])
    assert {token: tokenizer.token_to_id(token) for token in recorded} == recorded
    assert tokenizer.encode("<ev_start><ev_end>").ids == [1, size + 1, size + 2]
    assert tokenizer.decode([size + 1, *pieces.encode("A car")]) == "A car"


@pytest.mark.parametrize(
    ("flags", "added"),
    [({}, EVENT_TOKENS[:1]), ({"mm_use_im_patch_token": False}, ()),
     ({"mm_use_im_start_end": True}, EVENT_TOKENS),
     ({"mm_use_im_start_end": True, "mm_use_im_patch_token": False}, EVENT_TOKENS[1:])],
)  # fmt: skip
def test_eventgpt_adds_the_tokens_its_config_asks_for(
    folder: Path,
    llama: Path,
    pieces: sentencepiece.SentencePieceProcessor,
    flags: dict[str, bool],
    added: tuple[str, ...],
) -> None:
    draft = copied("draft", folder / "draft")
    (draft / "tokenizer.json").unlink()
    (draft / "tokenizer.model").write_bytes((llama / "tokenizer.model").read_bytes())
    edit(draft / "config.json", **{"mm_use_im_start_end": None} | flags)
    tokenizer, size = architecture(draft).tokenizer(), pieces.vocab_size()
    assert [tokenizer.token_to_id(token) for token in EVENT_TOKENS] == [
        size + added.index(token) if token in added else None for token in EVENT_TOKENS
    ]
    assert tokenizer.get_vocab_size() == size + len(added)


def test_a_tokenizer_that_has_its_tokens_gains_none() -> None:
    known = Tokenizer.from_file(str(TINY / "draft" / "tokenizer.json"))
    assert architecture(TINY / "draft").tokenizer().get_vocab() == known.get_vocab()


def test_more_ids_than_embeddings(folder: Path, pieces: sentencepiece.SentencePieceProcessor) -> None:
    size = pieces.vocab_size()
    assert load_tokenizer(folder, size + 3, EVENT_TOKENS).get_vocab_size() == size + 3
    with pytest.raises(
        InputError, match=rf"tokenizer.model' has {size + 3} ids .* embeddings for {size + 2}"
    ):
        load_tokenizer(folder, size + 2, EVENT_TOKENS)


@pytest.mark.parametrize("content", ["<video>", "a <video> b", "\n<video>"])
def test_what_was_added_behind_the_last_row_is_ordinary_text(tmp_path: Path, content: str) -> None:
    """InternVL3's has one id more than rows."""
    made = Tokenizer.from_file(str(TINY / "draft" / "tokenizer.json"))
    made.add_special_tokens(["<one>", "<video>"])
    made.save(str(tmp_path / "tokenizer.json"))
    added = {token: made.token_to_id(token) for token in ("<one>", "<video>")}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    rows = added["<video>"]
    whole, cut = load_tokenizer(tmp_path, rows + 1), load_tokenizer(tmp_path, rows)
    assert whole.encode(content).ids == made.encode(content).ids
    assert cut.token_to_id("<video>") is None and max(cut.encode(content).ids) < rows
    assert cut.encode("<one>").ids == made.encode("<one>").ids
    with pytest.raises(InputError, match=r"tokenizer.json' has \d+ ids with those added"):
        load_tokenizer(tmp_path, rows, ["<video>"])


def test_ids_without_rows_that_every_text_gets(tmp_path: Path) -> None:
    document = json.loads((TINY / "target" / "tokenizer.json").read_text())
    document["post_processor"]["special_tokens"]["<s>"]["ids"] = [9999]
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"tokenizer.json' has 10000 ids .* embeddings for 600"):
        load_tokenizer(tmp_path, 600)


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [("tokenizer.json", b'{"model"', "tokenizer.json' is no tokenizer"),
     ("tokenizer.model", b"no model", "tokenizer.model' is no tokenizer"),
     ("tokenizer_config.json", b"{", "tokenizer_config.json' is no readable JSON"),
     ("added_tokens.json", b'{"<pad>": 7}', "added_tokens.json' gives '<pad>' the id 7, but"),
     ("added_tokens.json", b'{"<pad>": "x"}', "added_tokens.json' does not give each token its id"),
     ("tokenizer.json", HUGE, r"tokenizer.json' is no tokenizer \(NoSmallFileError: it has more than"),
     ("tokenizer.model", HUGE, r"tokenizer.model' is no tokenizer \(NoSmallFileError: it has more than"),
     ("added_tokens.json", HUGE, r"added_tokens.json' is no readable JSON \(it has more than"),
     ("special_tokens_map.json", HUGE, r"special_tokens_map.json' is no readable JSON \(it has more than"),
     ("tokenizer_config.json", HUGE, r"tokenizer_config.json' is no readable JSON \(it has more than")],
)  # fmt: skip
def test_a_damaged_tokenizer(folder: Path, file: str, content: bytes | int, sentence: str) -> None:
    if isinstance(content, int):
        (folder / file).touch()
        os.truncate(folder / file, content)
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        load_tokenizer(folder, 500)


def replacing(content: str) -> dict[str, object]:
    return {"type": "Replace", "pattern": {"Regex": "."}, "content": content}


def mapping(length: int) -> dict[str, object]:
    """A normalizer that makes a text of this length of each z."""
    nodes = [0] * 512
    nodes[0], nodes[0x17A], nodes[0x17B] = 256 << 10, 0x7A | 1 << 8 | 1 << 10, 1 << 31
    trie = struct.pack("<512I", *nodes)
    charsmap = struct.pack("<I", len(trie)) + trie + b"a" * length + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}


def test_a_character_may_become_a_few(tmp_path: Path) -> None:
    document = json.loads((TINY / "target" / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(document | {"normalizer": mapping(18)}))
    tokenizer = load_tokenizer(tmp_path, 100_000)
    assert tokenizer.normalizer.normalize_str("z") == 18 * "a"


START = [{"SpecialToken": {"id": "<s>", "type_id": 0}}]


@pytest.mark.parametrize(
    ("part", "value", "sentence"),
    [("normalizer", {"type": "Sequence", "normalizers": [replacing("a" * 10)] * 5}, "longer texts"),
     ("normalizer", {"type": "Prepend", "prepend": "▁▁"}, "longer texts"),
     ("normalizer", {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 30}, "many steps"),
     ("normalizer", {"type": "Sequence", "normalizers": [replacing("a")] * 4}, "much longer texts"),
     ("normalizer", mapping(1000), "much longer texts"),
     ("decoder", {"type": "Sequence", "decoders": [replacing("a" * 10)] * 5}, "longer texts"),
     ("post_processor", {"single": START * 1000}, "it makes 10.. ids of 40 characters"),
     ("model", {"continuing_subword_prefix": "x" * 30}, "PanicException"),
     ("model", {"end_of_word_suffix": "x" * 1001}, "a token of 1001 characters"),
     ("model", {"max_input_chars_per_word": 1001}, "takes words of more than 1000 characters")],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_a_crafted_tokenizer(tmp_path: Path, part: str, value: dict[str, object], sentence: str) -> None:
    document = json.loads((TINY / "target" / "tokenizer.json").read_text())
    document[part] = value if part in ("normalizer", "decoder") else document[part] | value
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=rf"tokenizer.json' is no tokenizer .*{sentence}.*: copy it again"):
        load_tokenizer(tmp_path, 100_000)


def words(count: int, length: int) -> list[str]:
    """Texts that begin differently."""
    return [f"{i:x}"[::-1].ljust(length, "x") for i in range(count)]


@pytest.mark.parametrize(
    ("content", "problem"),
    [({"model": {"vocab": {"x" * 1001: 0}}}, "it has a token of 1001 characters"),
     ({"model": {"vocab": [["x" * 1001, 0.0]]}}, "it has a token of 1001 characters"),
     ({"model": {"vocab": [[word, 0] for word in words(2000, 900)]}}, "too little in common"),
     ({"model": {"vocab": {}}, "added_tokens": [{"content": word} for word in words(2000, 900)]},
      "too little in common"),
     ({"model": {"vocab": dict.fromkeys(words(500_001, 1))}}, "it has too many tokens"),
     ('{"model": {"vocab": []}, "model": {"vocab": {}}}', "it says a value twice"),
     ('{"model": {"vocab": [' + "[]," * 2_000_001 + "0]}}", "it has too many parts")],
    ids=["token", "unigram's token", "trie", "added", "tokens", "twice", "parts"],
)  # fmt: skip
def test_what_would_take_much_memory_is_not_given_to_tokenizers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | dict[str, object], problem: str
) -> None:
    monkeypatch.delattr(text_tokenizer, "Tokenizer")
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(InputError, match=rf"'{tmp_path}/tokenizer.json' is no tokenizer .*{problem}"):
        load_tokenizer(tmp_path, 100_000)


def test_a_sentencepiece_model_of_very_many_tokens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_tokenizer, "_MOST_TOKENS", 300)
    with pytest.raises(InputError, match=r"tokenizer\.model' is no tokenizer .*it has too many tokens"):
        load_tokenizer(folder, 32_000)


def test_a_unigram_of_many_tokens_is_read(tmp_path: Path) -> None:
    document = json.loads((TINY / "target" / "tokenizer.json").read_text())
    vocabulary = [
        ["<unk>", 0.0],
        *([chr(i), -5.0] for i in range(32, 127)),
        *([f"▁{i}", -9.0] for i in range(250_000)),
    ]
    document |= {"model": {"type": "Unigram", "unk_id": 0, "vocab": vocabulary}, "pre_tokenizer": None}
    document |= {"added_tokens": [], "post_processor": None, "decoder": None, "normalizer": None}
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    assert load_tokenizer(tmp_path, 300_000).encode("key").tokens == ["k", "e", "y"]


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"'{tmp_path}' lacks 'tokenizer.json' and 'tokenizer.model'"):
        load_tokenizer(tmp_path, 500)
