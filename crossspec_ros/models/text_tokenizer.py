"""A checkpoint's tokenizer, from `tokenizer.json` or from sentencepiece's `tokenizer.model`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.models.config_files import check_kind, check_pointer, read_json

_SLOW, _ADDED, _CONFIG = "tokenizer.model", "added_tokens.json", "tokenizer_config.json"
_PROBE = "What are the key elements in this scene?"


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """Return a digest that distinguishes tokenizers."""
    return hashlib.blake2b(tokenizer.to_str().encode()).hexdigest()


def load_tokenizer(folder: Path, rows: int, special: Sequence[str] = ()) -> Tokenizer:
    """Load the tokenizer of the checkpoint in `folder`, which has embeddings for `rows` ids.

    Tokens added behind the last row, such as InternVL3's `<video>`, are left out: a question that contains
    one of them is ordinary text.

    Args:
        folder: the checkpoint's.
        rows: number of embeddings.
        special: tokens that it must have, added behind the others where it lacks them.

    Raises:
        InputError: there is none, its files are damaged or contradict each other, or a text could become ids
            for which the checkpoint has no embeddings.
    """
    fast, slow = folder / "tokenizer.json", folder / _SLOW
    file = fast if fast.is_file() else slow
    if not file.is_file():
        check_kind(folder)
        raise InputError(
            f"the checkpoint '{folder}' lacks '{fast.name}' and '{slow.name}': copy the one that came with "
            f"the weights there"
        )
    check_pointer(file)
    try:
        tokenizer = read_tokenizer(fast.read_bytes()) if file == fast else _from_sentencepiece(folder)
    except InputError:
        raise
    # tokenizers raises bare Exceptions.
    except Exception as error:
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
    """Parse a tokenizer.json; the tokenizer neither truncates nor pads. Raises Exception for invalid ones."""
    tokenizer = Tokenizer.from_buffer(content)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _from_sentencepiece(folder: Path) -> Tokenizer:
    # It takes more than a second to import, and most checkpoints do not need it.
    from transformers import LlamaTokenizer

    config = folder / _CONFIG
    values = read_json(config) if config.is_file() else {}
    # Whether a space is put before a text that follows a special token; old configs do not set it.
    legacy = values.get("legacy")
    return LlamaTokenizer.from_pretrained(
        folder,
        local_files_only=True,
        legacy=legacy is None or bool(legacy),
        add_bos_token=values.get("add_bos_token", True),
    ).backend_tokenizer


def _without_added_from(rows: int, tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer without added tokens whose ids are `rows` and above."""
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [token for token in document["added_tokens"] if token["id"] < rows]
    return Tokenizer.from_str(json.dumps(document))


def _add_recorded(tokenizer: Tokenizer, file: Path) -> None:
    if not file.is_file():
        return
    for token, index in sorted(read_json(file).items(), key=lambda item: item[1]):
        if tokenizer.token_to_id(token) is None:
            tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])
        if tokenizer.token_to_id(token) != index:
            raise InputError(
                f"'{file}' gives '{token}' the id {index}, but the tokenizer beside it "
                f"{tokenizer.token_to_id(token)}: take all of them from the same checkpoint"
            )
