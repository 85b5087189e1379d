"""EAGLE-3's arithmetic written out row by row, in float64 and without a cache; random pairs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from crossspec_lab.heads.eagle import Eagle
from crossspec_lab.heads.head import IGNORED, Pairs, Sizes
from torch import Tensor
from torch.nn import functional as F
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

QWEN3 = {
    "model_type": "qwen3",
    "hidden_size": 192,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_hidden_layers": 1,
    "vocab_size": 577,
}
"""Layer of a head, other than the default llama's."""


def random_pairs(sizes: Sizes, lengths: Sequence[int] = (9, 6, 3), question: int = 5, taps: int = 3) -> Pairs:
    """Return random responses of these lengths to a question of `question` tokens."""
    b, t = len(lengths), max(lengths)
    tokens = torch.randint(0, sizes.tokens, (b, t))
    for row, length in zip(tokens, lengths, strict=True):
        row[length:] = IGNORED
    mask = torch.ones(b, 32, dtype=torch.bool)
    mask[1, 28:] = False
    rows = question - 1 + t
    return Pairs(
        tokens=tokens,
        question=torch.randint(0, sizes.tokens, (question,)),
        # So large that the target is sure of its next token.
        states=6 * torch.randn(b, rows, sizes.width),
        taps=torch.randn(b, rows, taps * sizes.width),
        frames=torch.randn(b, 32, sizes.width),
        frame_mask=mask,
        units=(4,) * 8,
    )


class PlainEagle:
    """The outputs of a head for rows of one window."""

    def __init__(self, head: Eagle) -> None:
        self._head, self._flags, self._layer = head, head.flags, head.config
        self.weights = {name: one.double() for name, one in head.state_dict().items()}

    def features(self, taps: Tensor) -> Tensor:
        """Return (n, width) features of the target's rows."""
        taps = taps.double()
        if self._flags["norm_before_fc"]:
            taps = self._norm(taps, "input_norm")
        if self._flags["fc_norm"]:
            parts = taps.chunk(len(self._head.taps), -1)
            taps = torch.cat([self._norm(part, f"fc_norm.{i}") for i, part in enumerate(parts)], -1)
        return taps @ self.weights["fc.weight"].T

    def chain(self, following: Sequence[int], rows: Tensor, drafted: Sequence[int]) -> Tensor:
        """Return the (width,) output after `drafted`, which come after `rows` of features.

        Each row comes before its own `following` token.
        """
        embeds = self._head.embed(torch.tensor(following)).double()
        for token in (*drafted, None):
            made = self._last(embeds, rows)
            if token is not None:
                embeds = torch.cat([embeds, self._head.embed(torch.tensor([token])).double()])
                rows = torch.cat([rows, made[None]])
        return made

    def log_probs(self, made: Tensor) -> Tensor:
        """Return (draft vocabulary,) log probabilities."""
        normed = made if self._flags["norm_output"] else self._norm(made, "norm")
        return (self.weights["lm_head.weight"] @ normed).log_softmax(-1)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self._layer.rms_norm_eps)

    def _last(self, embeds: Tensor, features: Tensor) -> Tensor:
        """Return the (width,) output of the last row."""
        weights, at = self.weights, "layers.0."
        normed = self._norm(features, at + "hidden_norm")
        residual = normed if self._flags["norm_before_residual"] else features
        read = torch.cat([self._norm(embeds, at + "input_layernorm"), normed], -1)
        made = residual[-1] + self._attended(read) @ weights[at + "self_attn.o_proj.weight"].T
        inner = self._norm(made, at + "post_attention_layernorm")
        gate, up, down = (weights[f"{at}mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        made = made + down @ (F.silu(gate @ inner) * (up @ inner))
        return self._norm(made, "norm") if self._flags["norm_output"] else made

    def _attended(self, read: Tensor) -> Tensor:
        """Return what the last row attends to."""
        at, size = "layers.0.self_attn.", self._layer.head_dim
        q, k, v = (
            (read @ self.weights[f"{at}{name}_proj.weight"].T).unflatten(-1, (-1, size)) for name in "qkv"
        )
        if self._layer.model_type == "qwen3":
            q, k = self._norm(q, at + "q_norm"), self._norm(k, at + "k_norm")
        turn = LlamaRotaryEmbedding(self._layer)(read, torch.arange(len(read))[None])
        q, k, v = (one.transpose(0, 1)[None] for one in (q, k, v))
        q, k = apply_rotary_pos_emb(q, k, *turn)
        return F.scaled_dot_product_attention(q[:, :, -1:], k, v, enable_gqa=True).flatten()
