"""EAGLE-3 heads as vllm-project/speculators stores them: made here by hand, for every family's target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from crossspec_lab.heads.eagle import Eagle
from crossspec_lab.heads.head import Sizes
from crossspec_lab.heads.head_files import load_head
from plain_eagle import PlainEagle, random_pairs
from refusals import refused
from safetensors.torch import load_file, save_file

from crossspec_ros.models.base import VideoTarget
from crossspec_ros.models.pair import ModelPair

QUESTION, LIMIT = "What are the key elements in this scene?", 20
HEADS, KEY_HEADS, HEAD, INNER = 4, 2, 16, 48
# What a published head may be; `old` names its layer as before, `whole` has no maps.
VARIANTS: dict[str, dict[str, Any]] = {
    "residual": {"norm_before_residual": True},
    "qwen3": {"qwen3": True, "fc_norm": True, "norm_output": True},
    "old": {"old": True, "norm_before_fc": True, "embed_tokens": True},
    "whole": {"whole": True},
}


def write(folder: Path, target: VideoTarget, qwen3: bool = False, old: bool = False, whole: bool = False,
          embed_tokens: bool = False, **norms: bool) -> None:  # fmt: skip
    """A random head."""
    folder.mkdir(exist_ok=True)
    sizes = Sizes.of(target, None)
    h, tokens = sizes.width, sizes.tokens
    speaks = tokens if whole else tokens // 2
    random = torch.Generator().manual_seed(3)

    def weight(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random) * shape[-1] ** -0.5

    def norm(width: int) -> torch.Tensor:
        return 1 + 0.2 * torch.randn(width, generator=random)

    layer = {
        **{
            f"{name}.weight": norm(h)
            for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm")
        },
        "self_attn.q_proj.weight": weight(HEADS * HEAD, 2 * h),
        "self_attn.k_proj.weight": weight(KEY_HEADS * HEAD, 2 * h),
        "self_attn.v_proj.weight": weight(KEY_HEADS * HEAD, 2 * h),
        "self_attn.o_proj.weight": weight(h, HEADS * HEAD),
        "mlp.gate_proj.weight": weight(INNER, h),
        "mlp.up_proj.weight": weight(INNER, h),
        "mlp.down_proj.weight": weight(h, INNER),
    }
    if qwen3:
        layer |= {f"self_attn.{name}_norm.weight": norm(HEAD) for name in "qk"}
    tensors = {("midlayer." if old else "layers.0.") + name: tensor for name, tensor in layer.items()}
    tensors |= {
        "fc.weight": weight(h, 3 * h),
        "norm.weight": norm(h),
        "lm_head.weight": 3 * weight(speaks, h),
    }
    if not whole:
        ids = torch.randperm(tokens, generator=random)[:speaks].sort().values
        tensors["d2t"] = ids - torch.arange(speaks)
        tensors["t2d"] = torch.zeros(tokens, dtype=torch.bool).index_fill(0, ids, True)
    if embed_tokens:
        tensors["embed_tokens.weight"] = weight(tokens, h)
    if norms.get("norm_before_fc"):
        tensors["input_norm.weight"] = norm(3 * h)
    if norms.get("fc_norm"):
        tensors |= {f"fc_norm.{i}.weight": norm(h) for i in range(3)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.3.0",
        "draft_vocab_size": speaks,
        "target_hidden_size": None,
        "eagle_aux_hidden_state_layer_ids": [1, sizes.layers // 2, sizes.layers - 1],
        "transformer_layer_config": {
            "model_type": "qwen3" if qwen3 else "llama",
            "hidden_size": h,
            "intermediate_size": INNER,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KEY_HEADS,
            "head_dim": HEAD,
            "num_hidden_layers": 1,
            "rms_norm_eps": 1e-5,
            "vocab_size": tokens,
        },
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "verifier": {"architectures": [type(target.module).__name__], "name_or_path": "some/target"},
        },
        **norms,
    }
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_it_computes_what_the_format_says(pair: ModelPair, tmp_path: Path, variant: str) -> None:
    write(tmp_path, pair.target, **VARIANTS[variant])
    head = load_head(tmp_path, pair.target)
    assert isinstance(head, Eagle) and head.taps == (1, 2, 4)
    head.load(pair.target)
    pairs, plain = random_pairs(head.sizes), PlainEagle(head)
    following = [*pairs.question[1:].tolist(), *pairs.tokens[0].tolist()]
    made = plain.chain(following[:9], plain.features(pairs.states[0], pairs.taps[0])[:9], ())
    stored = load_file(tmp_path / "model.safetensors")
    spoken = torch.arange(577) if "d2t" not in stored else torch.arange(288) + stored["d2t"]
    found = head.logits(pairs)[0, 5]
    assert torch.allclose(found[spoken].log_softmax(-1).double(), plain.log_probs(made), atol=1e-3)
    assert set(found.topk(100).indices.tolist()) <= set(spoken.tolist())


LAYER = "transformer_layer_config"


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"speculators_model_type": "dflash"}, "eagle-of-another-algorithm"),
        ({"draft_vocab_size": 77}, "eagle-vocabulary-map"),
        ({LAYER: {"model_type": "gpt2"}}, "eagle-layer-type"),
        ({"target_hidden_size": 4096}, "eagle-of-another-width"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 5]}, "eagle-tapped-layers"),
        ({"norm_before_fc": True}, "eagle-library-weights"),
    ],
)
def test_a_config_of_another_head_is_refused_in_a_sentence(
    pair: ModelPair, tmp_path: Path, values: dict[str, Any], code: str
) -> None:
    write(tmp_path, pair.target)
    config = json.loads((tmp_path / "config.json").read_text())
    for name, value in values.items():
        config[name] = {**config[name], **value} if isinstance(value, dict) else value
    (tmp_path / "config.json").write_text(json.dumps(config))
    with refused(code, library_text="library" in code):
        load_head(tmp_path, pair.target)
