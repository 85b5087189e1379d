"""The algorithm on one page: plain torch and transformers, one window, one thread, greedy decoding.

Read this file first. The rest of `engine/` writes the same tokens faster: it prefills frames while the window
is open, keeps keys and values in fixed buffers, and shares passes among robots. Tests compare this page and
the engine with transformers' `generate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache


class Tree(NamedTuple):
    """Draft tokens as a tree: `parents[i] < i` is the node before node i, -1 the last verified token."""

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
    """Return the caption's tokens, and the number of passes after the last frame.

    Args:
        model: a VideoLlavaForConditionalGeneration.
        pixels: (frames, 3, height, width), preprocessed.
        prompt: token ids before and after the frames.
        propose: returns a draft tree for the tokens so far. Wrong trees cost passes and change no token.
        max_new_tokens: largest number of tokens.
    """
    embed, cache = model.get_input_embeddings(), DynamicCache()
    before, after = prompt
    # Streaming prefill: the language model is causal, so it can read each frame as soon as it arrives.
    read(model, cache, embed(torch.tensor(before)), Tree())
    for frame in pixels:
        features = model.model.get_video_features(frame[None, None]).pooler_output
        read(model, cache, features.flatten(0, -2), Tree())

    tokens: list[int] = []
    passes, unread = 0, list(after)
    end = model.generation_config.eos_token_id
    while len(tokens) < max_new_tokens:
        # The first pass reads the question and a tree, the others read the last token and a tree.
        tree = propose(tokens)
        hidden = read(model, cache, embed(torch.tensor([*unread, *tree.tokens])), tree)
        choices = model.lm_head(hidden[len(unread) - 1 :]).argmax(-1).tolist()
        path, following = accept(tree, choices)
        keep(cache, len(tree.tokens), path)
        new = [*(tree.tokens[node] for node in path), following][: max_new_tokens - len(tokens)]
        passes, unread = passes + 1, [following]
        if end in new:
            return tokens + new[: new.index(end) + 1], passes
        tokens += new
    return tokens, passes


def read(model: Any, cache: Any, embeds: torch.Tensor, tree: Tree) -> torch.Tensor:
    """Append `embeds` to the cache, and return their last hidden states (n, width).

    The last embeddings are the tree's nodes. The position of a node is one after its parent. A node attends
    to verified tokens, its ancestors and itself.
    """
    cached, n, nodes = cache.get_seq_length(), len(embeds), len(tree.tokens)
    root = n - nodes - 1
    attends = torch.ones(n, cached + n, dtype=torch.bool).tril(cached)
    positions = torch.arange(cached, cached + n)
    for node, parent in enumerate(tree.parents):
        row, above = root + 1 + node, root + 1 + parent
        attends[row, cached + root + 1 :] = False
        attends[row] |= attends[above]
        attends[row, cached + row] = True
        positions[row] = positions[above] + 1
    # Additive and float, because eager attention adds the mask to the scores.
    mask = torch.zeros(attends.shape, dtype=embeds.dtype).masked_fill(~attends, torch.finfo(embeds.dtype).min)
    return model.model.language_model(
        inputs_embeds=embeds[None],
        attention_mask=mask[None, None],
        position_ids=positions[None],
        past_key_values=cache,
    ).last_hidden_state[0]


def accept(tree: Tree, choices: Sequence[int]) -> tuple[list[int], int]:
    """Return the longest path that matches the target's own tokens, and the bonus token after it.

    `choices[0]` is the target's token after the root, `choices[1 + i]` its token after node i.
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
    """Remove the keys and values of the tree's nodes, except those of the accepted path."""
    verified = cache.get_seq_length() - nodes
    kept = torch.tensor([*range(verified), *(verified + node for node in path)])
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[:, :, kept], layer.values[:, :, kept]
