"""The caption memory: its trees, what it learns and forgets, and how it is kept."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossspec_ros.drafting import context_mixing
from crossspec_ros.drafting.context_mixing import (
    BIASES,
    FURTHER,
    KINDS,
    ORDERS,
    CaptionTable,
    behind_start,
    grow,
)
from crossspec_ros.drafting.proposer import Context, PassResult
from crossspec_ros.drafting.proposers.memory import QUESTIONS, CaptionMemory, DamagedMemoryError
from crossspec_ros.engine.tree import ROOT, DraftTree, follow

CAPTION = st.lists(st.integers(0, 4), min_size=1, max_size=12).map(tuple)
CAPTIONS = st.lists(CAPTION, max_size=12)


def tell(
    memory: CaptionMemory, caption: tuple[int, ...], draft: tuple[int, ...] = (), question: str = "?"
) -> None:
    """Let the memory see a whole caption in one pass."""
    memory.observe(PassResult(Context(question, draft_tokens=draft), DraftTree(), (), caption, True))


def grown(
    table: CaptionTable, said: tuple[int, ...], kinds: int = KINDS, further: float = 0.2
) -> list[tuple[int, int, float]]:
    """Token, parent and probability of each node that a table gives before anything was learned."""
    weights = np.tile((1.0, *FURTHER * (further,)), (ORDERS + 1, 1))
    mixer = weights, np.zeros(2 * BIASES), np.zeros(BIASES)
    hints = behind_start(()), 0, behind_start(())
    tree = grow(table.arrays, (24, 0.9, table.oldest), kinds, mixer, hints, behind_start(said), 30, 1e-4)
    return list(zip(*(values.tolist() for values in tree), strict=True))


def passes(
    memory: CaptionMemory, caption: tuple[int, ...], budget: int, draft: tuple[int, ...] = ()
) -> list[tuple[DraftTree, tuple[int, ...]]]:
    """The tree of each pass and what was taken of it, as the memory drafts a caption and learns it."""
    trees, said = [], 0
    while said < len(caption):
        context = Context("?", caption[:said], draft_tokens=draft)
        tree = memory.propose(context, budget, 1e-4)
        rest = [*caption[said:], -2]
        depths = tree.depths()
        path, _ = follow(tree, lambda node: rest[0 if node == ROOT else depths[node]])  # noqa: B023
        new = caption[said : said + len(path) + 1]
        said += len(new)
        memory.observe(PassResult(context, tree, path, new, said == len(caption)))
        trees.append((tree, path))
    return trees


@settings(max_examples=60, deadline=None)
@given(CAPTIONS, CAPTION, CAPTION, st.integers(0, 40))
def test_every_tree_is_a_tree_of_probabilities(
    captions: list[tuple[int, ...]], said: tuple[int, ...], draft: tuple[int, ...], budget: int
) -> None:
    memory = CaptionMemory(5)
    for caption in captions:
        tell(memory, caption, draft)
    tree = memory.propose(Context("?", said, draft_tokens=draft), budget, 1e-4)
    assert len(tree) <= budget
    assert all(ROOT <= parent < node for node, parent in enumerate(tree.parents))
    assert len(set(zip(tree.parents, tree.token_ids, strict=True))) == len(tree)
    assert all(0 < prob <= 1 for prob in tree.probs)
    assert all(source == ("memory",) for source in tree.sources)
    paths = tree.path_probs()
    assert paths == sorted(paths, reverse=True)
    for parent in {ROOT, *tree.parents}:
        siblings = [prob for p, prob in zip(tree.parents, tree.probs, strict=True) if p == parent]
        assert sum(siblings) < 1 + 1e-9


@settings(max_examples=60, deadline=None)
@given(CAPTIONS, CAPTION, st.integers(1, 4))
def test_what_is_forgotten_leaves_no_trace(
    captions: list[tuple[int, ...]], said: tuple[int, ...], capacity: int
) -> None:
    with pytest.MonkeyPatch.context() as small:
        small.setattr(context_mixing, "_FEWEST", 8)
        table, fresh = CaptionTable(capacity), CaptionTable(capacity)
        for caption in captions:
            table.add(caption)
        for caption in captions[-capacity:]:
            fresh.add(caption)
    assert table.captions == fresh.captions
    assert len(table.arrays[-1]) <= 4 * 12 * capacity
    for start in ((), said):
        assert grown(table, start) == grown(fresh, start)


@settings(max_examples=30, deadline=None)
@given(CAPTIONS, CAPTION, CAPTION)
def test_saved_and_loaded_it_proposes_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    captions: list[tuple[int, ...]],
    said: tuple[int, ...],
    draft: tuple[int, ...],
) -> None:
    memory, again = CaptionMemory(5), CaptionMemory(5)
    for caption in captions:
        tell(memory, caption, draft)
    path = tmp_path_factory.mktemp("memory") / "memory.json"
    memory.save(path, "words")
    again.restore(path, "words", 9)
    for context in (Context("?", said), Context("?", said, draft_tokens=draft), Context("?")):
        assert again.propose(context, 30, 1e-4) == memory.propose(context, 30, 1e-4)


def test_a_run_is_backed_off_to_shorter_ones() -> None:
    table = CaptionTable(9)
    for caption in ((1, 2, 3), (5, 2, 4), (5, 2, 4)):
        table.add(caption)

    def following(*said: int) -> dict[int, float]:
        return {token: prob for token, parent, prob in grown(table, said, ORDERS) if parent == ROOT}

    # After (START, 1, 2) only 3 has been seen; after 2 alone, 4 more often.
    assert following(1, 2)[3] > following(1, 2)[4] > 0
    assert following(7, 2)[4] > following(7, 2)[3] > 0
    assert following(7) == {}


def test_contexts_beside_the_last_tokens_help() -> None:
    def says(captions: list[tuple[int, ...]], said: tuple[int, ...]) -> int:
        """The likeliest token, where runs alone know nothing."""
        table = CaptionTable(9)
        for caption in captions:
            table.add(caption)
        assert grown(table, said, ORDERS) == []
        return max((prob, token) for token, parent, prob in grown(table, said) if parent == ROOT)[1]

    # The last token is new each time; the one before it, or two or three before, tells what follows.
    assert says([(1, 10, 5), (1, 11, 5), (2, 12, 6), (2, 13, 6)], (1, 14)) == 5
    assert says([(1, 10, 20, 5), (1, 11, 21, 5), (2, 12, 22, 6), (2, 13, 23, 6)], (1, 14, 24)) == 5
    # So does the place in the caption.
    assert says([(1, 10, 5), (2, 11, 5), (3, 12, 5), (8,), (9,)], (7, 14)) == 5
    # After the second of the same token comes another than after the first.
    table = CaptionTable(9)
    for i in range(8):
        table.add((*range(10, 10 + i), 1, 5, 20 + i, 1, 6))
    children = [(prob, token) for token, parent, prob in grown(table, (30, 1, 31, 32, 1)) if parent == ROOT]
    assert max(children)[1] == 6


def test_it_learns_only_finished_captions() -> None:
    memory = CaptionMemory()
    context = Context("?")
    assert memory.propose(context, 8, 1e-4) == DraftTree()
    memory.observe(PassResult(context, DraftTree(), (), (1, 2, 3), False))
    assert memory.propose(context, 8, 1e-4) == DraftTree()
    memory.observe(PassResult(Context("?", (1, 2, 3)), DraftTree(), (), (4,), True))
    assert memory.propose(context, 8, 1e-4).token_ids == (1, 2, 3, 4)


def test_questions_are_kept_apart_and_the_longest_unasked_is_dropped() -> None:
    memory = CaptionMemory()
    for i in range(QUESTIONS + 1):
        tell(memory, (i, i + 1), question=str(i))
    assert memory.propose(Context("0"), 8, 1e-4) == DraftTree()
    assert [memory.propose(Context(str(i)), 1, 1e-4).token_ids for i in range(1, QUESTIONS + 1)] == [
        (i,) for i in range(1, QUESTIONS + 1)
    ]


def test_it_learns_to_trust_a_draft_that_is_right() -> None:
    memory = CaptionMemory()
    # The draft alone tells which of eight tokens comes second.
    for i in range(120):
        caption = (1, 10 + i * 5 % 8, 3)
        tell(memory, caption, draft=caption)
    tree = memory.propose(Context("?", (1,), draft_tokens=(1, 14, 3)), 4, 1e-4)
    assert tree.token_ids[0] == 14 and tree.probs[0] > 0.5


def test_a_damaged_file_is_named_and_changes_nothing(tmp_path: Path) -> None:
    memory, path = CaptionMemory(), tmp_path / "memory.json"
    tell(memory, (1, 2, 3))
    memory.save(path, "words")
    whole = json.loads(path.read_text())
    before = memory.propose(Context("?"), 8, 1e-4)

    def signed(change: dict[str, Any]) -> str:
        text = json.dumps({name: value for name, value in (whole | change).items() if name != "checksum"})
        return json.dumps(json.loads(text) | {"checksum": zlib.crc32(text.encode())})

    parts = {"captions": [[1, "two"]]}, {"captions": [[1, 9]]}, {"captions": [[1] * 3000]}, {"weights": [1.0]}
    damaged = ["", path.read_text()[:40], 100_000 * "[", "[]", json.dumps({**whole, "caption_memory": 3})]
    damaged += [signed({"caption_memory": 3})]
    damaged += [signed({"questions": {"?": whole["questions"]["?"] | part}}) for part in parts]
    for text in damaged:
        path.write_text(text)
        with pytest.raises(DamagedMemoryError):
            memory.restore(path, "words", 9)
        assert memory.propose(Context("?"), 8, 1e-4) == before
    with pytest.raises(FileNotFoundError):
        memory.restore(tmp_path / "nowhere.json", "words", 9)


def test_on_the_recorded_captions_it_drafts_well_and_knows_how_well(shared: Path) -> None:
    lines = (shared / "data" / "caption_trace" / "key_elements.jsonl").read_text().splitlines()[:100]
    memory, tokens, trees = CaptionMemory(), 0, []
    for record in map(json.loads, lines):
        trees += passes(memory, tuple(record["target_tokens"]), 64, tuple(record["draft_tokens"]))
        tokens += len(record["target_tokens"])
    # 8.5 when this was written; runs of the last tokens alone gave 7.8.
    assert tokens / len(trees) > 8.2
    expected = sum(sum(tree.path_probs()) for tree, _ in trees)
    taken = sum(len(path) for _, path in trees)
    assert 0.8 < expected / taken < 1.25


def test_paths_that_are_not_worth_a_node_are_left_out() -> None:
    memory = CaptionMemory()
    for i in range(20):
        tell(memory, (1, 2, i % 4))
    context = Context("?")
    all_of_it, worth = memory.propose(context, 30, 1e-4), 0.5
    likely = memory.propose(context, 30, worth)
    assert likely == all_of_it.pruned(sum(path >= worth for path in all_of_it.path_probs()))
    assert 0 < len(likely) < len(all_of_it)


def test_without_a_draft_the_caption_of_a_window_that_looked_alike_hints() -> None:
    memory, rng = CaptionMemory(), np.random.default_rng(0)
    scenes = rng.normal(0, 1, (6, 16))

    def context(scene: int, said: tuple[int, ...] = ()) -> Context:
        return Context("?", said, feature=5 + scenes[scene] + rng.normal(0, 0.1, 16))

    for _ in range(150):
        scene = int(rng.integers(6))
        memory.observe(PassResult(context(scene), DraftTree(), (), (1, 10 + scene, 3), True))
    for scene in range(6):
        tree = memory.propose(context(scene, (1,)), 1, 1e-4)
        assert tree.token_ids == (10 + scene,) and tree.probs[0] > 0.7
    # Features of another width are another model's.
    assert len(memory.propose(Context("?", (1,), feature=np.zeros(3)), 4, 1e-4))
    memory.observe(PassResult(Context("?", feature=np.zeros(3)), DraftTree(), (), (1, 10, 3), True))
    assert len(memory.propose(context(0, (1,)), 4, 1e-4))
