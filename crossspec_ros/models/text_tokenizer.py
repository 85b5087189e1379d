"""A checkpoint's tokenizer, from `tokenizer.json` or from sentencepiece's `tokenizer.model`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from crossspec_ros.errors import InputError
from crossspec_ros.files import read_small
from crossspec_ros.models.config_files import read_json

_MOST_BYTES, _MOST_COMMAS = 64 << 20, 2_000_000
"""The largest published have 33 MB and 1.3 million; what a comma parts takes hundreds of bytes more."""
_MOST_STEPS = 10
"""Of a normalizer and the like: each can make a text twice as long; published ones have up to seven."""
_PROBE = "What are the key elements in this scene?"
_MOST_IDS = 10 * len(_PROBE)
_MOST_TOKEN = 1000
"""Characters; those of published ones have some hundred."""


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """What tells a tokenizer from others."""
    return hashlib.blake2b(tokenizer.to_str().encode()).hexdigest()


def load_tokenizer(folder: Path, rows: int, special: Sequence[str] = ()) -> Tokenizer:
    """The tokenizer of the checkpoint in `folder`, which has embeddings for `rows` ids.

    Args:
        special: tokens that it must have, added behind the others where it lacks them.

    Raises:
        InputError: there is none, its files are damaged or contradict each other, or it has more ids than
            the checkpoint has embeddings.
    """
    fast, slow = folder / "tokenizer.json", folder / "tokenizer.model"
    file = fast if fast.is_file() else slow
    if not file.is_file():
        raise InputError(
            f"the checkpoint '{folder}' lacks '{fast.name}' and '{slow.name}': copy the one that came with "
            f"the weights there"
        )
    try:
        content = read_small(file, _MOST_BYTES)
        if file == fast and content.count(b",") > _MOST_COMMAS:
            raise ValueError("it has too many parts")
        tokenizer = Tokenizer.from_buffer(content) if file == fast else _from_sentencepiece(folder)
        bound(tokenizer)
    except (InputError, KeyboardInterrupt, SystemExit):
        raise
    # tokenizers knows only the bare Exception, and its panics are not even that.
    except BaseException as error:
        raise InputError(
            f"'{file}' is no tokenizer ({type(error).__name__}: {' '.join(str(error).split())[:160]}): "
            f"copy it again"
        ) from error
    _add_recorded(tokenizer, folder / "added_tokens.json")
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    ids = max(tokenizer.get_vocab().values(), default=-1) + 1
    if ids > rows:
        raise InputError(
            f"'{file}' has {ids} ids with those added to it, but the checkpoint only has embeddings for "
            f"{rows}: take the tokenizer that came with the weights"
        )
    return tokenizer


def bound(tokenizer: Tokenizer) -> None:
    """Let it neither cut nor pad a text. Raises ValueError for one that makes very much of a short text or of
    few ids, and what tokenizers raises at a text, its panics too, which are no Exception."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    longest = max(map(len, tokenizer.get_vocab()), default=0)
    if longest > _MOST_TOKEN:
        raise ValueError(f"it has a token of {longest} characters")
    for part in (tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder):
        steps = [] if part is None else list(_steps(json.loads(part.__getstate__())))
        if len(steps) > _MOST_STEPS or any(len(step.get("content", "")) > 1 for step in steps):
            raise ValueError("it has many steps, or puts longer texts in the place of others")
    ids = tokenizer.encode(_PROBE).ids
    if len(ids) > _MOST_IDS:
        raise ValueError(f"it makes {len(ids)} ids of {len(_PROBE)} characters")
    tokenizer.decode(ids)


def _steps(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a normalizer, a pre-tokenizer or a decoder does, one after the other."""
    yield part
    for name in ("normalizers", "pretokenizers", "decoders"):
        for inner in part.get(name, ()):
            yield from _steps(inner)


def _from_sentencepiece(folder: Path) -> Tokenizer:
    # Takes a second to import.
    from transformers import LlamaTokenizer

    config = folder / "tokenizer_config.json"
    values = read_json(config) if config.is_file() else {}
    # Whether a space is put before a text that follows a special token; it was when this was not yet said.
    legacy = values.get("legacy")
    tokenizer = LlamaTokenizer.from_pretrained(
        folder,
        local_files_only=True,
        legacy=legacy is None or bool(legacy),
        add_bos_token=values.get("add_bos_token", True),
    )
    return tokenizer.backend_tokenizer


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
