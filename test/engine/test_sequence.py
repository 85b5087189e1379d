"""However frames, question and trees are cut into passes, the target says what it says in one pass."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from draft_trees import Told, path_to, random_tree
from plain_target import QUESTION, chain, logits

from crossspec_ros.engine.batching import Batcher, Requests, Result, together
from crossspec_ros.engine.cuda_stream import CudaStream
from crossspec_ros.engine.model_runner import ModelRunner, additive
from crossspec_ros.engine.runner import Reading
from crossspec_ros.engine.sequence import TargetSequence
from crossspec_ros.engine.tree import ROOT, DraftTree, sees
from crossspec_ros.models.base import Chunk
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

OTHER = "How many cars are there, and of which colour?"
TOLERANCE = 5e-5


@pytest.fixture(params=["sdpa", "eager"])
def attention(request: pytest.FixtureRequest, pair: ModelPair) -> Iterator[str]:
    pair.target.module.set_attn_implementation(request.param)  # type: ignore[operator]
    yield request.param
    pair.target.module.set_attn_implementation("sdpa")  # type: ignore[operator]


class Opened:
    """A sequence with the window's frames, of which the first `prefilled` were read one by one."""

    def __init__(
        self,
        pair: ModelPair,
        window: Window,
        prefilled: int = 0,
        is_static: bool = False,
        taps: tuple[int, ...] = (),
    ) -> None:
        self.verifier, target = Told(), pair.target
        pool = ModelRunner(target.body, target.spec.frame_tokens + 512, is_static)
        pool.tap(taps)
        pool.warm_up(1)
        stream = CudaStream(target.device)
        self.sequence = TargetSequence(target, pool, stream, self.verifier, Trace())
        self._serve = Batcher(target, pool, stream)
        for i, frame in enumerate(window.frames):
            self.do((self.sequence.read_ahead if i < prefilled else self.sequence.append)(frame, i))

    def do(self, work: Requests[Result]) -> Result:
        return together([work], self._serve)[0]

    def logits(self, tree: DraftTree, path: tuple[int, ...] = (), following: int = 9) -> torch.Tensor:
        """Of a step in which these nodes and this token are accepted."""
        self.verifier.accepts = path, following
        self.do(self.sequence.step(tree, None))
        return self.verifier.logits


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool((a - b).abs().max() < TOLERANCE)


@pytest.mark.usefixtures("attention")
@pytest.mark.parametrize("prefilled", [0, 1, 5, 8])
@torch.inference_mode()
def test_frames_may_be_read_one_by_one_or_with_the_question(
    pair: ModelPair, windows: list[Window], prefilled: int
) -> None:
    opened = Opened(pair, windows[0], prefilled)
    opened.do(opened.sequence.ask(QUESTION, Trace()))
    assert close(opened.logits(chain([5, 6, 7])), logits(pair, windows[0], [5, 6, 7]))


@pytest.mark.usefixtures("attention")
@torch.inference_mode()
def test_every_node_of_a_tree_gets_the_logits_of_its_path(pair: ModelPair, windows: list[Window]) -> None:
    rng = random.Random(7)
    for fused in (True, False):
        opened = Opened(pair, windows[1], 8)
        opened.do(opened.sequence.ask(QUESTION, Trace()))
        said: list[int] = []
        if not fused:
            opened.logits(DraftTree(), (), 9)
            said = [9]
        tree = random_tree(rng, 14, pair.shared_ids)
        got = opened.logits(tree)
        for node in range(ROOT, len(tree)):
            tokens = [*said, *(tree.token_ids[i] for i in path_to(tree, node))]
            assert close(got[node + 1], logits(pair, windows[1], tokens)[-1])


@torch.inference_mode()
def test_after_any_accepted_path_the_sequence_goes_on_as_if_it_had_been_said(
    pair: ModelPair, windows: list[Window]
) -> None:
    rng = random.Random(3)
    opened = Opened(pair, windows[2], 8)
    opened.do(opened.sequence.ask(QUESTION, Trace()))
    said: list[int] = []
    for _ in range(8):
        tree = random_tree(rng, rng.randrange(0, 20), pair.shared_ids)
        path = path_to(tree, rng.randrange(ROOT, len(tree)))
        following = rng.randrange(3, pair.shared_ids)
        assert close(opened.logits(tree, path, following)[0], logits(pair, windows[2], said)[-1])
        said += [*(tree.token_ids[node] for node in path), following]
    assert close(opened.logits(DraftTree())[0], logits(pair, windows[2], said)[-1])


@pytest.mark.parametrize("prefilled", [0, 8])
@torch.inference_mode()
def test_a_further_question_forgets_the_answer_and_keeps_the_frames(
    pair: ModelPair, windows: list[Window], prefilled: int
) -> None:
    opened = Opened(pair, windows[0], prefilled)
    for i, question in enumerate((QUESTION, OTHER, QUESTION)):
        opened.do(
            opened.sequence.ask(OTHER, Trace())
        )  # a question that nobody puts to the target changes nothing
        opened.do(opened.sequence.ask(question, Trace()))
        if i:
            assert opened.sequence.unread < 30
        got = opened.logits(chain([11, 12]), (0,), 13)
        assert close(got, logits(pair, windows[0], [11, 12], question))
        assert close(opened.logits(DraftTree())[0], logits(pair, windows[0], [11, 13], question)[-1])


