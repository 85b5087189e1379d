"""However frames, question and trees are cut into passes, the target says what it says in one pass."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
import torch
from plain_target import QUESTION, chain, logits

from crossspec_ros.engine.frame_features import FrameFeatures
from crossspec_ros.engine.session import TargetSession
from crossspec_ros.engine.target_model import TargetModel
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.engine.tree_attention import attention_mask, positions
from crossspec_ros.models.loading import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

OTHER = "How many cars are there, and of which colour?"
TOLERANCE = 5e-5


@pytest.fixture(params=["sdpa", "eager"])
def attention(request: pytest.FixtureRequest, pair: ModelPair) -> Iterator[str]:
    pair.target.set_attn_implementation(request.param)
    yield request.param
    pair.target.set_attn_implementation("sdpa")


def opened(pair: ModelPair, window: Window, prefilled: int = 0) -> TargetSession:
    """A session with the window's frames, of which the first `prefilled` were read one by one."""
    session = TargetSession(TargetModel(pair), Trace())
    with torch.inference_mode():
        for i, frame in enumerate(window.frames):
            session.append_frame(frame)
            if i < prefilled:
                session.prefill()
    return session


def random_tree(rng: random.Random, nodes: int, vocabulary: int) -> DraftTree:
    parents = tuple(rng.randrange(max(ROOT, i - 5), i) for i in range(nodes))
    tokens = tuple(rng.randrange(3, vocabulary) for _ in range(nodes))
    return DraftTree(tokens, parents, (0.5,) * nodes, (("guess",),) * nodes)


def path_to(tree: DraftTree, node: int) -> tuple[int, ...]:
    return () if node == ROOT else (*path_to(tree, tree.parents[node]), node)


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool((a - b).abs().max() < TOLERANCE)


@pytest.mark.usefixtures("attention")
@pytest.mark.parametrize("prefilled", [0, 1, 5, 8])
@torch.inference_mode()
def test_frames_may_be_read_one_by_one_or_with_the_question(
    pair: ModelPair, windows: list[Window], prefilled: int
) -> None:
    session = opened(pair, windows[0], prefilled)
    session.append_prompt(QUESTION)
    assert close(session.verify(chain([5, 6, 7])), logits(pair, windows[0], [5, 6, 7]))
    assert session.passes == 1


@pytest.mark.usefixtures("attention")
@torch.inference_mode()
def test_every_node_of_a_tree_gets_the_logits_of_its_path(pair: ModelPair, windows: list[Window]) -> None:
    rng = random.Random(7)
    for fused in (True, False):
        session = opened(pair, windows[1], 8)
        session.append_prompt(QUESTION)
        said: list[int] = []
        if not fused:
            session.verify(DraftTree())
            session.commit((), 9)
            said = [9]
        tree = random_tree(rng, 14, pair.shared_ids)
        got = session.verify(tree)
        for node in range(ROOT, len(tree)):
            tokens = [*said, *(tree.token_ids[i] for i in path_to(tree, node))]
            assert close(got[node + 1], logits(pair, windows[1], tokens)[-1])


@torch.inference_mode()
def test_after_any_committed_path_the_session_goes_on_as_if_it_had_been_said(
    pair: ModelPair, windows: list[Window]
) -> None:
    rng = random.Random(3)
    session = opened(pair, windows[2], 8)
    session.append_prompt(QUESTION)
    said: list[int] = []
    for _ in range(8):
        tree = random_tree(rng, rng.randrange(0, 20), pair.shared_ids)
        assert close(session.verify(tree)[0], logits(pair, windows[2], said)[-1])
        path = path_to(tree, rng.randrange(ROOT, len(tree)))
        session.commit(path, following := rng.randrange(3, pair.shared_ids))
        said += [*(tree.token_ids[node] for node in path), following]
    assert close(session.verify(DraftTree())[0], logits(pair, windows[2], said)[-1])


@pytest.mark.parametrize("prefilled", [0, 8])
@torch.inference_mode()
def test_a_further_question_forgets_the_answer_and_keeps_the_frames(
    pair: ModelPair, windows: list[Window], prefilled: int
) -> None:
    session = opened(pair, windows[0], prefilled)
    for question in (QUESTION, OTHER, QUESTION):
        session.append_prompt(question)
        if question == OTHER or session.passes:
            assert session.unread < 30
        got = session.verify(chain([11, 12]))
        assert close(got, logits(pair, windows[0], [11, 12], question))
        session.commit((0,), 13)
        assert close(session.verify(DraftTree())[0], logits(pair, windows[0], [11, 13], question)[-1])


def test_a_frame_is_encoded_once_and_known_by_its_pixels(pair: ModelPair, windows: list[Window]) -> None:
    features, frame = FrameFeatures(pair), windows[0].frames[0]
    first = features.encode(frame)
    assert features.encode(frame.copy()) is first
    changed = frame.copy()
    changed[0, 0, 0] ^= 1
    assert features.encode(changed) is not first
    assert features.encode(frame.reshape(frame.shape[0] // 2, -1, 3)) is not first
    for other in itertools.chain(windows[1].frames, windows[2].frames):
        features.encode(other)
    assert features.encode(frame) is not first  # forgotten, so that memory stays bounded


def test_positions_and_sight_follow_the_tree() -> None:
    tree = DraftTree((1, 2, 3), (ROOT, ROOT, 0), (1.0,) * 3, (("a",),) * 3)
    assert positions(10, 2, tree) == [10, 11, 12, 12, 13]
    mask = attention_mask(1, 2, tree, torch.float32)
    assert mask.dtype == torch.float32 and mask.shape == (1, 1, 5, 6)
    assert (mask[0, 0] == 0).int().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 0, 1, 0],
        [1, 1, 1, 1, 0, 1],
    ]
    assert set(mask.unique().tolist()) == {0.0, torch.finfo(torch.float32).min}
