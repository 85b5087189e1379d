"""A checkpoint's tokenizer, from `tokenizer.json` or from sentencepiece's `tokenizer.model`."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from os.path import commonprefix
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import AddedToken, Tokenizer

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.files import read_small
from crossspec_ros.models.config_files import read_json

_SLOW, _ADDED, _CONFIG = "tokenizer.model", "added_tokens.json", "tokenizer_config.json"
_MOST_BYTES = 48 << 20
"""The largest published have 33 MB."""
_MOST_COMMAS = 1_600_000
"""The largest published have 1.3 million; what a comma parts takes hundreds of bytes more."""
_MOST_SLOW_BYTES = 16 << 20
"""Size of a tokenizer.model, whose reader makes a trie of it; published ones have up to 5 MB."""
_MOST_TOKENS = 500_000
"""The largest published have 262,144."""
_MOST_NODES = 1_400_000
"""Nodes of the trie of a Unigram's tokens, with those of added ones: a node takes up to 340 bytes. The
largest published have 250,000 tokens, which share most of their beginnings."""
_MOST_STEPS = 10
"""Steps of a normalizer and the like: each can make a text twice as long; published ones have up to seven."""
_MOST_INSERTING = 3
"""Replacements by a pattern, which may match between all characters."""
_MOST_MAPPED = 100
"""Bytes in place of a character, of which Unicode's own have 33."""
_PROBE = "What are the key elements in this scene?"
_MOST_IDS = 10 * len(_PROBE)
_MOST_WORD = 1000
"""Characters of a word for WordPiece, which takes time as their cube; usual are 100."""
_AFFIXES = "continuing_subword_prefix", "end_of_word_suffix"
_MOST_TOKEN = 1000
"""Characters; those of published ones have some hundred."""


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """Digest that tells a tokenizer from others."""
    return hashlib.blake2b(tokenizer.to_str().encode()).hexdigest()


