"""EAGLE-3 (Li et al., 2025): a draft layer that reads three of the target's layers, with its own head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from crossspec_lab.heads.draft_layer import DraftLayer, default_layer, make_layer
from crossspec_lab.heads.growing import log_softmax
from crossspec_lab.heads.head import Pairs, Sizes

_STEP_DECAY = 0.8
"""Weight of a step's loss relative to the step before, as in EAGLE-3."""
_FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


class Eagle(DraftLayer):
    """An EAGLE-3 head; modules and options have the names of vllm-project/speculators.

    Options:
        unroll: number of steps of training-time test, in which its own outputs are fed back.
        layer: transformers' config of the decoder layer, a llama's or a qwen3's.
        draft_vocabulary: number of the target's tokens that it writes; 0 is all.
        taps: the target's layers whose inputs it reads.
        norm_before_residual: the layer adds to the normed feature instead of the feature.
        norm_before_fc, fc_norm: the tapped inputs are normed together, or one by one.
        norm_output: outputs that are fed back are normed, as for the head.
        own_embeddings: it has embeddings of its own.
    """

    kind = "eagle"

    def __init__(
        self,
        sizes: Sizes,
        unroll: int = 1,
        layer: Mapping[str, Any] | None = None,
        draft_vocabulary: int = 0,
        taps: Sequence[int] = (),
        own_embeddings: bool = False,
        **flags: bool,
    ) -> None:
        if unknown := flags.keys() - set(_FLAGS):
            raise ValueError(f"there is no option {unknown.pop()}")
        options: dict[str, Any] = {"unroll": unroll, "draft_vocabulary": draft_vocabulary or sizes.tokens}
        options |= {"taps": list(taps or tapped_layers(sizes.layers)), "own_embeddings": own_embeddings}
        super().__init__(sizes, layer or default_layer(sizes), **options, **flags)
        self.flags = dict.fromkeys(_FLAGS, False) | flags
        self.taps = tuple(options["taps"])
        if not all(type(tap) is int and 0 <= tap < sizes.layers for tap in self.taps):
            raise ValueError(f"it taps the layers {self.taps}, but the target has {sizes.layers}")
        width, count, speaks = sizes.width, len(self.taps), options["draft_vocabulary"]

        def norm(inputs: int) -> nn.Module:
            return LlamaRMSNorm(inputs, eps=self.config.rms_norm_eps)

        self.input_norm = norm(count * width) if self.flags["norm_before_fc"] else nn.Identity()
        self.fc_norm = nn.ModuleList(norm(width) for _ in range(count * self.flags["fc_norm"]))
        self.fc = nn.Linear(count * width, width, bias=False)
        block = make_layer(self.config)
        for name in ("q_proj", "k_proj", "v_proj"):
            single = getattr(block.self_attn, name)
            # Attention reads embedding and feature side by side.
            double = nn.Linear(2 * width, single.out_features, bias=single.bias is not None)
            setattr(block.self_attn, name, double)
        block.hidden_norm = norm(width)
        self.layers = nn.ModuleList([block])
        self.norm = norm(width)
        self.lm_head = nn.Linear(width, speaks, bias=False)
        self.embed_tokens = nn.Embedding(sizes.tokens, width) if own_embeddings else None
        self.d2t: Tensor
        """Distance of each draft id to the target's id of the same token."""
        self.register_buffer("d2t", torch.zeros(speaks, dtype=torch.long))

    @property
    def spoken(self) -> Tensor:
        """The target's ids of all tokens that it writes."""
        return self.token_ids(torch.arange(len(self.d2t), device=self.d2t.device))

    def token_ids(self, ids: Tensor) -> Tensor:
        return ids + self.d2t[ids]

    def embed(self, tokens: Tensor) -> Tensor:
        if self.embed_tokens is None:
            return super().embed(tokens)
        return self.embed_tokens(tokens.clamp(0, self.sizes.tokens - 1))

    def loss(self, pairs: Pairs) -> Tensor:
        """Return the cross entropy with the target's own distribution."""
        with torch.no_grad():
            wanted = self.read_out(pairs.choosing)[..., self.spoken].softmax(-1)
        counts = pairs.is_token & torch.isin(pairs.tokens, self.spoken)
        total = wanted.new_zeros(())
        for step, made in enumerate(self.steps(pairs, self.options["unroll"])):
            trained = counts[:, step:]
            each = -(wanted[:, step:] * log_softmax(self.logits_of(made))).sum(-1)
            total = total + _STEP_DECAY**step * (each * trained).sum() / trained.sum().clamp(min=1)
        return total

    def logits(self, pairs: Pairs) -> Tensor:
        """Return (b, t, vocabulary), with the lowest number for tokens that it does not write."""
        found = self.logits_of(next(self.steps(pairs, 1)))
        all_tokens = found.new_full((*found.shape[:-1], self.sizes.tokens), torch.finfo(found.dtype).min)
        return all_tokens.index_copy(-1, self.spoken, found)

    def features(self, states: Tensor, taps: Tensor | None) -> Tensor:
        assert taps is not None
        taps = self.input_norm(taps.to(self.dtype))
        if self.fc_norm:
            parts = zip(self.fc_norm, taps.chunk(len(self.fc_norm), -1), strict=True)
            taps = torch.cat([norm(part) for norm, part in parts], -1)
        return self.fc(taps)

    def layer_output(self, embeds: Tensor, features: Tensor, **attention: Any) -> Tensor:
        layer: Any = self.layers[0]
        hidden = layer.hidden_norm(features)
        inputs = torch.cat([layer.input_layernorm(embeds), hidden], -1)
        attended, _ = layer.self_attn(hidden_states=inputs, **attention)
        made = attended + (hidden if self.flags["norm_before_residual"] else features)
        made = made + layer.mlp(layer.post_attention_layernorm(made))
        return self.norm(made) if self.flags["norm_output"] else made

    def logits_of(self, made: Tensor) -> Tensor:
        return self.lm_head(made if self.flags["norm_output"] else self.norm(made)).float()


def tapped_layers(layers: int) -> tuple[int, int, int]:
    """Return a low, a middle and a high layer: EAGLE-3's 2, L / 2 and L - 3, or the nearest ones."""
    return (2, layers // 2, layers - 3) if layers >= 8 else (1, layers // 2, layers - 1)


def speculators_options(values: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return the options of an EAGLE-3 head of vllm-project/speculators, and rename its tensors as here.

    There, layer i of `eagle_aux_hidden_state_layer_ids` is the input of decoder layer i.
    """
    if (algorithm := values["speculators_model_type"]) != "eagle3":
        raise ValueError(f"its algorithm is {algorithm!r}")
    for name in list(tensors):
        tensor = tensors.pop(name)
        # Older files name the layer otherwise. The rest is the verifier's or follows from d2t.
        if not name.startswith(("verifier_", "t2d")):
            tensors[name.replace("midlayer.", "layers.0.")] = tensor
    size = values["draft_vocab_size"]
    # A layer without a name is a qwen3's.
    layer = {"model_type": "qwen3", **values["transformer_layer_config"]}
    d2t = tensors.setdefault("d2t", torch.zeros(size, dtype=torch.long))
    ids = d2t + torch.arange(len(d2t))
    if int(ids.min()) < 0 or int(ids.max()) >= layer["vocab_size"]:
        raise ValueError("'d2t' leads out of its vocabulary")
    return {
        "layer": layer,
        "draft_vocabulary": size,
        "taps": values.get("eagle_aux_hidden_state_layer_ids") or (),
        "own_embeddings": "embed_tokens.weight" in tensors,
        **{name: bool(values.get(name)) for name in _FLAGS},
    }
