"""REST: what it finds in its datastore, and that it says what the target says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.retrieval import Retrieval, training_captions
from crossspec_lab.baselines.written import Written

from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def test_it_says_what_the_target_says_and_what_is_in_the_datastore_in_few_passes(
    pair: ModelPair, told: Callable[[OneShot], list[Written]], alone: list[tuple[int, ...]]
) -> None:
    known, *_ = told(Retrieval(pair, alone[:1]))
    # One pass reads the prompt; then ten tokens of the datastore and the target's own come at a time.
    assert known.accept_lengths[1] == 11 and 6 * len(known.accept_lengths) < len(known.tokens)


def test_captions_of_training_begin_and_end_as_the_targets_do(
    pair: ModelPair, alone: list[tuple[int, ...]]
) -> None:
    captions = training_captions(pair.target, 3)
    assert len(captions) == 3
    assert {caption[:6] for caption in captions} == {alone[0][:6]}
    assert {caption[-1] for caption in captions} == {alone[0][-1]}


@pytest.fixture
def trees(
    pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., DraftTree]:
    """The tree after a prompt that says nothing and the tokens so far."""

    def tree(datastore: list[tuple[int, ...]], said: tuple[int, ...]) -> DraftTree:
        found: list[DraftTree] = []
        monkeypatch.setattr(OneShot, "answer", lambda *args: found.append(args[-1](said)))
        with closing(Retrieval(pair, datastore)) as way:
            way(windows[0], "", Trace())
        return found[0]

    return tree


def test_the_most_frequent_continuations_are_taken(trees: Callable[..., DraftTree]) -> None:
    tree = trees([(900, 1, 2), (900, 1, 3), (900, 1, 3), (900, 4)], (900,))
    nodes = list(zip(tree.token_ids, tree.parents, tree.probs, strict=True))
    assert nodes == [(1, -1, 3 / 4), (3, 0, 2 / 3), (4, -1, 1 / 4), (2, 0, 1 / 3)]
    assert trees([(901, 902)], (900,)) == DraftTree()


def test_a_tree_is_as_large_and_as_deep_as_published(trees: Callable[..., DraftTree]) -> None:
    assert max(trees([tuple(range(900, 940))], (900,)).depths()) == 10
    assert len(trees([(900, i) for i in range(100)], (900,))) == 64
