"""Tokenizers of both kinds give the same ids as sentencepiece and the published code."""

from __future__ import annotations

import json

import pytest
import sentencepiece
from checkpoint_layouts import TINY, copied, edit
from refusals import refused
from tokenizers import Tokenizer

from crossspec_ros.models.eventgpt import EventGPTArchitecture, draft_prompt, draft_prompt_ids
from crossspec_ros.models.text_tokenizer import load_tokenizer
from crossspec_ros.models.video_llava import VideoLlava, target_prompt

QUESTION = "What are the key elements in this scene?"
TEXTS = ["A car waits at the light.", "USER: What is it?\nASSISTANT:", "two  spaces", "naïve 赤 😀", "x"]
EVENT_TOKENS = ("<ev_patch>", "<ev_start>", "<ev_end>")


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    """Return a folder with a `tokenizer.model` like LLaMA's: BPE with fallback to bytes."""
    folder = tmp_path_factory.mktemp("llama")
    # Trained on lines, so that a line break is a byte token, as in LLaMA's.
    corpus = " ".join([*draft_prompt(QUESTION), *target_prompt(QUESTION), *TEXTS]).splitlines() * 20
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_prefix=str(folder / "tokenizer"), model_type="bpe",
        vocab_size=400, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1,
        split_digits=True, minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    return folder


@pytest.fixture
def folder(llama, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes((llama / "tokenizer.model").read_bytes())
    return tmp_path


@pytest.fixture
def pieces(llama):
    return sentencepiece.SentencePieceProcessor(model_file=str(llama / "tokenizer.model"))


def test_ids_equal_sentencepiece(folder, pieces):
    tokenizer = load_tokenizer(folder, 500, EVENT_TOKENS)
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        assert ids == [pieces.bos_id(), *pieces.encode(text)]
        assert tokenizer.decode(ids) == text
        assert tokenizer.encode(text, add_special_tokens=False).ids == ids[1:]


@pytest.mark.parametrize("legacy", [None, True, False])
def test_prompts_have_the_spaces_of_sentencepiece(folder, pieces, legacy):
    if legacy is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps({"legacy": legacy}))
    tokenizer = load_tokenizer(folder, 500, (*EVENT_TOKENS, "<video>"))
    _, start, end, video = (pieces.vocab_size() + i for i in range(4))
    before, after = draft_prompt_ids(tokenizer, QUESTION)
    text, rest = draft_prompt(QUESTION)[0].removesuffix("<ev_start>"), f"\n{QUESTION} ASSISTANT:"
    assert before == [pieces.bos_id(), *pieces.encode(text), start]
    ids = pieces.encode(rest)
    # The dummy space before a text: only newer tokenizers omit it after a special token.
    assert pieces.id_to_piece(ids[0]) == "▁"
    assert after == [end, *(ids[1:] if legacy is False else ids)]
    before, after = VideoLlava.texts(tokenizer, QUESTION)
    ids = tokenizer.encode(f"USER: <video>\n{QUESTION} ASSISTANT:").ids
    assert ids == [*before, video, *after]
    assert (tokenizer.id_to_token(after[0]) == "▁") is (legacy is not False)


def test_added_tokens_keep_their_ids(folder, pieces):
    size = pieces.vocab_size()
    recorded = {"<ev_end>": size + 2, "<pad>": size, "<ev_start>": size + 1}
    (folder / "added_tokens.json").write_text(json.dumps(recorded))
    tokenizer = load_tokenizer(folder, size + 3, EVENT_TOKENS[1:])
    assert {token: tokenizer.token_to_id(token) for token in recorded} == recorded
    assert tokenizer.encode("<ev_start><ev_end>").ids == [1, size + 1, size + 2]
    assert tokenizer.decode([size + 1, *pieces.encode("A car")]) == "A car"
    with refused("tokenizer-too-large", size=size + 3, rows=size + 2):
        load_tokenizer(folder, size + 2, EVENT_TOKENS[1:])


@pytest.mark.parametrize(
    ("flags", "added"),
    [({}, EVENT_TOKENS[:1]),
     ({"mm_use_im_start_end": True}, EVENT_TOKENS),
     ({"mm_use_im_start_end": True, "mm_use_im_patch_token": False}, EVENT_TOKENS[1:])],
)  # fmt: skip
def test_eventgpt_config_adds_tokens(tmp_path, llama, flags, added):
    draft = copied("draft", tmp_path / "draft")
    (draft / "tokenizer.json").unlink()
    (draft / "tokenizer.model").write_bytes((llama / "tokenizer.model").read_bytes())
    edit(draft / "config.json", **{"mm_use_im_start_end": None} | flags)
    tokenizer = EventGPTArchitecture.of_folder(draft).tokenizer()
    first = tokenizer.get_vocab_size() - len(added)
    assert [tokenizer.token_to_id(token) for token in EVENT_TOKENS] == [
        first + added.index(token) if token in added else None for token in EVENT_TOKENS
    ]


def test_added_tokens_without_row_are_text(tmp_path):
    """InternVL3's tokenizer has one id more than there are rows."""
    made = Tokenizer.from_file(str(TINY / "draft" / "tokenizer.json"))
    made.add_special_tokens(["<one>", "<video>"])
    made.save(str(tmp_path / "tokenizer.json"))
    added = {token: made.token_to_id(token) for token in ("<video>", "<one>")}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    rows = added["<video>"]
    assert rows is not None
    full, cut = load_tokenizer(tmp_path, rows + 1), load_tokenizer(tmp_path, rows)
    for content in ("<video>", "a <video> b", "\n<video>"):
        assert full.encode(content).ids == made.encode(content).ids
        assert max(cut.encode(content).ids) < rows
    assert cut.encode("<one>").ids == made.encode("<one>").ids
    with refused("tokenizer-added-too-large", size=rows + 1, rows=rows):
        load_tokenizer(tmp_path, rows, ["<video>"])


@pytest.mark.parametrize(
    ("file", "content", "code"),
    [("tokenizer.json", b'{"model"', "tokenizer-no-json"),
     ("tokenizer.model", b"no model", "tokenizer-no-model"),
     ("tokenizer_config.json", b"{", "tokenizer-config-no-json")],
)  # fmt: skip
def test_damaged_tokenizer_is_refused(folder, file, content, code):
    (folder / file).write_bytes(content)
    with refused(code, library_text=True):
        load_tokenizer(folder, 500)
