"""A checkpoint's tokenizer, from `tokenizer.json` or from sentencepiece's `tokenizer.model`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from crossspec_ros.errors import InputError
from crossspec_ros.models.config_files import read_json


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
        tokenizer = Tokenizer.from_file(str(fast)) if file == fast else _from_sentencepiece(folder)
    except InputError:
        raise
    # tokenizers knows only the bare Exception.
    except Exception as error:
        raise InputError(
            f"'{file}' is no tokenizer ({type(error).__name__}: {' '.join(str(error).split())[:160]}): "
            f"copy it again"
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    _add_recorded(tokenizer, folder / "added_tokens.json")
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    ids = max(tokenizer.get_vocab().values(), default=-1) + 1
    if ids > rows:
        raise InputError(
            f"'{file}' has {ids} ids with those added to it, but the checkpoint only has embeddings for "
            f"{rows}: take the tokenizer that came with the weights"
        )
    return tokenizer


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
