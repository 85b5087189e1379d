"""The algorithm on one page writes the same tokens as `generate`."""

from __future__ import annotations

import random

import pytest
from plain_target import QUESTION, generated

from crossspec_ros.engine import reference
from crossspec_ros.engine.reference import Tree
from crossspec_ros.models.preprocess import clip_pixels


def chain(tokens):
    return Tree(tuple(tokens), tuple(range(-1, len(tokens) - 1)))


def nothing(wanted):
    return lambda tokens: Tree()


def everything(wanted):
    """Drafts the right tokens to the end, and further tokens."""
    return lambda tokens: chain([*wanted[len(tokens) :], 7, 7])


def random_trees(wanted):
    """Drafts trees of any shape, in which some tokens are right."""
    rng = random.Random(5)

    def propose(tokens):
        parents = [rng.randrange(max(-1, i - 4), i) for i in range(rng.randrange(16))]
        depths = []
        for parent in parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        rest = [*wanted[len(tokens) :], *range(3, 20)]
        return Tree([rest[d] if rng.random() < 0.7 else rng.randrange(3, 40) for d in depths], parents)

    return propose


def page(pair, window, propose, limit):
    pixels = clip_pixels(window.frames, pair.target.spec.image_size)
    prompt = pair.target.prompt_ids(QUESTION)
    tokens, passes = reference.caption(pair.target.module, pixels, prompt, propose, limit)
    return tuple(tokens), passes


@pytest.mark.parametrize("proposer", [nothing, everything, random_trees])
def test_page_equals_generate(pair, windows, proposer):
    for window, limit in ((windows[0], 64), (windows[1], 9), (windows[2], 1)):
        wanted = generated(pair, window, limit)
        assert page(pair, window, proposer(wanted), limit)[0] == wanted


def test_right_draft_takes_one_pass(pair, windows):
    wanted = generated(pair, windows[0])
    assert page(pair, windows[0], everything(wanted), 64) == (wanted, 1)
    assert page(pair, windows[0], nothing(wanted), 64) == (wanted, len(wanted))
