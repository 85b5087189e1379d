"""Language model of a target as a GGUF, llama.cpp's format; without words, for tokens go in as numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossspec_ros.errors import InputError
from crossspec_ros.models.base import LanguageModel


def is_llama(config: Any) -> bool:
    """Test a language model's config for Llama's architecture with its plain rotation, the one known here."""
    return (
        config.model_type == "llama"
        and config.rope_parameters["rope_type"] == "default"
        and config.head_dim * config.num_attention_heads == config.hidden_size
    )


def check_llama(config: Any) -> None:
    """Raise InputError for the config of a language model that llama.cpp is not given."""
    if not is_llama(config):
        raise InputError(
            f"models.engine is llama.cpp, but the target's language model is of the kind "
            f"'{config.model_type}', and only Llama's with plain rotations are given to it: set "
            f"models.engine to torch"
        )


def write_gguf(target: LanguageModel, file: Path, kind: str) -> None:
    """Write the weights as `kind` (F32, BF16, ...); norms stay in float32."""
    from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
    from gguf.quants import quantize

    config = target.body.config
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    writer = GGUFWriter(file, "llama")
    writer.add_block_count(layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    module: Any = target.module
    head = module.get_output_embeddings().weight
    writer.add_vocab_size(len(head))
    writer.add_tokenizer_model("no_vocab")
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, layers)
    tensors = {f"model.{name}": tensor for name, tensor in target.body.state_dict().items()}
    if head is not target.body.get_input_embeddings().weight:
        tensors["lm_head.weight"] = head
    for name, tensor in tensors.items():
        values = tensor.float().cpu().numpy()
        if ".q_proj." in name:
            values = _by_turns(values, heads)
        elif ".k_proj." in name:
            values = _by_turns(values, config.num_key_value_heads)
        stored = names.get_name(name, (".weight",))
        assert stored is not None, name
        as_kind = GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
        writer.add_tensor(stored, quantize(values, as_kind), raw_dtype=as_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _by_turns(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of each head in the order of llama.cpp's rotation: pairs side by side, not in two halves."""
    halves = weight.reshape(heads, 2, -1, weight.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)