@pytest.mark.parametrize("prefilled", [5, 8])
@torch.inference_mode()
def test_a_step_tells_what_was_accepted_and_hands_out_its_hidden_states(
    pair: ModelPair, windows: list[Window], prefilled: int
) -> None:
    opened = Opened(pair, windows[0], prefilled)
    opened.do(opened.sequence.ask(QUESTION, Trace()))
    unread, eos = opened.sequence.unread, pair.target.spec.eos_ids[0]
    tree = chain([11, eos, 12])
    opened.verifier.accepts = (0, 1, 2), 13
    step = opened.do(opened.sequence.step(tree, None))
    assert (step.path, step.tokens, step.ended) == ((0, 1, 2), (11, eos), True)
    assert step.tokens_read == unread + 3 and step.seconds > 0
    assert step.hidden is not None and step.hidden.tapped((1,)) is None
    question = len(pair.target.prompt_ids(QUESTION)[1])
    accepted = step.hidden.accepted()
    assert len(accepted) == question + 3
    assert torch.equal(pair.target.logits(accepted[question - 1 :]), opened.verifier.logits)
    opened.verifier.accepts = (1,), 13
    step = opened.do(opened.sequence.step(DraftTree((11, 12), (ROOT, ROOT), (0.5,) * 2, (("a",),) * 2), None))
    assert step.hidden is not None
    assert torch.equal(pair.target.logits(step.hidden.accepted()), opened.verifier.logits[[0, 2]])


@torch.inference_mode()
@pytest.mark.parametrize("is_static", [False, True])
def test_hidden_states_have_what_goes_into_tapped_layers(
    pair: ModelPair, windows: list[Window], is_static: bool
) -> None:
    opened = Opened(pair, windows[0], 8, is_static, (3, 1))
    opened.do(opened.sequence.ask(QUESTION, Trace()))
    ids = pair.target.prompt_ids(QUESTION)
    frames = torch.cat(opened.sequence.frames)
    inputs = torch.cat(
        [pair.target.words(ids[0]).embeds, frames, pair.target.words((*ids[1], 11, 12)).embeds]
    )
    opened.verifier.accepts = (1,), 12
    tree = DraftTree((12, 11), (ROOT, ROOT), (0.5,) * 2, (("a",),) * 2)
    first = opened.do(opened.sequence.step(tree, None))
    assert first.hidden is not None and first.hidden.tapped(()) is None
    got = [first.hidden.tapped((3, 1))]
    opened.verifier.accepts = (), 9
    second = opened.do(opened.sequence.step(DraftTree(), None))
    assert second.hidden is not None
    got.append(second.hidden.tapped((1, 3, 1)))
    states = pair.target.body(inputs_embeds=inputs[None], output_hidden_states=True).hidden_states
    wanted = [states[i][0][len(ids[0]) + len(frames) :] for i in range(4)]
    assert got[0] is not None and close(got[0], torch.cat([wanted[3], wanted[1]], -1)[:-1])
    # In whichever order a proposer asks for them.
    assert got[1] is not None and close(got[1], torch.cat([wanted[1], wanted[3], wanted[1]], -1)[-1:])


def test_positions_and_sight_follow_the_tree() -> None:
    tree = DraftTree((1, 2, 3), (ROOT, ROOT, 0), (1.0,) * 3, (("a",),) * 3)
    chunk = Chunk.at(torch.zeros(3, 8), tree.depths(), 3)
    assert chunk.positions.tolist() == [[1, 1, 2]] * 3 and chunk.span == 3
    seen = sees(1, 2, tree)
    assert seen.astype(int).tolist() == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 0, 1, 0],
        [1, 1, 1, 1, 0, 1],
    ]
    mask = additive(seen, torch.float32)
    assert mask.shape == (1, 1, 5, 6) and torch.equal(mask[0, 0] == 0, torch.from_numpy(seen))
    assert set(mask.unique().tolist()) == {0.0, torch.finfo(torch.float32).min}


@torch.inference_mode()
def test_frames_that_could_not_be_encoded_are_read_once_at_the_close(
    pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    window, opened = windows[0], Opened(pair, replace(windows[0], frames=windows[0].frames[:0]))
    opened.do(opened.sequence.read_ahead(window.frames[0], 0))
    with monkeypatch.context() as broken:
        broken.setattr(pair.target, "encode", lambda frames: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            opened.do(opened.sequence.read_ahead(window.frames[1], 1))
    opened.do(opened.sequence.fit(window.frames, range(len(window.frames))))
    opened.do(opened.sequence.ask(QUESTION, Trace()))
    assert close(opened.logits(chain([5, 6, 7])), logits(pair, window, [5, 6, 7]))
    assert len(opened.sequence.frames) == len(window.frames)


@torch.inference_mode()
def test_what_a_pass_that_failed_half_way_wrote_is_never_attended_to(
    pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    window, opened = (
        windows[0],
        Opened(pair, replace(windows[0], frames=windows[0].frames[:0]), 0, is_static=True),
    )
    opened.do(opened.sequence.read_ahead(window.frames[0], 0))

    def fail(self: ModelRunner, reading: Reading) -> None:
        reading.row.room(reading.inputs, 0)[..., reading.row.length :, :] = torch.nan
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(ModelRunner, "_read_row", fail)
        with pytest.raises(MemoryError):
            opened.do(opened.sequence.read_ahead(window.frames[1], 1))
    opened.do(opened.sequence.fit(window.frames, range(len(window.frames))))
    opened.do(opened.sequence.ask(QUESTION, Trace()))
    opened.logits(DraftTree(), (), 9)
    # A static pass, which multiplies with all of the row.
    assert close(opened.logits(chain([5, 6])), logits(pair, window, [9, 5, 6])[1:])
