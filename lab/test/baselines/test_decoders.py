"""Decoders of other projects write what the target writes, in few passes."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from crossspec_lab.baselines.cascade import Cascade
from crossspec_lab.baselines.compression import ElasticCompressor
from crossspec_lab.baselines.lookahead import GRAM, Branches, Lookahead
from crossspec_lab.baselines.one_shot import LIMIT, Alone, OneShot, Written
from crossspec_lab.baselines.pipelined import Pipelined
from crossspec_lab.baselines.prompt_lookup import PromptLookup
from crossspec_lab.baselines.retrieval import Retrieval, training_captions
from crossspec_lab.baselines.semantic import Semantic, accept_typical
from crossspec_lab.baselines.speculative import ContinuingDraft, FixedGamma
from crossspec_lab.baselines.specvlm import SpecVLM, SpecVLMHead
from crossspec_lab.baselines.suffix import EarlierOutputs, SuffixDecoding
from crossspec_lab.baselines.suffix_array import SuffixArray
from crossspec_lab.heads.head import Sizes
from crossspec_lab.train.pairs import PairExtractor, extract
from crossspec_lab.world.phrases import QUESTION
from hypothesis import given
from hypothesis import strategies as st

from crossspec_ros.drafting.proposer import Context
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

Ids = tuple[int, ...]
Captions = Callable[[OneShot], list[Written]]
WORDS, DEPTH = 30, 5
TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=9).map(tuple), max_size=4)
RUNS = st.lists(st.integers(0, 2), min_size=1, max_size=DEPTH - 1).map(tuple)


@pytest.fixture(scope="module")
def alone(pair: ModelPair, windows: list[Window]) -> list[Ids]:
    """Return the target's own captions of the first two windows."""
    with closing(Alone(pair)) as decoder:
        return [decoder(window, QUESTION, Trace()).tokens for window in windows[:2]]


@pytest.fixture
def captions(windows: list[Window], alone: list[Ids]) -> Captions:
    """Return a function that captions two windows, the first one twice, and checks the captions."""

    def caption(decoder: OneShot) -> list[Written]:
        with closing(decoder):
            written = [decoder(window, QUESTION, Trace()) for window in (*windows[:2], windows[0])]
        assert [one.tokens for one in written] == [*alone, alone[0]]
        assert all(sum(one.accept_lengths) == len(one.tokens) for one in written)
        return written

    return caption


@pytest.mark.parametrize(
    ("make", "passes_per_token"),
    [
        (Cascade, 0.33),
        (Lookahead, 0.7),
        (Pipelined, 1.0),
        (FixedGamma, 0.5),
        # Where no token is typical, the target writes alone.
        (lambda pair: Semantic(pair, math.inf, math.inf), 1.0),
    ],
)
def test_captions_are_the_targets(
    make: Callable[[ModelPair], OneShot], passes_per_token: float, pair: ModelPair, captions: Captions
) -> None:
    for written in captions(make(pair)):
        assert len(written.accept_lengths) <= passes_per_token * len(written.tokens)


@pytest.mark.nightly
def test_lookups_repeat_captions_in_few_passes(pair: ModelPair, captions: Captions, alone: list[Ids]) -> None:
    first, _, again = captions(SuffixDecoding(pair))
    assert 3 * len(again.accept_lengths) < len(first.accept_lengths)
    stored, *_ = captions(Retrieval(pair, alone[:1]))
    # The first pass reads the prompt. A later one accepts ten tokens of the datastore and the bonus token.
    assert stored.accept_lengths[1] == 11 and 6 * len(stored.accept_lengths) < len(stored.tokens)
    texts = training_captions(pair.target, 3)
    assert {(*text[:6], text[-1]) for text in texts} == {(*alone[0][:6], alone[0][-1])}


@given(TEXTS, TEXTS, RUNS, st.integers(0, DEPTH - 1))
def test_suffix_array_equals_a_search(texts: list[Ids], more: list[Ids], run: Ids, longest: int) -> None:
    def search(run: Ids) -> dict[int, int]:
        ends = ((text, i + len(run)) for text in texts + more for i in range(len(text) - len(run)))
        return dict(Counter(text[end] for text, end in ends if text[end - len(run) : end] == run))

    index = SuffixArray(DEPTH, texts)
    for text in more:
        index.add(text)
    assert index.following(run) == search(run)
    runs = [run[-n:] for n in range(1, min(longest, len(run)) + 1)]
    assert index.match(run, longest) == max((one for one in runs if search(one)), key=len, default=())


def test_suffixes_draft_more_after_longer_matches() -> None:
    outputs = EarlierOutputs()
    outputs.learn("?", tuple(range(20)))
    for output in ((31, 32, 33), (31, 32, 34), (31, 32, 34), (31, 35, 36), *((9, n) for n in range(10, 21))):
        outputs.learn("!", output)
    for question, text, wanted in (
        ("?", (50, 3), ((4, 5, 6, 7), (1.0,) * 4)),
        ("?", (50, 2, 3), (tuple(range(4, 12)), (1.0,) * 8)),
        ("?", (50,), ((), ())),
        ("another?", (2, 3), ((), ())),
        ("!", (31,), ((32, 34), (3 / 4, 2 / 3))),
        ("!", (9,), ((), ())),
        # The prompt and the caption so far count too.
        ("new?", (1, 2, 3, 4, 1, 2), ((3, 4, 1, 2), (1.0,) * 4)),
    ):
        assert outputs.draft(question, text) == wanted


