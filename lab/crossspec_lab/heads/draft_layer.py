"""EAGLE's drafting: one decoder layer predicts the target's next features, token by token."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from math import gcd
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, Qwen3Config
from transformers.cache_utils import Cache
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer

from crossspec_lab.heads.growing import grow_levels, log_softmax
from crossspec_lab.heads.head import Pairs, Sizes, StateHead, scaled
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.kv import KVRow, RowCache
from crossspec_ros.engine.tree import DraftTree, attention_mask
from crossspec_ros.errors import one_line
from crossspec_ros.models.base import to_device

NODES = 60
"""Highest number of nodes of a tree, as in EAGLE-2."""
_CAPACITY = 512
_LAYERS: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaDecoderLayer),
    "qwen3": (Qwen3Config, Qwen3DecoderLayer),
}


class DraftLayer(StateHead):
    """At the row of token x_j the layer reads the target's feature and x_{j+1}; its output predicts x_{j+2}.

    It reads the question and the response, and `with_frames` rows of the frames before these.
    """

    def __init__(self, sizes: Sizes, layer: Mapping[str, Any], **options: Any) -> None:
        super().__init__(sizes, layer=dict(layer), **options)
        self.config = _layer_config(layer)
        for its, own in ((self.config.hidden_size, sizes.width), (self.config.vocab_size, sizes.tokens)):
            if its != own:
                raise ValueError(f"its layer has the size {its}, but the target {own}")
        # In a tuple it is no submodule, and its frequencies stay in float32.
        self._rotary = (LlamaRotaryEmbedding(self.config),)
        self.begin()

    @abstractmethod
    def features(self, states: Tensor, taps: Tensor | None) -> Tensor:
        """Return the (..., width) features of the target's rows."""

    @abstractmethod
    def layer_output(self, embeds: Tensor, features: Tensor, **attention: Any) -> Tensor:
        """Return the (b, n, width) output for embeddings and features; `attention` is for the layer."""

    @abstractmethod
    def logits_of(self, made: Tensor) -> Tensor:
        """Return the (..., draft vocabulary) logits of outputs."""

    def with_frames(
        self, embeds: Tensor, features: Tensor, frames: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return embeddings and features (b, n, width) after rows of the frames (b, f, width) in the mask."""
        return embeds, features

    def token_ids(self, ids: Tensor) -> Tensor:
        """Return the target's ids of ids of the draft vocabulary."""
        return ids

    def begin(self) -> None:
        self._row = KVRow(1, _CAPACITY)
        self._unread: list[tuple[tuple[int, ...], Tensor, Tensor | None]] = []
        self._verified = 0
        # Output of the last row that it has read.
        self._root: Tensor | None = None

    def read(self, following: tuple[int, ...], states: Tensor, taps: Tensor | None) -> None:
        """Keep the states until it drafts, because the frames come before the first row."""
        self._unread.append((following, states, taps))

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        """Return EAGLE-2's dynamic tree; the output of a node is the feature that its children read."""
        if self._unread:
            self._catch_up(context.frames)
        if self._root is None or budget <= 0:
            return DraftTree()
        self._row.keep(self._verified)
        outputs = self._root[None]

        def extend(tree: DraftTree, new: int) -> Tensor:
            nonlocal outputs
            ids, parents = torch.tensor(tree.token_ids[-new:]), torch.tensor(tree.parents[-new:])
            positions = torch.tensor(tree.depths()[-new:]) + self._verified - 1
            mask = torch.from_numpy(attention_mask(self._verified, 0, tree)[-new:])
            features = outputs[self._to_device(parents + 1)]
            embeds = self.embed(self.token_ids(self._to_device(ids)))
            found = self._append(embeds, features, positions, mask)
            outputs = torch.cat([outputs, found])
            return log_softmax(self.logits_of(found))

        first = log_softmax(self.logits_of(self._root))
        tree = grow_levels(first, extend, min(budget, NODES), min_prob)
        ids = self.token_ids(self._to_device(torch.tensor(tree.token_ids, dtype=torch.long)))
        return DraftTree(tuple(ids.tolist()), tree.parents, tree.probs, tree.sources)

    def _catch_up(self, frames: tuple[Tensor, ...]) -> None:
        """Read the rows that the target has read."""
        following = [token for tokens, _, _ in self._unread for token in tokens]
        states = torch.cat([states for _, states, _ in self._unread])
        taps = torch.cat([taps for *_, taps in self._unread]) if self.taps else None  # type: ignore[misc]
        embeds = self.embed(self._to_device(torch.tensor(following)))[None]
        features = self.features(states, taps)[None]
        if not self._verified and "frames" in self.needs:
            rows = torch.cat(frames)[None]
            mask = torch.ones_like(rows[..., 0], dtype=torch.bool)
            embeds, features = self.with_frames(embeds, features, rows, mask)
        self._unread.clear()
        self._row.keep(self._verified)
        end = self._verified + embeds.shape[1]
        positions = torch.arange(self._verified, end)
        mask = torch.ones(len(positions), end, dtype=torch.bool).tril(self._verified)
        self._root = self._append(embeds[0], features[0], positions, mask)[-1]
        self._verified = end

    def _append(self, embeds: Tensor, features: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """Return the outputs (n, width) of rows, which stay in the KV cache; see `_forward`."""
        begin, end = self._row.length, self._row.length + len(embeds)
        cache = RowCache(self._row, slice(begin, end), end)
        made = self._forward(embeds[None], features[None], positions, mask, cache)
        self._row.length = end
        return made[0]

    def steps(self, pairs: Pairs, unroll: int) -> Iterator[Tensor]:
        """Yield (b, t - s, width) of each step s; its row i predicts token s + i of the responses.

        Row i drafts where the target has read all tokens before i - 1. Its feature is the target's in step 0.
        In later steps it is the output of the step before, as in a chain that it drafts.
        """
        batch, t = pairs.tokens.shape
        following = torch.cat([pairs.question[1:].expand(batch, -1), pairs.tokens], 1)[:, :-1]
        features = self.features(pairs.states[:, :-1], pairs.taps[:, :-1])
        embeds, features = self.with_frames(self.embed(following), features, pairs.frames, pairs.frame_mask)
        begin = embeds.shape[1] - t
        cache = DynamicCache()
        mask = torch.ones(begin + t, begin + t, dtype=torch.bool).tril()
        made = self._forward(embeds, features, torch.arange(begin + t), mask, cache)[:, begin:]
        yield made
        mask = mask[begin:]
        for step in range(1, min(unroll, t)):
            left = t - step
            # A row attends to its own outputs of the steps before.
            mask = torch.cat([mask[:left], torch.eye(left, dtype=torch.bool)], 1)
            embeds, positions = (
                self.embed(pairs.tokens[:, step - 1 : -1]),
                torch.arange(begin + step, begin + t),
            )
            made = self._forward(embeds, made[:, :left], positions, mask, cache)
            yield made

    def _forward(
        self, embeds: Tensor, features: Tensor, positions: Tensor, mask: Tensor, cache: Cache
    ) -> Tensor:
        """Return the output (b, n, width) for embeddings and features (b, n, width).

        Args:
            positions: (n,), on the host.
            mask: (n, cached + n) bool, on the host.
        """
        rotation = self._rotary[0](features, self._to_device(positions)[None])
        return self.layer_output(
            embeds,
            features,
            attention_mask=self._to_device(mask)[None, None],
            past_key_values=cache,
            position_embeddings=rotation,
        )

    def _to_device(self, values: Tensor) -> Tensor:
        return to_device(values, self.device)


def default_layer(sizes: Sizes) -> dict[str, Any]:
    """Return a llama's config for one decoder layer of the target's width."""
    return {
        "model_type": "llama",
        "hidden_size": sizes.width,
        "intermediate_size": scaled(sizes, 11008),
        "num_attention_heads": sizes.width // gcd(sizes.width, 64),
        "num_hidden_layers": 1,
        "vocab_size": sizes.tokens,
    }


def make_layer(config: Any) -> Any:
    """Return a decoder layer."""
    return _LAYERS[config.model_type][1](config, 0)


def _layer_config(values: Mapping[str, Any]) -> Any:
    """Return transformers' config of a decoder layer; raise ValueError for invalid values."""
    kind = values.get("model_type")
    if kind not in _LAYERS:
        raise ValueError(f"a decoder layer is one of {', '.join(_LAYERS)}, and not {kind!r}")
    try:
        config = _LAYERS[kind][0](**values)
    # transformers' validation raises errors of its own kinds.
    except Exception as error:
        raise ValueError(one_line(error)) from error
    config._attn_implementation = "sdpa"
    return config
