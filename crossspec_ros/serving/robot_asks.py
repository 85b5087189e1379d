"""Checks of what a robot asks for: what a target cannot take is refused with a sentence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from crossspec_ros.captioning.caption import MOST_QUESTION, MOST_TEXT
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.wire import captions_pb2 as wire

MOST_NEW_TOKENS = 2048
"""Tokens of an answer."""
MOST_DRAFT = 512
"""Tokens of a draft."""
MOST_NODES = 128
"""Nodes of a tree."""


class Hint:
    """Words of a robot's event draft, in the target's tokens."""

    feature: np.ndarray | None = None
    states: tuple[torch.Tensor, ...] = ()

    def __init__(self) -> None:
        self._said: tuple[tuple[int, ...], tuple[float, ...]] = (), ()

    def take(self, draft: wire.Draft, ids: int) -> None:
        """Take what was said so far in place of what was known; raises InputError for what is no draft in a
        vocabulary of `ids`."""
        if len(draft.token_ids) != len(draft.probs) or len(draft.token_ids) > MOST_DRAFT:
            raise InputError(
                f"a draft has {len(draft.token_ids)} tokens and {len(draft.probs)} probabilities: send as "
                f"many of both, at most {MOST_DRAFT}"
            )
        tokens, probs = tuple(draft.token_ids), tuple(draft.probs)
        if not all(0.0 <= prob <= 1.0 for prob in probs):
            raise InputError("a draft's probabilities are not all between 0 and 1: send the draft's own")
        _check_ids(tokens, ids)
        self._said = tokens, probs

    def proposal(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        return self._said


def check_question(ask: wire.Ask, target: VideoTarget) -> None:
    """Raise InputError for a question, a length or a sampling that the target cannot take."""
    question = ask.question
    if not question.strip() or len(question) > MOST_QUESTION:
        raise InputError(
            f"the question has {len(question)} characters: ask in words, with at most {MOST_QUESTION}"
        )
    used = sum(map(len, target.prompt_ids(question)))
    if used > MOST_TEXT:
        raise InputError(f"the question makes {used} tokens, but at most {MOST_TEXT} are taken: shorten it")
    room = target.spec.most_tokens - target.spec.frame_tokens
    if not 1 <= ask.max_new_tokens <= min(MOST_NEW_TOKENS, room - used):
        raise InputError(
            f"a question of {used} tokens and an answer of {ask.max_new_tokens} are asked for, but the "
            f"target takes {room} beside the frames: shorten them"
        )
    if ask.temperature > 0 and not (ask.temperature <= 100 and 0 < ask.top_p <= 1):
        raise InputError("a temperature is at most 100 and top_p above 0 and at most 1: correct these")
    sampling_of(ask)


def sampling_of(ask: wire.Ask) -> Sampling | None:
    """Sampling of the answer; None for the likeliest tokens."""
    return Sampling(ask.temperature, ask.top_p, ask.seed) if ask.temperature > 0 else None


def tree_of(draft: wire.Draft, ids: int) -> DraftTree:
    """The tree that a robot drafted; raises InputError for what is none in a vocabulary of `ids`."""
    counts = len(draft.token_ids), len(draft.parents), len(draft.probs)
    if len(set(counts)) > 1 or counts[0] > MOST_NODES:
        raise InputError(
            "a tree has {} tokens, {} parents and {} probabilities: send as many of each, at most {}".format(
                *counts, MOST_NODES
            )
        )
    tokens, parents, probs = tuple(draft.token_ids), tuple(draft.parents), tuple(draft.probs)
    if not all(ROOT <= parent < i for i, parent in enumerate(parents)):
        raise InputError("a tree's parents do not come before their children: send them in their order")
    _check_ids(tokens, ids)
    return DraftTree(tokens, parents, probs, (("robot",),) * len(tokens))


def _check_ids(tokens: Sequence[int], ids: int) -> None:
    # An embedding that there is not would end all work on a GPU.
    if wrong := [token for token in tokens if token >= ids]:
        raise InputError(f"a draft has the token id {wrong[0]}, but the target has {ids}: send the target's")