def test_lookahead_foresees_a_target_that_counts() -> None:
    branches, tokens, lengths = Branches(tuple(range(WORDS))), (), []
    while len(tokens) < LIMIT:
        tree = branches.guess(tokens)
        assert max(tree.depths(), default=0) < LIMIT - len(tokens) and len(tree) < 129
        last = (WORDS - 1, *tokens)[-1]
        logits = torch.eye(WORDS)[[(token + 1) % WORDS for token in (last, *tree.token_ids)]]
        path, following = branches.accept(tree, logits)
        tokens += (*(tree.token_ids[node] for node in path), following)
        lengths.append(len(path) + 1)
    assert tokens == tuple(i % WORDS for i in range(LIMIT))
    assert set(lengths[: GRAM - 1]) == {1} and lengths[GRAM:-1].count(GRAM) > len(lengths) / 2


CERTAIN, OPEN = [0.92, 0.08, 0, 0], [0.04, 0.08, 0.44, 0.44]
ROWS = [[0.6, 0.4], [0.4, 0.6], [0.99, 0.01], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("probs", "tokens", "accepted"),
    [
        # 0.3 * exp(-H) is 0.23 and 0.097: epsilon is lower. For sixteen equal tokens it is 0.019.
        ([CERTAIN, CERTAIN], [1], ((), 0)),
        ([OPEN, CERTAIN], [1], ((), 2)),
        ([[1 / 16] * 16, [0.92, 0.08] + [0] * 14], [7], ((0,), 0)),
        (ROWS, [1, 0, 1], ((0, 1), 0)),
        (ROWS[:1], [], ((), 0)),
    ],
)
def test_typical_acceptance_follows_the_entropy(
    probs: list[list[float]], tokens: list[int], accepted: tuple[Ids, int]
) -> None:
    chain = DraftTree.chain(tokens, [1.0] * len(tokens), "event_draft")
    assert accept_typical(0.09, 0.3, chain, torch.tensor(probs).log()) == accepted


@pytest.mark.parametrize(
    ("response", "question", "proposed"),
    [
        # (1, 2) is followed by 5 in the question and by 6 in the response; (9, 1, 2) only by 5.
        ((1, 2, 6, 7, 1, 2), (9, 1, 2, 5), (6, 7)),
        ((1, 2, 6, 9, 1, 2), (9, 1, 2, 5), (5, 1)),
        ((1, 2, 3), (), ()),
        ((), (), ()),
    ],
)
def test_prompt_lookup_takes_the_latest_longest_match(response: Ids, question: Ids, proposed: Ids) -> None:
    target: Any = SimpleNamespace(prompt_ids=lambda text: ((), question))
    assert PromptLookup(target).propose(Context("?", response), 2, 0.0).token_ids == proposed


def test_compressor_chooses_one_method_and_its_gate_learns() -> None:
    torch.manual_seed(0)
    tokens, mask = torch.randn(3, 34, 16), torch.ones(3, 34, dtype=torch.bool)
    mask[2, 17:] = False
    compress = ElasticCompressor(width=16, kept=4, heads=2)
    choice = compress.choice(tokens, mask)
    torch.testing.assert_close(choice.round(), choice)
    assert choice.sum(-1).tolist() == pytest.approx([1, 1, 1])
    compress(tokens, mask).square().mean().backward()
    assert compress.gate.weight.grad is not None and compress.gate.weight.grad.abs().sum() > 0
    # A single input needs one method only; the result is the same.
    together = compress.eval()(tokens, mask)
    assert together.shape == (3, 4, 16)
    torch.testing.assert_close(compress(tokens[:1], mask[:1]), together[:1])


@pytest.mark.parametrize("failing", [(ContinuingDraft, "after"), (OneShot, "answer")])
def test_pipelined_raises_a_failure_and_leaves_no_thread(
    failing: tuple[type, str], pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(*failing, fail)
    before = set(threading.enumerate())
    with closing(Pipelined(pair)) as decoder, pytest.raises(RuntimeError):
        decoder(windows[0], QUESTION, Trace())
    assert set(threading.enumerate()) <= before


@pytest.mark.nightly
def test_specvlm_learns_and_writes_the_targets_captions(
    pair: ModelPair, windows: list[Window], alone: list[Ids], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    head = SpecVLMHead(Sizes.of(pair.target, pair.draft))
    head.load(pair.target)

    def passes() -> int:
        with closing(SpecVLM(pair, head.eval())) as decoder:
            written = decoder(windows[0], QUESTION, Trace())
        assert written.tokens == alone[0] and sum(written.accept_lengths) == len(written.tokens)
        return len(written.accept_lengths)

    with closing(PairExtractor(pair, QUESTION)) as extractor:
        pairs = extract(extractor, windows, tmp_path, len(windows)).batch(range(len(windows)))
    before, untrained = head.loss(pairs).item(), passes()
    optimizer = torch.optim.AdamW(head.parameters(), 3e-3)
    head.train()
    for _ in range(40):
        head.loss(pairs).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert head.loss(pairs).item() < before / 2 and passes() < untrained
