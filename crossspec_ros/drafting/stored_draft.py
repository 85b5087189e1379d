"""Stored drafts: kept in a file, so that draft and target need not be in memory together."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from crossspec_ros.drafting.draft_model import DIGEST_BYTES, Said
from crossspec_ros.errors import InputError
from crossspec_ros.files import replace_file, tensors_file, written_bytes

_ARRAYS = ("images", "ends", "tokens", "probs", "features")


def save_drafts(path: Path, drafts: Mapping[bytes, Said], identity: Mapping[str, Any]) -> None:
    """Write drafts by the 16-byte digests of their event images, and of what else they were made.

    `identity` is ready for JSON. A file that is there is replaced once all is written. Raises InputError
    where it cannot be written.
    """
    said = drafts.values()
    arrays: dict[str, np.ndarray] = {
        "images": np.frombuffer(b"".join(drafts), np.uint8).reshape(-1, DIGEST_BYTES),
        "ends": np.cumsum([0, *(len(draft.tokens) for draft in said)], dtype=np.int64),
        "tokens": np.array([token for draft in said for token in draft.tokens], np.int64),
        "probs": np.array([prob for draft in said for prob in draft.probs], np.float32),
        "features": np.array([draft.feature for draft in said], np.float32),
    }
    try:
        replace_file(path, save(arrays, {"identity": json.dumps(identity)}))
    except OSError as error:
        raise InputError(
            f"the drafts cannot be written to '{path}' ({error}): name a file in a folder that exists, can "
            f"be written to and has room"
        ) from error


def load_drafts(path: Path, identity: Mapping[str, Any], ids: int, width: int) -> dict[bytes, Said]:
    """The drafts in a file that `save_drafts` wrote, by a draft with so many token ids and that width.

    Raises InputError where it is damaged, or was not made of what `identity` says.
    """
    try:
        with safe_open(tensors_file(path), "numpy") as file:
            stored = (file.metadata() or {}).get("identity")
            if stored is None:
                raise ValueError("it holds something else")
            made_of = json.loads(stored)
            for name, value in identity.items():
                if made_of.get(name) != value:
                    raise InputError(
                        f"the drafts in '{path}' were made with {name} {made_of.get(name)!r}, but this run "
                        f"has {value!r}: name another file, or delete this one, and they are written anew"
                    )
            size = path.stat().st_size
            if written_bytes(path, size // 2) < size // 2:
                raise ValueError("most of it was never written")
            _check_shapes({name: file.get_slice(name) for name in _ARRAYS}, width)
            images, ends, tokens, probs, features = (file.get_tensor(name) for name in _ARRAYS)
        _check_numbers(ends, tokens, probs, features, ids)
    except InputError:
        raise
    except (OSError, SafetensorError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"'{path}' holds no drafts of crossspec caption, or is damaged ({error}): name another file, and "
            f"they are written there"
        ) from error
    return {
        key.tobytes(): Said(tuple(tokens[begin:end].tolist()), tuple(probs[begin:end].tolist()), feature)
        for key, (begin, end), feature in zip(images, pairwise(ends), features, strict=True)
    }


def _check_shapes(arrays: Mapping[str, Any], width: int) -> None:
    """Raise ValueError for arrays of safetensors, none of them read yet, that are not as they are written."""
    found = {name: (array.get_dtype(), tuple(array.get_shape())) for name, array in arrays.items()}
    count, said = math.prod(found["images"][1]) // DIGEST_BYTES, math.prod(found["tokens"][1])
    if found != {
        "images": ("U8", (count, DIGEST_BYTES)),
        "ends": ("I64", (count + 1,)),
        "tokens": ("I64", (said,)),
        "probs": ("F32", (said,)),
        "features": ("F32", (count, width) if count else (0,)),
    }:
        raise ValueError("its arrays do not fit each other")


def _check_numbers(
    ends: np.ndarray, tokens: np.ndarray, probs: np.ndarray, features: np.ndarray, ids: int
) -> None:
    if ends[0] != 0 or ends[-1] != len(tokens) or (np.diff(ends) < 0).any():
        raise ValueError("its arrays do not fit each other")
    if not ((tokens >= 0) & (tokens < ids)).all():
        raise ValueError("it holds something other than the draft's token ids")
    if not ((probs >= 0) & (probs <= 1)).all() or not np.isfinite(features).all():
        raise ValueError("its numbers are not what a draft gives")
