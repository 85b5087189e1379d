"""Other people's decoders: they say what the target says, in as few passes as they should."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch
from crossspec_lab.baselines.cascade import Cascade
from crossspec_lab.baselines.lookahead import GRAM, Lookahead, _Branches
from crossspec_lab.baselines.one_shot import OneShot
from crossspec_lab.baselines.pipelined import Pipelined
from crossspec_lab.baselines.semantic import Semantic, TypicalAcceptance
from crossspec_lab.baselines.speculative import FixedGamma
from crossspec_lab.baselines.specvlm import SpecVLM, SpecVLMHead
from crossspec_lab.baselines.written import LIMIT, Written
from crossspec_lab.heads.head import Sizes
from crossspec_lab.train.pairs import PairExtractor, extract
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

WORDS = 30


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (Cascade, 0.33),
        (Lookahead, 0.7),
        (Pipelined, 1.0),
        (lambda pair: FixedGamma(pair, 4), 0.5),
        # Where nothing is near enough, the target speaks alone.
        (lambda pair: Semantic(pair, 4, math.inf, math.inf), 1.0),
    ],
)
def test_it_says_what_the_target_says(
    make: Callable[[ModelPair], OneShot],
    most: float,
    pair: ModelPair,
    told: Callable[[OneShot], list[Written]],
) -> None:
    for written in told(make(pair)):
        assert len(written.accept_lengths) <= most * len(written.tokens)


def counted(tree: DraftTree, last: int) -> torch.Tensor:
    """Logits of a target that says of each number the next."""
    return torch.eye(WORDS)[[(token + 1) % WORDS for token in (last, *tree.token_ids)]]


def test_a_target_that_counts_is_soon_foreseen_by_lookahead() -> None:
    branches, said, lengths = _Branches(tuple(range(WORDS))), (), []
    while len(said) < LIMIT:
        tree = branches.guess(said)
        assert max(tree.depths(), default=0) < LIMIT - len(said) and len(tree) < 129
        path, following = branches.accept(tree, counted(tree, (WORDS - 1, *said)[-1]))
        said += (*(tree.token_ids[node] for node in path), following)
        lengths.append(len(path) + 1)
    assert said == tuple(i % WORDS for i in range(LIMIT))
    assert set(lengths[: GRAM - 1]) == {1} and lengths[GRAM:-1].count(GRAM) > len(lengths) / 2


def accepted(probs: list[list[float]], tokens: list[int]) -> tuple[tuple[int, ...], int]:
    chain = DraftTree.chain(tokens, [1.0] * len(tokens), "event_draft")
    return TypicalAcceptance(0.09, 0.3)(chain, torch.tensor(probs).log())


def test_typical_acceptance_falls_where_the_target_is_unsure_and_ends_a_chain() -> None:
    sure, unsure = [0.92, 0.08, 0, 0], [0.04, 0.08, 0.44, 0.44]
    # 0.3 * exp(-H) is 0.23 and 0.097: epsilon is the lower; of sixteen equal ones it is 0.019.
    assert accepted([sure, sure], [1]) == ((), 0)
    assert accepted([unsure, sure], [1]) == ((), 2)
    assert accepted([[1 / 16] * 16, [0.92, 0.08] + [0] * 14], [7]) == ((0,), 0)
    rows = [[0.6, 0.4], [0.4, 0.6], [0.99, 0.01], [0.5, 0.5]]
    assert accepted(rows, [1, 0, 1]) == ((0, 1), 0)
    assert accepted(rows[:1], []) == ((), 0)


@pytest.mark.nightly
def test_specvlms_head_learns_to_draft_and_captions_stay_the_targets(
    pair: ModelPair, windows: list[Window], alone: list[tuple[int, ...]], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    head = SpecVLMHead(Sizes.of(pair.target, pair.draft))
    head.load(pair.target)

    def passes() -> int:
        with closing(SpecVLM(pair, head.eval())) as way:
            written = way(windows[0], QUESTION, Trace())
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
