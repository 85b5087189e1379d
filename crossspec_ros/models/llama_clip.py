"""LLaMA-7B and CLIP ViT-L/14, of which both Video-LLaVA and EventGPT were made."""

from __future__ import annotations

from transformers import CLIPVisionConfig, LlamaConfig

EOS_7B = 2


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
