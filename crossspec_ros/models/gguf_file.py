"""Write a target's language model as a GGUF (llama.cpp's format) without a vocabulary."""

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
"""Version of the cached files."""
_KINDS = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3_vl_text": "qwen3vl"}
"""llama.cpp's names of the supported language models, which were compared with transformers."""


def is_llama(config: Any) -> bool:
    """Return whether llama.cpp is installed and can run a language model with this config."""
    slides, rotation = getattr(config, "use_sliding_window", False), config.rope_parameters["rope_type"]
    return has_llama() and config.model_type in _KINDS and rotation == "default" and not slides


def check_llama(config: Any) -> None:
    """Raise InputError if llama.cpp cannot run a language model with this config."""
    check_llama_packages("models.engine is llama.cpp")
    if not is_llama(config):
        raise InputError(
            f"models.engine is llama.cpp, which supports {', '.join(_KINDS)} with default RoPE, but the "
            f"target's language model is {config.model_type} with {config.rope_parameters['rope_type']} "
            f"RoPE: set models.engine to torch"
        )


def convert_model(target: VideoTarget, kind: str, digest: str = "") -> LlamaModel:
    """Load a target's language model in llama.cpp with weights of this `kind`, through a GGUF.

    With a `digest` of the weights, the file stays in the user's cache. Raises InputError if the file cannot
    be written.
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
                f"({error.strerror or error}): free space there, or set XDG_CACHE_HOME to another folder"
            ) from error
        # The pages of a temporary file stay mapped after its deletion.
        return LlamaModel(file, "delete it, and it will be written again")


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
            # For other architectures, llama.cpp has the order of transformers.
            if architecture == "llama" and part in name:
                values = _interleaved(values, count)
        found = names.get_name(name, (".weight", ".bias"))
        assert found is not None, name
        as_kind = GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
        writer.add_tensor(found, quantize(values, as_kind), raw_dtype=as_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _interleaved(weight: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Return the rows in the order of llama.cpp's RoPE: rotated pairs are adjacent, not in two halves."""
    halves = weight.reshape(heads, 2, -1, weight.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)
