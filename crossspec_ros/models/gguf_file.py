"""Write the language model of a target as a GGUF, llama.cpp's format, without a vocabulary."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossspec_ros.errors import InputError
from crossspec_ros.files import replacing
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.models.llama_library import LlamaModel
from crossspec_ros.models.placement import check_llama_packages, has_llama
from crossspec_ros.paths import cache_dir

_FORMAT = 1
"""Version of the files in the cache."""
_KINDS = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3_vl_text": "qwen3vl"}
"""llama.cpp's names of the kinds of language models that were compared with transformers."""


def is_llama(config: Any) -> bool:
    """Whether llama.cpp is installed and can run a language model with this config."""
    slides, rotation = getattr(config, "use_sliding_window", False), config.rope_parameters["rope_type"]
    return has_llama() and config.model_type in _KINDS and rotation == "default" and not slides


def check_llama(config: Any) -> None:
    """Raise InputError for the config of a language model that llama.cpp cannot run here."""
    check_llama_packages("models.engine is llama.cpp")
    if not is_llama(config):
        raise InputError(
            f"models.engine is llama.cpp, which runs {', '.join(_KINDS)} with default rotations, but the "
            f"target's language model is of the kind '{config.model_type}' with "
            f"'{config.rope_parameters['rope_type']}' ones: set models.engine to torch"
        )


def written_model(target: VideoTarget, kind: str, digest: str = "") -> LlamaModel:
    """Load a target's language model from a GGUF of its weights as `kind`.

    The file is written once into the user's cache, or without a `digest` of the weights for this call.
    Raises InputError if it cannot be written.
    """
    with tempfile.TemporaryDirectory() as folder:
        name = f"{digest.replace(' ', '-') or 'target'}-{kind}-{_FORMAT}.gguf"
        file = (cache_dir() if digest else Path(folder)) / name
        try:
            if not file.is_file():
                file.parent.mkdir(parents=True, exist_ok=True)
                with replacing(file) as scratch:
                    write_gguf(target, scratch, kind)
        except OSError as error:
            raise InputError(
                f"llama.cpp needs the target's weights as a file, but '{file}' cannot be written "
                f"({error.strerror or error}): make room there, or let XDG_CACHE_HOME name another folder"
            ) from error
        # Its pages stay mapped after the folder is deleted.
        return LlamaModel(file, "delete it, so that it is written anew")


def write_gguf(target: VideoTarget, file: Path, kind: str) -> None:
    """Write the weights as `kind` (F32, BF16, ...); norms and biases stay in float32."""
    from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
    from gguf.quants import quantize

    config = target.body.config
    architecture = _KINDS[config.model_type]
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    writer = GGUFWriter(file, architecture)
    writer.add_block_count(layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if sections := config.rope_parameters.get("mrope_section"):
        writer.add_rope_dimension_sections([*sections, 0])
        writer.add_num_deepstack_layers(target.spec.added_layers)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    module: Any = target.module
    head = module.get_output_embeddings().weight
    writer.add_vocab_size(len(head))
    writer.add_tokenizer_model("no_vocab")
    names = get_tensor_name_map(MODEL_ARCH[architecture.upper()], layers)
    tensors = {f"model.{name}": tensor for name, tensor in target.body.state_dict().items()}
    if head is not target.body.get_input_embeddings().weight:
        tensors["lm_head.weight"] = head
    for name, tensor in tensors.items():
        values = tensor.float().cpu().numpy()
        for part, count in ((".q_proj.", heads), (".k_proj.", config.num_key_value_heads)):
            # Others rotate pairs of rows in two halves, as transformers does.
            if architecture == "llama" and part in name:
                values = _by_turns(values, count)
        found = names.get_name(name, (".weight", ".bias"))
        assert found is not None, name
        as_kind = GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
        writer.add_tensor(found, quantize(values, as_kind), raw_dtype=as_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _by_turns(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of each head in the order of llama.cpp's rotation: pairs side by side, not in two halves."""
    halves = weight.reshape(heads, 2, -1, weight.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)
