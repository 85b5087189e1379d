"""LLaMA behind a CLIP tower, of which both Video-LLaVA and EventGPT are made: sizes of any, and of 7B."""

from __future__ import annotations

from typing import cast

from transformers import CLIPVisionConfig, LlamaConfig

from crossspec_ros.models.transformers_family import numbers_in_layer

EOS_7B = 2


def clip_numbers(vision: CLIPVisionConfig, images: int) -> int:
    """Numbers that a tower works with in a pass over so many images."""
    # The patches and the class token.
    positions = (cast(int, vision.image_size) // cast(int, vision.patch_size)) ** 2 + 1
    return images * positions * numbers_in_layer(vision)


def llama_7b(vocabulary: int) -> LlamaConfig:
    """LLaMA-7B with a vocabulary of this size."""
    return LlamaConfig(
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=32,
        vocab_size=vocabulary,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        bos_token_id=1,
        eos_token_id=EOS_7B,
        pad_token_id=0,
    )


def clip_l(side: int) -> CLIPVisionConfig:
    """CLIP ViT-L/14 for images of so many pixels a side."""
    return CLIPVisionConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        image_size=side,
        patch_size=14,
        projection_dim=768,
    )
