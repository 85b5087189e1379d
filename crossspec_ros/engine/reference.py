"""The algorithm on one page: plain torch and transformers, one window, one thread, greedy decoding.

Open this file first. All else in `engine/` writes the same tokens sooner: it reads frames while the window is
open, keeps keys and values in buffers that stay where they are, and lets robots share passes. Tests hold
this page and the engine against `generate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache


class Tree(NamedTuple):
    """Guessed continuations: `parents[i] < i` is the node before node i, -1 the last verified token."""

    tokens: Sequence[int] = ()
    parents: Sequence[int] = ()


@torch.inference_mode()
def caption(
    model: Any,
    pixels: torch.Tensor,
    prompt: tuple[Sequence[int], Sequence[int]],
    propose: Callable[[Sequence[int]], Tree],
    max_new_tokens: int,
) -> tuple[list[int], int]:
    """Tokens of a VideoLlavaForConditionalGeneration about a window, and passes behind the last frame.

    Args:
        pixels: (frames, 3, height, width), preprocessed.
        prompt: token ids before and after the frames.
        propose: guesses how the tokens so far go on; it may be as wrong as it likes.
    """
    embed, cache = model.get_input_embeddings(), DynamicCache()
    before, after = prompt
    # Streaming prefill: the language model is causal, so each frame is read the moment it comes.
    read(model, cache, embed(torch.tensor(before)), Tree())
    for frame in pixels:
        features = model.model.get_video_features(frame[None, None]).pooler_output
        read(model, cache, features.flatten(0, -2), Tree())

    tokens: list[int] = []
    passes, unread = 0, list(after)
    end = model.generation_config.eos_token_id
    while len(tokens) < max_new_tokens:
        # Question and first tree share a pass; later ones read the last token and a tree.
        tree = propose(tokens)
        hidden = read(model, cache, embed(torch.tensor([*unread, *tree.tokens])), tree)
        choices = model.lm_head(hidden[len(unread) - 1 :]).argmax(-1).tolist()
        path, following = accept(tree, choices)
        keep(cache, len(tree.tokens), path)
        said = [*(tree.tokens[node] for node in path), following][: max_new_tokens - len(tokens)]
        passes, unread = passes + 1, [following]
        if end in said:
            return tokens + said[: said.index(end) + 1], passes
        tokens += said
    return tokens, passes


def read(model: Any, cache: Any, embeds: torch.Tensor, tree: Tree) -> torch.Tensor:
    """Last hidden states (n, width) of `embeds`, which go into the cache; the last ones are the tree's nodes.

    A node stands one place behind its parent, and sees what was verified, its ancestors and itself.
    """
    cached, n, nodes = cache.get_seq_length(), len(embeds), len(tree.tokens)
    root = n - nodes - 1
    seen = torch.ones(n, cached + n, dtype=torch.bool).tril(cached)
    places = torch.arange(cached, cached + n)
    for node, parent in enumerate(tree.parents):
        row, above = root + 1 + node, root + 1 + parent
        seen[row, cached + root + 1 :] = False
        seen[row] |= seen[above]
        seen[row, cached + row] = True
        places[row] = places[above] + 1
    # Additive and float: eager attention adds what it is given.
    mask = torch.zeros(seen.shape, dtype=embeds.dtype).masked_fill(~seen, torch.finfo(embeds.dtype).min)
    return model.model.language_model(
        inputs_embeds=embeds[None],
        attention_mask=mask[None, None],
        position_ids=places[None],
        past_key_values=cache,
    ).last_hidden_state[0]


def accept(tree: Tree, choices: Sequence[int]) -> tuple[list[int], int]:
    """Longest path from the root that the target would have written, and its own token after that.

    `choices[0]` is the target's token after the root, `choices[1 + i]` the one after node i.
    """
    path, node = list[int](), -1
    while True:
        wanted = choices[1 + node]
        children = (i for i, parent in enumerate(tree.parents) if parent == node)
        node = next((child for child in children if tree.tokens[child] == wanted), -1)
        if node < 0:
            return path, wanted
        path.append(node)


def keep(cache: Any, nodes: int, path: Sequence[int]) -> None:
    """Forget the keys and values of a tree's nodes, all but those of the accepted path."""
    verified = cache.get_seq_length() - nodes
    kept = torch.tensor([*range(verified), *(verified + node for node in path)])
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[:, :, kept], layer.values[:, :, kept]
