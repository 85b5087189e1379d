"""EAGLE: one decoder layer that drafts the target's next features, token by token.

Version 2 (Li et al., 2024) predicts the last hidden states, which the target's own head reads; version 3 (Li
et al., 2025) reads three of the target's layers and has a head of its own over a draft vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import gcd
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import DynamicCache, LlamaConfig, Qwen3Config
from transformers.cache_utils import Cache
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer

from crossspec_lab.heads.growing import grow_dynamic, log_softmax
from crossspec_lab.heads.head import Pairs, Sizes, StateHead, scaled
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.kv import KVRow, RowCache
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.errors import one_line
from crossspec_ros.models.base import to_device

NODES = 60
"""The most in a tree, EAGLE-2's."""
_STEP_DECAY = 0.8
"""The weight of a step's loss, of that before it; EAGLE-3's."""
_TOKEN_WEIGHT = 0.1
"""Weight of the cross entropy beside version 2's regression."""
_CAPACITY = 512
_LAYERS: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaDecoderLayer),
    "qwen3": (Qwen3Config, Qwen3DecoderLayer),
}

_OF_VERSION_3 = (
    "draft_vocabulary",
    "taps",
    "norm_before_residual",
    "norm_before_fc",
    "fc_norm",
    "norm_output",
    "own_embeddings",
)


@dataclass(frozen=True)
class Options:
    """Options of an EAGLE head in its config; `_OF_VERSION_3` names what is for that alone."""

    version: int = 3
    unroll: int = 1
    """Steps of training-time test: its own outputs are fed back so many times less one."""
    layer: Mapping[str, Any] = field(default_factory=dict)
    """transformers' config of the decoder layer, a llama's or a qwen3's; empty is `usual_layer`."""
    draft_vocabulary: int = 0
    """Number of the target's tokens that it can say; 0 is all."""
    taps: Sequence[int] = field(default_factory=list)
    """The target's layers that it reads; empty is `tapped_layers`."""
    norm_before_residual: bool = False
    """The layer adds to the normed feature, and not to the feature itself."""
    norm_before_fc: bool = False
    """The layers' inputs are normed together."""
    fc_norm: bool = False
    """Each of them is normed alone."""
    norm_output: bool = False
    """Features that are fed back are normed, as those that are read out are."""
    own_embeddings: bool = False
    """Embeddings of its own take the place of the target's."""

    def __post_init__(self) -> None:
        if self.version not in (2, 3):
            raise ValueError(f"there is no version {self.version}")
        if self.norm_before_fc and self.fc_norm:
            raise ValueError("norm_before_fc and fc_norm exclude each other")
        if self.version == 2 and any(getattr(self, name) for name in _OF_VERSION_3):
            raise ValueError("version 2 reads the last hidden states and speaks with the target's head")


