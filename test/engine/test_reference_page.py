"""The algorithm on one page writes what `generate` writes, and so what the engine writes."""

from __future__ import annotations

import random

import pytest
from plain_target import QUESTION, generated

from crossspec_ros.engine import reference
from crossspec_ros.engine.reference import Tree
from crossspec_ros.models.preprocess import clip_pixels


def chain(tokens):
    return Tree(tuple(tokens), tuple(range(-1, len(tokens) - 1)))


def nobody(wanted):
    return lambda said: Tree()


def prophet(wanted):
    """Knows all, the end and what would stand behind it."""
    return lambda said: chain([*wanted[len(said) :], 7, 7])


def bushy(wanted):
    """Trees of any shape, with the right token among wrong siblings now and then."""
    rng = random.Random(5)

    def propose(said):
        parents = [rng.randrange(max(-1, i - 4), i) for i in range(rng.randrange(16))]
        depths = []
        for parent in parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        rest = [*wanted[len(said) :], *range(3, 20)]
        return Tree([rest[d] if rng.random() < 0.7 else rng.randrange(3, 40) for d in depths], parents)

    return propose


def page(pair, window, propose, limit):
    pixels = clip_pixels(window.frames, pair.target.spec.image_size)
    prompt = pair.target.prompt_ids(QUESTION)
    tokens, passes = reference.caption(pair.target.module, pixels, prompt, propose, limit)
    return tuple(tokens), passes


@pytest.mark.parametrize("proposer", [nobody, prophet, bushy])
def test_page_writes_what_generate_writes(pair, windows, proposer):
    for window, limit in ((windows[0], 64), (windows[1], 9), (windows[2], 1)):
        wanted = generated(pair, window, limit)
        assert page(pair, window, proposer(wanted), limit)[0] == wanted


def test_what_is_foreseen_takes_one_pass(pair, windows):
    wanted = generated(pair, windows[0])
    assert page(pair, windows[0], prophet(wanted), 64) == (wanted, 1)
    assert page(pair, windows[0], nobody(wanted), 64) == (wanted, len(wanted))
