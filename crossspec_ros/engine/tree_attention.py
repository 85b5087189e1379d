"""Where the tokens of a pass stand and what each sees: a chain of unread ones, then a draft tree."""

from __future__ import annotations

import torch

from crossspec_ros.engine.tree import DraftTree


def tree_positions(tree: DraftTree, after: int) -> torch.Tensor:
    """The (nodes,) positions of the tree's nodes by their depth; `after` is that of the token before it."""
    return after + torch.tensor(tree.depths(), dtype=torch.long)


def attention_mask(cached: int, unread: int, tree: DraftTree, dtype: torch.dtype) -> torch.Tensor:
    """What each of `unread` tokens and each node sees, as an additive (1, 1, unread + nodes, all) mask.

    It is float, not bool: eager attention in transformers adds what it is given.
    """
    nodes = len(tree)
    seen = torch.ones(unread + nodes, cached + unread + nodes, dtype=torch.bool).tril(cached)
    seen[unread:, cached + unread :] = torch.from_numpy(tree.mask())
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)[None, None]
