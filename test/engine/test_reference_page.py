"""The algorithm on one page writes what `generate` writes, and so what the engine writes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from plain_target import QUESTION, generated

from crossspec_ros.engine import reference
from crossspec_ros.engine.reference import Tree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.preprocess import clip_pixels
from crossspec_ros.windows.window import Window

Proposer = Callable[[Sequence[int]], Tree]


def chain(tokens: Sequence[int]) -> Tree:
    return Tree(tuple(tokens), tuple(range(-1, len(tokens) - 1)))


def nobody(wanted: Sequence[int]) -> Proposer:
    return lambda said: Tree()


def prophet(wanted: Sequence[int]) -> Proposer:
    """Knows all, the end and what would stand behind it."""
    return lambda said: chain([*wanted[len(said) :], 7, 7])


def wrong_at_third(wanted: Sequence[int]) -> Proposer:
    return lambda said: chain([*wanted[len(said) : len(said) + 2], 5, *wanted[len(said) + 3 :]])


def bushy(wanted: Sequence[int]) -> Proposer:
    """Trees of any shape, with the right token among wrong siblings now and then."""
    rng = random.Random(5)

    def propose(said: Sequence[int]) -> Tree:
        parents = [rng.randrange(max(-1, i - 4), i) for i in range(rng.randrange(16))]
        depths: list[int] = []
        for parent in parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        rest = [*wanted[len(said) :], *range(3, 20)]
        return Tree([rest[d] if rng.random() < 0.7 else rng.randrange(3, 40) for d in depths], parents)

    return propose


PROPOSERS = [nobody, prophet, wrong_at_third, bushy]


def page(pair: ModelPair, window: Window, propose: Proposer, limit: int) -> tuple[tuple[int, ...], int]:
    pixels = clip_pixels(window.frames, pair.target.spec.image_size)
    prompt = pair.target.prompt_ids(QUESTION)
    tokens, passes = reference.caption(pair.target.module, pixels, prompt, propose, limit)
    return tuple(tokens), passes


@pytest.mark.parametrize("proposer", PROPOSERS)
def test_page_writes_what_generate_writes(
    pair: ModelPair, windows: list[Window], proposer: Callable[[Sequence[int]], Proposer]
) -> None:
    for window, limit in ((windows[0], 64), (windows[1], 9), (windows[2], 1)):
        wanted = generated(pair, window, limit)
        assert page(pair, window, proposer(wanted), limit)[0] == wanted


def test_what_is_foreseen_takes_one_pass(pair: ModelPair, windows: list[Window]) -> None:
    wanted = generated(pair, windows[0])
    assert page(pair, windows[0], prophet(wanted), 64) == (wanted, 1)
    assert page(pair, windows[0], nobody(wanted), 64) == (wanted, len(wanted))
