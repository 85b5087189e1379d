"""Whoever shares a pass with whom, each sequence gets what it would get alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from draft_trees import Told, path_to, random_tree
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_target import QUESTION, chain, logits

from crossspec_ros.engine.batching import Batcher, Requests, Result, together
from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.model_runner import ModelRunner
from crossspec_ros.engine.pass_cost import PassCost
from crossspec_ros.engine.sequence import TargetSequence
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

TOLERANCE = 5e-5


class Fleet:
    """Sequences of several robots in one pool, whose passes are shared as `cost` says."""

    def __init__(self, pair: ModelPair, robots: int, is_static: bool = False) -> None:
        target, stream = pair.target, CudaStream(pair.target.device)
        self.pool = ModelRunner(target.body, target.spec.frame_tokens + 512, is_static)
        self.pool.warm_up(robots, robots)
        self.serve = Batcher(target, self.pool, stream)
        self.serve.cost = PassCost.all_together(robots)
        self.told = [Told() for _ in range(robots)]
        self.sequences = [
            TargetSequence(target, self.pool, stream, verifier, Trace()) for verifier in self.told
        ]

    def do(self, works: Sequence[Requests[Result]]) -> list[Result]:
        return together(works, self.serve)


@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.inference_mode()
def test_frames_questions_and_trees_of_several_robots_share_passes(
    pair: ModelPair, windows: list[Window], is_static: bool, attention: str
) -> None:
    pair.target.module.set_attn_implementation(attention)  # type: ignore[operator]
    rng = random.Random(11)
    fleet = Fleet(pair, 3, is_static)
    said: list[list[int]] = [[], [], []]

    def frames(i: int) -> Requests[None]:
        for stamp, frame in enumerate(windows[i].frames):
            yield from (fleet.sequences[i].append if stamp > 5 else fleet.sequences[i].read_ahead)(
                frame, stamp
            )
        yield from fleet.sequences[i].ask(QUESTION, Trace())

    def step(i: int) -> Requests[None]:
        tree = random_tree(rng, rng.randrange(0, 20), pair.shared_ids)
        path = path_to(tree, rng.randrange(ROOT, len(tree)))
        fleet.told[i].accepts = path, rng.randrange(3, pair.shared_ids)
        got = yield from fleet.sequences[i].step(tree, None)
        assert got.rows > 1 or not len(others)
        wanted = logits(pair, windows[i], said[i])[-1]
        assert (fleet.told[i].logits[0] - wanted).abs().max() < TOLERANCE
        said[i] += [*(tree.token_ids[node] for node in path), fleet.told[i].accepts[1]]

    try:
        # The third joins while the others are far on, and trees are read beside its frames.
        others: list[int] = [0, 1]
        fleet.do([frames(0), frames(1)])
        fleet.do([step(0), step(1)])
        fleet.do([frames(2), step(0), step(1)])
        for _ in range(3):
            fleet.do([step(0), step(1), step(2)])
        fleet.sequences[1].close()
        fleet.do([step(0), step(2)])
    finally:
        pair.target.module.set_attn_implementation("sdpa")  # type: ignore[operator]


@torch.inference_mode()
def test_one_robots_bad_input_is_its_own(pair: ModelPair, windows: list[Window]) -> None:
    fleet = Fleet(pair, 3)

    def read(i: int, frame: np.ndarray) -> Requests[None]:
        yield from fleet.sequences[i].read_ahead(frame, 0)

    encode, seen = pair.target.encode, []

    def picky(frames: np.ndarray) -> Sequence[object]:
        seen.append(len(frames))
        if (frames == 77).all((1, 2, 3)).any():
            raise ValueError("a frame that no tower takes")
        return encode(frames)

    bad = np.full_like(windows[0].frames[0], 77)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair.target, "encode", picky)
        works = [read(0, windows[0].frames[0]), read(1, bad), read(2, windows[2].frames[0])]
        requests = [work.send(None) for work in works]
        served = {one.i: one for one in fleet.serve(requests)}
    assert seen == [3, 1, 1, 1]
    assert isinstance(served[1].error, ValueError) and not served[0].error and not served[2].error


@given(
    st.lists(st.integers(1, 140), min_size=1, max_size=8),
    st.floats(0.0, 2.0),
    st.floats(0.0, 0.2),
    st.integers(1, 8),
)
@settings(deadline=None, max_examples=60)
def test_passes_take_as_little_time_as_any_split_of_like_sizes(
    sizes: list[int], fixed: float, each: float, rows: int
) -> None:
    def table(b: int) -> dict[int, float]:
        return {n: fixed + 1e-3 + each * n * b**0.5 for n in (1, 16, 129)}

    shared = {rows: table(rows)} if rows > 1 else {}
    cost = PassCost(table(1), shared=shared)
    parts = cost.parts(sizes)
    assert sorted(i for part in parts for i in part) == list(range(len(sizes)))
    assert all(len(part) <= rows for part in parts)

    def seconds(parts: list[list[int]]) -> float:
        return sum(float(cost.seconds(max(sizes[i] for i in part), len(part))) for part in parts)

    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    for cuts in range(2 ** (len(sizes) - 1)):
        ends = [0, *(i + 1 for i in range(len(sizes) - 1) if cuts >> i & 1), len(sizes)]
        other = [order[a:b] for a, b in pairwise(ends)]
        if all(len(part) <= rows for part in other):
            assert seconds(parts) <= seconds(other) + 1e-9


def test_a_cost_between_measured_numbers_of_sequences_lies_between() -> None:
    cost = PassCost({1: 1.0, 129: 2.0}, shared={2: {1: 1.5, 129: 3.0}, 8: {1: 3.0, 129: 9.0}})
    assert cost.seconds(1, 4) == pytest.approx(2.0) and cost.seconds(129, 16) == pytest.approx(18.0)
    cost.rows = 8
    assert cost.seconds(1) == pytest.approx(3.0)
    cost.observe(129, 18.0, 8)
    assert cost.shared()[8][129] > 9.0 and cost.table()[129] == 2.0


@torch.inference_mode()
def test_what_has_outgrown_its_row_stays_out_of_shared_passes_also_when_it_is_short_again(
    pair: ModelPair, windows: list[Window]
) -> None:
    fleet = Fleet(pair, 2)
    room = fleet.sequences[0]._row.capacity

    def read(i: int) -> Requests[None]:
        for stamp, frame in enumerate(windows[i].frames):
            yield from fleet.sequences[i].read_ahead(frame, stamp)

    def answer(i: int, tree: DraftTree) -> Requests[int]:
        yield from fleet.sequences[i].ask(QUESTION, Trace())
        return (yield from fleet.sequences[i].step(tree, None)).rows

    fleet.do([read(0), read(1)])
    assert fleet.do([answer(0, chain([7] * room)), answer(1, chain([]))]) == [1, 1]
    assert fleet.do([answer(0, chain([11])), answer(1, chain([12]))]) == [1, 1]
    for i, token in ((0, 11), (1, 12)):
        assert (fleet.told[i].logits - logits(pair, windows[i], [token])).abs().max() < TOLERANCE
