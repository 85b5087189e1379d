"""Tokenizer of a checkpoint: `tokenizer.json`, sentencepiece's `tokenizer.model`, or Qwen2's `vocab.json`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from crossspec_ros.errors import InputError, one_line
from crossspec_ros.files import check_file
from crossspec_ros.models.config_files import check_kind, read_json


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """Return a digest of the tokenizer."""
    return hashlib.blake2b(tokenizer.to_str().encode()).hexdigest()


def load_tokenizer(folder: Path, rows: int, special: Sequence[str] = ()) -> Tokenizer:
    """Load the tokenizer of the checkpoint in `folder`, which has embeddings for `rows` ids.

    Adds missing tokens of added_tokens.json and of `special`. Omits added tokens without an embedding, such
    as InternVL3's `<video>`, which are then ordinary text in a question.

    Raises InputError for a missing or damaged file, and for more ids than embeddings.
    """
    fast, slow, qwen = (folder / name for name in ("tokenizer.json", "tokenizer.model", "vocab.json"))
    file = next(filter(Path.is_file, (fast, slow, qwen)), None)
    if file is None:
        check_kind(folder)
        raise InputError(
            f"the checkpoint '{folder}' lacks '{fast.name}' and '{slow.name}': copy one from its base model"
        )
    try:
        check_file(file)
        convert = _from_sentencepiece if file == slow else _from_qwen
        text = fast.read_text() if file == fast else convert(folder).backend_tokenizer.to_str()
        layout = json.loads(text)
        added = [token for token in layout.get("added_tokens", ()) if token["id"] < rows]
        tokenizer = Tokenizer.from_str(json.dumps({**layout, "added_tokens": added}))
    except InputError:
        raise
    # tokenizers raises bare Exceptions.
    except Exception as error:
        raise InputError(
            f"'{file}' is not a tokenizer ({type(error).__name__}: {one_line(error)[:160]}): copy it again"
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    recorded = folder / "added_tokens.json"
    ids_by_token = read_json(recorded) if recorded.is_file() else {}
    in_order = sorted(ids_by_token.items(), key=lambda item: item[1])
    tokens = *(token for token, i in in_order if i < rows), *special
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in tokens])
    ids = max(tokenizer.get_vocab().values(), default=-1) + 1
    if ids > rows:
        raise InputError(
            f"'{file}' and its added tokens have {ids} ids, but the checkpoint has {rows} embeddings: copy "
            f"the tokenizer from the original checkpoint"
        )
    return tokenizer


def _from_sentencepiece(folder: Path) -> Any:
    """Return transformers' tokenizer of sentencepiece's file."""
    # Imported here, because it takes more than a second and most checkpoints do not need it.
    from transformers import LlamaTokenizer

    config = folder / "tokenizer_config.json"
    values = read_json(config) if config.is_file() else {}
    # `legacy` inserts a space before a text after a special token; old configs do not set it.
    legacy = values.get("legacy")
    options = {"legacy": legacy is None or bool(legacy), "add_bos_token": values.get("add_bos_token", True)}
    return LlamaTokenizer.from_pretrained(folder, local_files_only=True, **options)


def _from_qwen(folder: Path) -> Any:
    """Return transformers' tokenizer of Qwen2's vocab.json and merges.txt."""
    from transformers import Qwen2Tokenizer

    kind = read_json(folder / "tokenizer_config.json").get("tokenizer_class")
    # Other byte-level tokenizers have these files, but split words differently.
    if kind != Qwen2Tokenizer.__name__ or not (folder / "merges.txt").is_file():
        raise InputError(
            f"the checkpoint '{folder}' has no tokenizer.json, and no vocab.json and merges.txt of Qwen2: "
            f"copy tokenizer.json from its base model"
        )
    check_file(folder / "merges.txt")
    return Qwen2Tokenizer.from_pretrained(folder, local_files_only=True)