class Eagle(StateHead):
    """At the row of token x_j it reads the target's feature there and x_{j+1}; its output tells x_{j+2}.

    It sees the question and the response; of the frames no more than what `_compressed` makes of them.
    """

    kind = "eagle"

    def __init__(self, sizes: Sizes, **options: Any) -> None:
        chosen = Options(**options)
        chosen = replace(chosen, layer=chosen.layer or usual_layer(sizes))
        if chosen.version == 3:
            chosen = replace(chosen, taps=chosen.taps or list(tapped_layers(sizes.layers)))
        super().__init__(sizes, **asdict(chosen))
        width, config, self.chosen = sizes.width, layer_config(chosen.layer), chosen
        if config.hidden_size != width:
            raise ValueError(f"its layer is {config.hidden_size} wide, but the target {width}")
        self.input_norm: nn.Module | None = None
        self.fc_norm: nn.ModuleList | None = None
        self.d2t: Tensor | None
        self.t2d: Tensor | None
        self.register_buffer("d2t", None)
        self.register_buffer("t2d", None)
        if chosen.version == 2:
            self.fc = nn.Linear(2 * width, width)
        else:
            self._set_up(width, len(chosen.taps), config.rms_norm_eps)
        self.layers = nn.ModuleList([_decoder_layer(config, is_double=chosen.version == 3)])
        # Not registered: rounded with the weights, its frequencies would be others.
        self._rotary = (LlamaRotaryEmbedding(config),)
        self.begin()

    def _set_up(self, width: int, taps: int, eps: float) -> None:
        """Make the parts of version 3 beside its layer, with the names of vllm-project/speculators."""
        chosen, tokens = self.chosen, self.sizes.tokens
        self.taps = tuple(chosen.taps)
        self.fc = nn.Linear(taps * width, width, bias=False)
        if chosen.norm_before_fc:
            self.input_norm = LlamaRMSNorm(taps * width, eps=eps)
        if chosen.fc_norm:
            self.fc_norm = nn.ModuleList(LlamaRMSNorm(width, eps=eps) for _ in range(taps))
        self.norm = LlamaRMSNorm(width, eps=eps)
        self.lm_head = nn.Linear(width, chosen.draft_vocabulary or tokens, bias=False)
        if chosen.own_embeddings:
            self.embed_tokens = nn.Embedding(tokens, width)
        if chosen.draft_vocabulary:
            self.d2t = torch.zeros(chosen.draft_vocabulary, dtype=torch.long)
            self.t2d = torch.zeros(tokens, dtype=torch.bool)
            self.speak(torch.arange(chosen.draft_vocabulary))

    def speak(self, tokens: Tensor) -> None:
        """Let the draft vocabulary be these different (draft vocabulary,) ids of the target's tokens."""
        assert self.d2t is not None and self.t2d is not None
        ids = tokens.to(self.d2t.device).sort().values
        self.d2t.copy_(ids - torch.arange(len(ids), device=ids.device))
        self.t2d.zero_()[ids] = True

    @property
    def spoken(self) -> Tensor:
        """The target's ids of all tokens that it can say."""
        size = self.chosen.draft_vocabulary or self.sizes.tokens
        return self._as_target(torch.arange(size, device=self.fc.weight.device))

    def embed(self, tokens: Tensor) -> Tensor:
        """The target's embeddings, or its own where it brought some."""
        if not self.chosen.own_embeddings:
            return super().embed(tokens)
        return self.embed_tokens(tokens.clamp(0, self.sizes.tokens - 1))

    def loss(self, pairs: Pairs) -> Tensor:
        """Cross entropy with the target's own distribution, and for version 2 smooth L1 of the features."""
        with torch.no_grad():
            wanted = self.read_out(pairs.choosing)
            wanted = (wanted if self.d2t is None else wanted[..., self.spoken]).softmax(-1)
        counts = pairs.is_token
        if self.t2d is not None:
            counts = counts & self.t2d[pairs.tokens.clamp(min=0)]
        total = wanted.new_zeros(())
        for step, features in enumerate(self._steps(pairs, self.chosen.unroll)):
            found, trained = self._speech(features), counts[:, step:]
            each = -(wanted[:, step:] * log_softmax(found)).sum(-1)
            if self.chosen.version == 2:
                far = F.smooth_l1_loss(features, pairs.choosing[:, step:].to(self.dtype), reduction="none")
                each = far.mean(-1) + _TOKEN_WEIGHT * each
            total = total + _STEP_DECAY**step * (each * trained).sum() / trained.sum().clamp(min=1)
        return total

    def logits(self, pairs: Pairs) -> Tensor:
        """(b, t, vocabulary); the lowest number for tokens that it cannot say."""
        found = self._speech(next(self._steps(pairs, 1)))
        if self.d2t is None:
            return found
        all_tokens = found.new_full((*found.shape[:-1], self.sizes.tokens), torch.finfo(found.dtype).min)
        return all_tokens.index_copy(-1, self.spoken, found)

    def predicted(self, pairs: Pairs) -> Tensor | None:
        """(b, t, width) that version 2 takes for the states from which the target chooses each token."""
        return next(self._steps(pairs, 1)) if self.chosen.version == 2 else None

    def begin(self) -> None:
        self._row = KVRow(1, _CAPACITY)
        self._unread: list[tuple[tuple[int, ...], Tensor, Tensor | None]] = []
        self._verified = 0
        # What it made of the last row that it has read.
        self._root: Tensor | None = None

    def read(self, following: tuple[int, ...], states: Tensor, taps: Tensor | None) -> None:
        """Only kept: before the first row come the frames, which are not known here."""
        self._unread.append((following, states, taps))

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        """EAGLE-2's dynamic tree; what it made of a node is the feature that the node's children read."""
        if self._unread:
            self._catch_up(context.frames)
        if self._root is None or budget <= 0:
            return DraftTree()
        self._row.keep(self._verified)
        made, above = self._root[None], list[list[int]]()

        def extend(ids: Sequence[int], parents: Sequence[int]) -> Tensor:
            nonlocal made
            nodes, before = len(ids), len(above)
            for parent in parents:
                above.append([*(above[parent] if parent >= 0 else []), len(above)])
            seen = np.zeros((nodes, self._verified + before + nodes), bool)
            seen[:, : self._verified] = True
            for row, path in enumerate(above[before:]):
                seen[row, [self._verified + node for node in path]] = True
            places = torch.tensor([self._verified + len(path) - 1 for path in above[before:]])
            embeds = self.embed(self._as_target(self._on_device(torch.tensor(ids))))
            features = made[self._on_device(torch.tensor(parents) + 1)]
            mask = torch.from_numpy(seen)
            (found,) = self._append(embeds, features, places, mask)
            made = torch.cat([made, found])
            return log_softmax(self._speech(found))

        first = log_softmax(self._speech(self._root))
        guess = grow_dynamic(first, extend, min(budget, NODES), min_prob)
        if self.d2t is None:
            return guess
        ids = self._as_target(self._on_device(torch.tensor(guess.token_ids, dtype=torch.long)))
        return DraftTree(tuple(ids.tolist()), guess.parents, guess.probs)

    def _catch_up(self, frames: tuple[Tensor, ...]) -> None:
        """Take what the target has read into the cache."""
        following = [token for tokens, _, _ in self._unread for token in tokens]
        states = torch.cat([states for _, states, _ in self._unread])
        tapped = [taps for _, _, taps in self._unread if taps is not None]
        embeds = self.embed(self._on_device(torch.tensor(following)))
        features = self._features(states, torch.cat(tapped) if tapped else None)
        if "frames" in self.needs and not self._verified:
            seen = torch.cat(frames)[None]
            compressed = self._compressed(seen, torch.ones_like(seen[..., 0], dtype=torch.bool))[0]
            embeds, features = torch.cat([compressed, embeds]), torch.cat([compressed, features])
        self._unread.clear()
        self._row.keep(self._verified)
        end = self._verified + len(embeds)
        places = torch.arange(self._verified, end)
        mask = torch.ones(len(embeds), end, dtype=torch.bool).tril(self._verified)
        (made,) = self._append(embeds, features, places, mask)
        self._root, self._verified = made[-1], end

    def _append(self, embeds: Tensor, features: Tensor, places: Tensor, seen: Tensor) -> Tensor:
        """See `_forward`; what it reads stays in the cache."""
        begin, end = self._row.length, self._row.length + len(embeds)
        cache = RowCache(self._row, slice(begin, end), end)
        made = self._forward(embeds[None], features[None], places, seen, cache)
        self._row.length = end
        return made

    def _steps(self, pairs: Pairs, unroll: int) -> Iterator[Tensor]:
        """(b, t - s, width) of each step s, whose i-th row tells token s + i of the responses.

        Row i drafts from where the target has read all before token i - 1. In step 0 its feature is the
        target's, in later ones its own of the step before, as in a chain that it drafts.
        """
        batch, t = pairs.tokens.shape
        following = torch.cat([pairs.question[1:].expand(batch, -1), pairs.tokens], 1)[:, :-1]
        embeds = self.embed(following)
        features = self._features(pairs.states[:, :-1], pairs.taps[:, :-1])
        if "frames" in self.needs:
            compressed = self._compressed(pairs.frames, pairs.frames_seen)
            embeds, features = torch.cat([compressed, embeds], 1), torch.cat([compressed, features], 1)
        begin = embeds.shape[1] - t
        cache = DynamicCache()
        seen = torch.ones(begin + t, begin + t, dtype=torch.bool).tril()
        made = self._forward(embeds, features, torch.arange(begin + t), seen, cache)[:, begin:]
        yield made
        seen = seen[begin:]
        for step in range(1, min(unroll, t)):
            left = t - step
            # Of the steps before, a row sees what it drafted itself.
            seen = torch.cat([seen[:left], torch.eye(left, dtype=torch.bool)], 1)
            embeds = self.embed(pairs.tokens[:, step - 1 : -1])
            places = torch.arange(begin + step, begin + t)
            made = self._forward(embeds, made[:, :left], places, seen, cache)
            yield made

    def _forward(
        self, embeds: Tensor, features: Tensor, places: Tensor, seen: Tensor, cache: Cache
    ) -> Tensor:
        """Output (b, n, width) for embeddings and features (b, n, width).

        Args:
            places: (n,) positions, on the host.
            seen: (n, cached + n) bool, on the host.
        """
        layer: Any = self.layers[0]
        mask = self._on_device(seen)[None, None]
        rotation = self._rotary[0](features, self._on_device(places)[None])
        if self.chosen.version == 2:
            joined = self.fc(torch.cat([embeds, features], -1))
            return layer(joined, attention_mask=mask, past_key_values=cache, position_embeddings=rotation)
        hidden = layer.hidden_norm(features)
        attended, _ = layer.self_attn(
            hidden_states=torch.cat([layer.input_layernorm(embeds), hidden], -1),
            attention_mask=mask,
            past_key_values=cache,
            position_embeddings=rotation,
        )
        made = attended + (hidden if self.chosen.norm_before_residual else features)
        made = made + layer.mlp(layer.post_attention_layernorm(made))
        return self.norm(made) if self.chosen.norm_output else made

    def _features(self, states: Tensor, taps: Tensor | None) -> Tensor:
        """(..., width) of the target's rows."""
        if self.chosen.version == 2:
            return states.to(self.dtype)
        assert taps is not None
        taps = taps.to(self.dtype)
        if self.input_norm is not None:
            taps = self.input_norm(taps)
        if self.fc_norm is not None:
            parts = taps.chunk(len(self.fc_norm), -1)
            taps = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], -1)
        return self.fc(taps)

    def _compressed(self, frames: Tensor, seen: Tensor) -> Tensor:
        """Give a head that needs frames (b, n, width) rows before the text, of (b, f, width) of them."""
        raise NotImplementedError

    def _speech(self, made: Tensor) -> Tensor:
        """(..., draft vocabulary) logits."""
        if self.chosen.version == 2:
            return self.read_out(made)
        return self.lm_head(made if self.chosen.norm_output else self.norm(made)).float()

    def _as_target(self, ids: Tensor) -> Tensor:
        """The target's ids of draft ids."""
        return ids if self.d2t is None else ids + self.d2t[ids]

    def _on_device(self, values: Tensor) -> Tensor:
        return to_device(values, self.fc.weight.device)


