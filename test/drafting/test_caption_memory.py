"""Caption memory: its trees, and learning, removing and restoring captions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossspec_ros.drafting import counts
from crossspec_ros.drafting.counts import CaptionTable
from crossspec_ros.drafting.proposer import Context, PassResult
from crossspec_ros.drafting.proposers.memory import QUESTIONS, CaptionMemory
from crossspec_ros.engine.tree import ROOT, DraftTree, follow

CAPTION = st.lists(st.integers(0, 4), min_size=1, max_size=12).map(tuple)
CAPTIONS = st.lists(CAPTION, max_size=12)


def learn(memory, *captions, question="?"):
    """Let the memory learn captions, each in one pass."""
    for caption in captions:
        memory.observe(PassResult(Context(question), DraftTree(), (), caption, True))
    return memory


def table_of(*captions, capacity=9):
    table = CaptionTable(capacity)
    for caption in captions:
        table.add(caption)
    return table


def following(table, *tokens):
    """Return the probability of each next token after `tokens`."""
    tree = table.grow(tokens, 30, 1e-4)
    nodes = zip(tree.token_ids, tree.parents, tree.probs, strict=True)
    return {token: prob for token, parent, prob in nodes if parent == ROOT}


@settings(max_examples=60, deadline=None)
@given(CAPTIONS, CAPTION, st.integers(0, 40), st.floats(1e-4, 1))
def test_memory_proposes_a_tree_of_probabilities(captions, tokens, budget, min_prob):
    memory = learn(CaptionMemory(5), *captions)
    tree = memory.propose(Context("?", tokens), budget, min_prob)
    assert len(tree) <= budget
    assert all(ROOT <= parent < node for node, parent in enumerate(tree.parents))
    assert len(set(zip(tree.parents, tree.token_ids, strict=True))) == len(tree)
    assert set(tree.token_ids) <= {token for caption in captions[-5:] for token in caption}
    paths = tree.path_probs()
    assert paths == sorted(paths, reverse=True) and all(min_prob <= path * (1 + 1e-9) for path in paths)
    for parent in {ROOT, *tree.parents}:
        siblings = [prob for p, prob in zip(tree.parents, tree.probs, strict=True) if p == parent]
        assert all(prob > 0 for prob in siblings) and sum(siblings) < 1 + 1e-9
    # A smaller tree is a prefix of a larger one.
    larger = memory.propose(Context("?", tokens), 60, min_prob)
    assert tree.token_ids == larger.token_ids[: len(tree)]


@settings(max_examples=60, deadline=None)
@given(CAPTIONS, CAPTION, st.integers(1, 4))
def test_forgotten_captions_leave_no_trace(captions, tokens, capacity):
    with pytest.MonkeyPatch.context() as small:
        small.setattr(counts, "_MIN_PLACES", 8)
        small.setattr(counts, "TOKENS_PER_CAPTION", 8)
        table = table_of(*captions, capacity=capacity)
        fresh = table_of(*table.captions, capacity=capacity)
    kept = list(table.captions)
    assert kept == captions[len(captions) - len(kept) :] and len(kept) <= capacity
    assert sum(map(len, kept)) <= 8 * capacity
    assert len(table._arrays[-1]) <= 4 * 12 * capacity
    for start in ((), tokens):
        assert following(table, *start) == following(fresh, *start)


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.text(max_size=2), CAPTIONS, max_size=2), CAPTION)
def test_restored_memory_proposes_the_same(questions, tokens):
    memory, again = CaptionMemory(5), CaptionMemory(5)
    for question, captions in questions.items():
        learn(memory, *captions, question=question)
    again.restore(json.loads(json.dumps(memory.state())), 5)
    assert again.state() == memory.state()
    for question in questions:
        for start in ((), tokens):
            context = Context(question, start)
            assert again.propose(context, 30, 1e-4) == memory.propose(context, 30, 1e-4)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 9) | st.floats() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_restore_accepts_token_ids_only(state):
    memory = learn(CaptionMemory(), (1, 2, 3))
    before = memory.state()
    try:
        memory.restore(state, 5)
    except (ValueError, TypeError, AttributeError):
        assert memory.state() == before
    else:
        tokens = [token for captions in memory.state().values() for caption in captions for token in caption]
        assert all(type(token) is int and 0 <= token < 5 for token in tokens)


RUNS = [(5, 2, 4), (5, 2, 4), (1, 2, 3)]


@pytest.mark.parametrize(
    ("captions", "tokens", "likeliest"),
    [
        # After (START, 1, 2) only 3 occurred; after 2, 4 is more frequent.
        (RUNS, (1, 2), [3, 4]),
        (RUNS, (7, 7, 7, 2), [4, 3]),
        (RUNS, (7, 7, 7, 7, 7), []),
        # The latest captions count most.
        ([(1, 2), (1, 2), (1, 2), (1, 3), (1, 3)], (1,), [3, 2]),
        # The last two tokens are new each time, but the token before them is not.
        ([(1, 10, 20, 5), (1, 11, 21, 5), (2, 12, 22, 6), (2, 13, 23, 6)], (1, 14, 24), [5]),
        # Only the number of tokens is the same.
        ([(1, 10, 5), (2, 11, 5), (3, 12, 5), (8,), (9,)], (7, 14), [5]),
        # The token after the second 1 differs from the token after the first.
        ([(*range(10, 10 + i), 1, 5, 20 + i, 1, 6) for i in range(8)], (30, 1, 31, 32, 1), [6]),
    ],
)
def test_contexts_rank_the_next_token(captions, tokens, likeliest):
    found = following(table_of(*captions), *tokens)
    assert sorted(found, key=lambda token: -found[token])[: len(likeliest) or None] == likeliest


def test_memory_learns_finished_captions_only():
    memory, context = CaptionMemory(), Context("?")
    memory.observe(PassResult(context, DraftTree(), (), (1, 2, 3), False))
    assert memory.propose(context, 8, 1e-4) == DraftTree() and memory.learned == 0
    memory.observe(PassResult(Context("?", (1, 2, 3)), DraftTree(), (), (4,), True))
    assert memory.propose(context, 4, 1e-4).token_ids == (1, 2, 3, 4) and memory.learned == 1


def test_oldest_question_is_dropped():
    memory = CaptionMemory()
    for i in range(QUESTIONS + 1):
        learn(memory, (i, i + 1), question=str(i))
    trees = [memory.propose(Context(str(i)), 1, 1e-4).token_ids for i in range(QUESTIONS + 1)]
    assert trees == [(), *((i,) for i in range(1, QUESTIONS + 1))]


def test_recorded_captions_are_drafted_well(shared):
    """Real captions accept many tokens per pass; probabilities predict between half and all of them."""
    lines = (shared / "data" / "caption_trace" / "key_elements.jsonl").read_text().splitlines()[:100]
    memory, passes, tokens, expected, accepted = CaptionMemory(), 0, 0, 0.0, 0
    for caption in (tuple(json.loads(line)["target_tokens"]) for line in lines):
        done = 0
        while done < len(caption):
            tree = memory.propose(Context("?", caption[:done]), 64, 1e-4)
            depths, rest = tree.depths(), [*caption[done:], -2]
            path, _ = follow(tree, lambda node: rest[0 if node == ROOT else depths[node]])  # noqa: B023
            done, passes = done + len(path) + 1, passes + 1
            expected, accepted = expected + sum(tree.path_probs()), accepted + len(path)
        learn(memory, caption)
        tokens += len(caption)
    # 8.28 at the time of writing; 7.79 by plain counts, without decay and further contexts.
    assert tokens / passes > 8.1
    assert 0.5 < expected / accepted < 1