def load_tokenizer(folder: Path, rows: int, special: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer of the checkpoint in `folder`, which has embeddings for `rows` ids.

    Tokens that were added behind the last row, as InternVL3's `<video>`, are left out: what reads like one of
    them in a question is ordinary text.

    Args:
        special: tokens that it must have, added behind the others where it lacks them.

    Raises:
        InputError: there is none, its files are damaged or contradict each other, or a text could become ids
            for which the checkpoint has no embeddings.
    """
    fast, slow = folder / "tokenizer.json", folder / _SLOW
    file = fast if fast.is_file() else slow
    if not file.is_file():
        raise InputError(
            f"the checkpoint '{folder}' lacks '{fast.name}' and '{slow.name}': copy the one that came with "
            f"the weights there"
        )
    try:
        content = read_small(file, _MOST_BYTES if file == fast else _MOST_SLOW_BYTES)
        tokenizer = read_tokenizer(content) if file == fast else _from_sentencepiece(content, folder)
    except (InputError, KeyboardInterrupt, SystemExit):
        raise
    # tokenizers knows only the bare Exception, and its panics are not even that.
    except BaseException as error:
        raise InputError(
            f"'{file}' is no tokenizer ({type(error).__name__}: {one_line(error)[:160]}): copy it again"
        ) from error
    _add_recorded(tokenizer, folder / _ADDED)
    if any(index >= rows for index in tokenizer.get_added_tokens_decoder()):
        tokenizer = _without_added_from(rows, tokenizer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    # A post-processor may add ids that are no token's.
    ids = max([*tokenizer.get_vocab().values(), *tokenizer.encode(_PROBE).ids], default=-1) + 1
    if ids > rows:
        raise InputError(
            f"'{file}' has {ids} ids with those added to it, but the checkpoint only has embeddings for "
            f"{rows}: take the tokenizer that came with the weights"
        )
    return tokenizer


def read_tokenizer(content: bytes) -> Tokenizer:
    """The tokenizer of a tokenizer.json, as `_bound` leaves it.

    Raises what that raises, and for what is none or would take very much memory ValueError and what else its
    values lead to.
    """
    _check_parts(content)
    tokenizer = Tokenizer.from_buffer(content)
    _bound(tokenizer)
    return tokenizer


def _bound(tokenizer: Tokenizer) -> None:
    """Let it neither cut nor pad a text. Raises ValueError for one that makes very much of a short text or of
    few ids, and what tokenizers raises at a text, its panics too, which are no Exception."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    _check_lengths(tokenizer.get_vocab())
    for part in (tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder):
        steps = [] if part is None else list(_steps(json.loads(part.__getstate__())))
        if len(steps) > _MOST_STEPS or any(
            len(step.get(name, "")) > 1 for step in steps for name in ("content", "prepend")
        ):
            raise ValueError("it has many steps, or puts longer texts in the place of others")
        if sum(map(_inserts, steps)) > _MOST_INSERTING or any(map(_maps_to_long_texts, steps)):
            raise ValueError("it puts much longer texts in the place of others")
    ids = tokenizer.encode(_PROBE).ids
    if len(ids) > _MOST_IDS:
        raise ValueError(f"it makes {len(ids)} ids of {len(_PROBE)} characters")
    tokenizer.decode(ids)


def _inserts(step: dict[str, Any]) -> bool:
    """Whether it may put its content between all characters."""
    pattern = step.get("pattern")
    return bool(step.get("content")) and isinstance(pattern, dict) and not pattern.get("String")


def _maps_to_long_texts(step: dict[str, Any]) -> bool:
    """Whether a character becomes a long text: behind a trie, whose size comes first, each ends with NUL."""
    charsmap = base64.b64decode(step.get("precompiled_charsmap") or "")
    texts = charsmap[4 + int.from_bytes(charsmap[:4], "little") :].split(b"\0")
    return max(map(len, texts)) > _MOST_MAPPED


def _check_parts(content: bytes) -> None:
    if content.count(b",") > _MOST_COMMAS:
        raise ValueError("it has too many parts")
    values = json.loads(content, object_pairs_hook=_said_once)
    vocabulary = values["model"]["vocab"]
    _check_lengths(values["model"].get(name) or "" for name in _AFFIXES)
    if (values["model"].get("max_input_chars_per_word") or 0) > _MOST_WORD:
        raise ValueError(f"it takes words of more than {_MOST_WORD} characters")
    # A Unigram's is a list of tokens with their scores.
    is_trie = isinstance(vocabulary, list)
    tokens = [entry[0] for entry in vocabulary] if is_trie else list(vocabulary)
    added = [entry["content"] for entry in values.get("added_tokens", ())]
    if len(tokens) + len(added) > _MOST_TOKENS:
        raise ValueError("it has too many tokens")
    _check_lengths([*tokens, *added])
    if _nodes([*tokens, *added] if is_trie else added) > _MOST_NODES:
        raise ValueError("its tokens have too little in common")


def _said_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a JSON file, of which json would take the last of several values and tokenizers all."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("it says a value twice")
    return values


def _check_lengths(tokens: Iterable[str]) -> None:
    longest = max(map(len, tokens), default=0)
    if longest > _MOST_TOKEN:
        raise ValueError(f"it has a token of {longest} characters")


def _nodes(tokens: Iterable[str]) -> int:
    """Number of different beginnings of tokens, in bytes."""
    ordered = sorted(token.encode() for token in tokens)
    shared = (commonprefix(pair) for pair in pairwise(ordered))  # noqa: RUF071
    return sum(map(len, ordered)) - sum(map(len, shared))


def _steps(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Steps of a normalizer, a pre-tokenizer or a decoder."""
    yield part
    for name in ("normalizers", "pretokenizers", "decoders"):
        for inner in part.get(name, ()):
            yield from _steps(inner)


def _from_sentencepiece(content: bytes, folder: Path) -> Tokenizer:
    # Take more than a second to import, and most checkpoints need neither.
    from sentencepiece import SentencePieceProcessor
    from transformers import LlamaTokenizer

    # transformers makes a merge of each pair of them in Python.
    if SentencePieceProcessor(model_proto=content).get_piece_size() > _MOST_TOKENS:
        raise ValueError("it has too many tokens")
    files = (folder / name for name in (_CONFIG, _ADDED, "special_tokens_map.json"))
    beside = {file.name: read_json(file) for file in files if file.is_file()}
    values = beside.get(_CONFIG, {})
    with TemporaryDirectory() as scratch:
        # Where they are, transformers reads files of any size.
        (Path(scratch) / _SLOW).write_bytes(content)
        for name, said in beside.items():
            (Path(scratch) / name).write_text(json.dumps(said))
        # Whether a space is put before a text that follows a special token; it was before this was said.
        legacy = values.get("legacy")
        tokenizer = LlamaTokenizer.from_pretrained(
            scratch,
            local_files_only=True,
            legacy=legacy is None or bool(legacy),
            add_bos_token=values.get("add_bos_token", True),
        )
    _bound(tokenizer.backend_tokenizer)
    return tokenizer.backend_tokenizer


def _without_added_from(rows: int, tokenizer: Tokenizer) -> Tokenizer:
    """The same without added tokens whose ids are `rows` and above."""
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [token for token in document["added_tokens"] if token["id"] < rows]
    return Tokenizer.from_str(json.dumps(document))


def _add_recorded(tokenizer: Tokenizer, file: Path) -> None:
    if not file.is_file():
        return
    recorded = read_json(file)
    if not all(isinstance(index, int) for index in recorded.values()):
        raise InputError(f"'{file}' does not give each token its id: copy it again")
    for token, index in sorted(recorded.items(), key=lambda item: item[1]):
        if tokenizer.token_to_id(token) is None:
            tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])
        if tokenizer.token_to_id(token) != index:
            raise InputError(
                f"'{file}' gives '{token}' the id {index}, but the tokenizer beside it "
                f"{tokenizer.token_to_id(token)}: take all of them from the same checkpoint"
            )