def usual_layer(sizes: Sizes) -> dict[str, Any]:
    """A llama's config for one decoder layer of the target's width."""
    return {
        "model_type": "llama",
        "hidden_size": sizes.width,
        "intermediate_size": scaled(sizes, 11008),
        "num_attention_heads": sizes.width // gcd(sizes.width, 64),
        "num_hidden_layers": 1,
        "vocab_size": sizes.tokens,
    }


def layer_config(values: Mapping[str, Any]) -> Any:
    """transformers' config of a decoder layer; raises ValueError for values that make none."""
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


def _decoder_layer(config: Any, is_double: bool) -> nn.Module:
    """One whose attention reads embedding and feature side by side, where `is_double`."""
    layer = _LAYERS[config.model_type][1](config, 0)
    if is_double:
        for name in ("q_proj", "k_proj", "v_proj"):
            single = getattr(layer.self_attn, name)
            double = nn.Linear(2 * config.hidden_size, single.out_features, bias=single.bias is not None)
            setattr(layer.self_attn, name, double)
        layer.hidden_norm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
    return layer


def tapped_layers(layers: int) -> tuple[int, int, int]:
    """Low, middle and high: EAGLE-3's 2, L / 2 and L - 3, in a shallow model what is nearest to that."""
    return (2, layers // 2, layers - 3) if layers >= 8 else (1, layers // 2, layers - 1)
