"""The dimensions of the released 7B models, for estimates and benchmarks where there are no weights."""

from __future__ import annotations

from transformers import CLIPVisionConfig, LlamaConfig, VideoLlavaConfig


def video_llava_7b() -> VideoLlavaConfig:
    """LanguageBind/Video-LLaVA-7B-hf: LLaMA-7B behind CLIP ViT-L/14 at 224 pixels, 8 frames of 257 tokens."""
    return VideoLlavaConfig(
        text_config=_llama_7b(32064),
        vision_config=_clip_l(224),
        image_seq_length=256,
        video_seq_length=8 * 257,
    )


def eventgpt_7b() -> tuple[LlamaConfig, CLIPVisionConfig]:
    """XduSyL/EventGPT: LLaMA-7B, and its tower CLIP ViT-L/14 at 336 pixels."""
    return _llama_7b(32003), _clip_l(336)


def _llama_7b(vocabulary: int) -> LlamaConfig:
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
        eos_token_id=2,
        pad_token_id=0,
    )


def _clip_l(side: int) -> CLIPVisionConfig:
    return CLIPVisionConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        image_size=side,
        patch_size=14,
        projection_dim=768,
    )
