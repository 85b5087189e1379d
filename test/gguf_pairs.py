"""Write a Qwen3-VL for llama.cpp: a GGUF with vocabulary and chat template, and its projector."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import gguf
import gguf.quants
from gguf.scripts.gguf_new_metadata import MetadataDetails, copy_with_new_metadata

from crossspec_ros.models.gguf_file import write_gguf
from crossspec_ros.models.loading import load_pair
from crossspec_ros.paths import tiny_models
from crossspec_ros.settings import NO_DRAFT

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PROJECTED = {
    "visual.patch_embed.proj.bias": "v.patch_embd.bias",
    "visual.pos_embed.weight": "v.position_embd.weight",
    "visual.merger.norm": "v.post_ln",
    "visual.merger.linear_fc1": "mm.0",
    "visual.merger.linear_fc2": "mm.2",
}
_PATCHES = "visual.patch_embed.proj.weight"


def write_pair(checkpoint: Path, folder: Path, kind: str = "F32", template: str = TEMPLATE) -> Path:
    """Write both files of the Qwen3-VL in `checkpoint` into `folder`; return the model's file."""
    target: Any = load_pair(tiny_models(), target=str(checkpoint), draft=NO_DRAFT).target
    folder.mkdir(exist_ok=True, parents=True)
    file = folder / f"tiny-{kind}.gguf"
    with tempfile.TemporaryDirectory() as scratch:
        write_gguf(target, Path(scratch) / "wordless.gguf", kind)
        _add_words(Path(scratch) / "wordless.gguf", file, target, template, kind)
    write_projector(target, folder / "mmproj-tiny.gguf")
    return file


def _add_words(wordless: Path, file: Path, target: Any, template: str, kind: str) -> None:
    tokenizer, rows = target.tokenizer, target.body.config.vocab_size
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    special = tokenizer.get_added_tokens_decoder()
    types = [gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL for i in range(rows)]
    tokens = [tokenizer.id_to_token(i) or f"<unused {i}>" for i in range(rows)]
    named = {
        "general.name": (gguf.GGUFValueType.STRING, "tiny"),
        "general.file_type": (gguf.GGUFValueType.UINT32, gguf.LlamaFileType[_FILE_TYPES[kind]].value),
        "tokenizer.chat_template": (gguf.GGUFValueType.STRING, template),
        "tokenizer.ggml.model": (gguf.GGUFValueType.STRING, "gpt2"),
        "tokenizer.ggml.pre": (gguf.GGUFValueType.STRING, "gpt-2"),
        "tokenizer.ggml.eos_token_id": (gguf.GGUFValueType.UINT32, target.spec.eos_ids[0]),
        "tokenizer.ggml.add_bos_token": (gguf.GGUFValueType.BOOL, False),
    }
    lists = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [int(one) for one in types],
        "tokenizer.ggml.merges": [one if isinstance(one, str) else " ".join(one) for one in merges],
    }
    reader = gguf.GGUFReader(wordless)
    writer = gguf.GGUFWriter(file, "qwen3vl")
    for key, values in lists.items():
        writer.add_array(key, values)
    added = {key: MetadataDetails(kind, value) for key, (kind, value) in named.items()}
    copy_with_new_metadata(reader, writer, added, [])


_FILE_TYPES = {"F32": "ALL_F32"} | {kind: f"MOSTLY_{kind}" for kind in ("F16", "BF16", "Q8_0", "Q4_0")}


def write_projector(target: Any, file: Path, kind: str = "F32") -> None:
    """Write the vision tower of the Qwen3-VL `target`, with matrices of this `kind`."""
    config = target.module.config
    vision = config.vision_config
    writer = gguf.GGUFWriter(file, "clip")
    writer.add_file_type(gguf.LlamaFileType[_FILE_TYPES[kind]].value)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(gguf.VisionProjectorType.QWEN3VL)
    writer.add_vision_image_size(round(vision.num_position_embeddings**0.5) * vision.patch_size)
    writer.add_vision_patch_size(vision.patch_size)
    writer.add_vision_embedding_length(vision.hidden_size)
    writer.add_vision_feed_forward_length(vision.intermediate_size)
    writer.add_vision_block_count(vision.depth)
    writer.add_vision_head_count(vision.num_heads)
    writer.add_vision_attention_layernorm_eps(1e-6)
    writer.add_vision_projection_dim(config.text_config.hidden_size)
    writer.add_vision_spatial_merge_size(vision.spatial_merge_size)
    writer.add_vision_image_mean([0.5] * 3)
    writer.add_vision_image_std([0.5] * 3)
    writer.add_vision_use_gelu(True)
    added = vision.deepstack_visual_indexes
    writer.add_vision_is_deepstack_layers([i in added for i in range(vision.depth)])

    def add(name: str, values: Any) -> None:
        is_matrix = values.ndim == 2 and "embd" not in name and values.shape[1] % 32 == 0
        as_kind = gguf.GGMLQuantizationType[kind if is_matrix else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(values, as_kind), raw_dtype=as_kind)

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, vision.depth)
    for name, tensor in target.module.model.state_dict().items():
        if not name.startswith("visual."):
            continue
        values, suffix = tensor.float().numpy(), name.rpartition(".")[2]
        stem = name.removesuffix(f".{suffix}")
        if name == _PATCHES:
            for i, end in enumerate(("", ".1")):
                add(f"v.patch_embd.weight{end}", values[:, :, i])
        elif stem.startswith("visual.deepstack_merger_list."):
            _, _, at, part = stem.split(".")
            add(f"v.deepstack.{added[int(at)]}.{part.removeprefix('linear_')}.{suffix}", values)
        else:
            found = PROJECTED.get(name) or (PROJECTED[stem] + f".{suffix}" if stem in PROJECTED else None)
            add(found or names.get_name(name, (".weight", ".bias")), values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
