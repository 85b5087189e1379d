"""Any split of frames, question and trees into passes gives the logits of a single pass."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from draft_trees import path_to, random_tree
from plain_target import QUESTION, chain, logits

from crossspec_ros.engine.model_runner import ModelRunner
from crossspec_ros.engine.sequence import TargetSequence
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.models.base import InputSpec
from crossspec_ros.telemetry.trace import Trace

TOLERANCE = 5e-5


@pytest.fixture(params=["sdpa", "eager"])
def attention(request, pair):
    pair.target.module.set_attn_implementation(request.param)
    yield request.param
    pair.target.module.set_attn_implementation("sdpa")


class Opened:
    """A sequence with the window's frames, of which the first `prefilled` were prefilled one by one."""

    def __init__(self, pair, window, prefilled=0, is_static=False, taps=()):
        target = pair.target
        self.target, room = target, target.spec.frame_tokens + 512
        self.runner = ModelRunner(target.body, room, is_static, head=target.logits)
        self.runner.tap(taps)
        self.runner.warm_up(1)
        self.sequence = TargetSequence(target, self.runner, Trace())
        for i, frame in enumerate(window.frames):
            self.sequence.append(frame, i)
            if i < prefilled:
                self.read()

    def read(self):
        """Prefill the queued frames."""
        self.sequence.was_read(self._pass(DraftTree(), 0)[0], DraftTree())

    def step(self, tree, path=(), following=9):
        """Run a pass with these accepted nodes and this bonus token."""
        input_, output = self._pass(tree, len(tree) + 1)
        self.last = output.logits.clone()
        return self.sequence.keep(input_, tree, path, following, output)

    def logits(self, tree, path=(), following=9):
        """Return the logits of a step."""
        self.step(tree, path, following)
        return self.last

    def encode(self):
        """Encode the queued frames."""
        self.sequence.add([self.target.encode(unit)[0] for unit in self.sequence.units()])

    def _pass(self, tree, logits):
        self.encode()
        input_ = self.sequence.next_input(tree, logits)
        [output] = self.runner.read([input_])
        return input_, output


def close(a, b):
    return bool((a - b).abs().max() < TOLERANCE)


@pytest.mark.usefixtures("attention")
@torch.inference_mode()
def test_tree_nodes_have_logits_of_their_paths(pair, windows):
    rng = random.Random(7)
    for fused in (True, False):
        opened = Opened(pair, windows[1], 8)
        opened.sequence.ask(QUESTION, Trace())
        first = []
        if not fused:
            opened.logits(DraftTree(), (), 9)
            first = [9]
        tree = random_tree(rng, 14, pair.target.vocabulary)
        got = opened.logits(tree)
        for node in range(ROOT, len(tree)):
            tokens = [*first, *(tree.token_ids[i] for i in path_to(tree, node))]
            assert close(got[node + 1], logits(pair, windows[1], tokens)[-1])


@pytest.mark.parametrize("prefilled", [5, 8])
@torch.inference_mode()
def test_step_has_accepted_tokens_and_hidden_states(pair, windows, prefilled):
    opened = Opened(pair, windows[0], prefilled)
    opened.sequence.ask(QUESTION, Trace())
    opened.encode()
    unread, eos = opened.sequence.unread, pair.target.spec.eos_ids[0]
    tree = chain([11, eos, 12])
    step = opened.step(tree, (0, 1, 2), 13)
    assert (step.path, step.tokens, step.ended) == ((0, 1, 2), (11, eos), True)
    assert step.tokens_read == unread + 3
    assert step.hidden is not None
    question, (states, taps) = len(pair.target.prompt_ids(QUESTION)[1]), step.hidden((1,))
    assert len(states) == question + 3 and taps is None
    assert torch.equal(pair.target.logits(states[question - 1 :]), opened.last)
    step = opened.step(DraftTree((11, 12), (ROOT, ROOT), (0.5,) * 2, (("a",),) * 2), (1,), 13)
    assert step.hidden is not None
    assert torch.equal(pair.target.logits(step.hidden(())[0]), opened.last[[0, 2]])


@torch.inference_mode()
@pytest.mark.parametrize("is_static", [False, True])
def test_hidden_returns_inputs_of_tapped_layers(pair, windows, is_static):
    opened = Opened(pair, windows[0], 8, is_static, (3, 1))
    opened.sequence.ask(QUESTION, Trace())
    ids = pair.target.prompt_ids(QUESTION)
    frames = torch.cat(opened.sequence.frames)
    inputs = torch.cat(
        [pair.target.words(ids[0]).embeds, frames, pair.target.words((*ids[1], 11, 12)).embeds]
    )
    tree = DraftTree((12, 11), (ROOT, ROOT), (0.5,) * 2, (("a",),) * 2)
    first = opened.step(tree, (1,), 12)
    assert first.hidden is not None and first.hidden(())[1] is None
    got = [first.hidden((3, 1))[1]]
    second = opened.step(DraftTree())
    assert second.hidden is not None
    got.append(second.hidden((1, 3, 1))[1])
    states = pair.target.body(inputs_embeds=inputs[None], output_hidden_states=True).hidden_states
    wanted = [states[i][0][len(ids[0]) + len(frames) :] for i in range(4)]
    assert got[0] is not None and close(got[0], torch.cat([wanted[3], wanted[1]], -1)[:-1])
    # A proposer may request layers in any order.
    assert got[1] is not None and close(got[1], torch.cat([wanted[1], wanted[3], wanted[1]], -1)[-1:])


@pytest.mark.parametrize(
    ("kept", "new"), [((), 1), ((0, 1, 2), 1), ((0, 1, 2, 3, 5, 6, 7), 4), (tuple(range(8)), 1)]
)
@torch.inference_mode()
def test_fit_keeps_matching_first_frames(pair, windows, kept, new, monkeypatch):
    opened, encoded = Opened(pair, windows[0], 8), list[int]()
    encode = pair.target.encode
    monkeypatch.setattr(
        pair.target, "encode", lambda frames: (encoded.append(len(frames)), encode(frames))[1]
    )
    frames = [*windows[0].frames[list(kept)], *windows[1].frames[:1]]
    opened.sequence.fit(frames, [*kept, 9])
    opened.sequence.ask(QUESTION, Trace())
    shown = replace(windows[0], frames=np.stack(frames))
    assert close(opened.logits(chain([5, 6])), logits(pair, shown, [5, 6]))
    assert sum(encoded) == new


@pytest.mark.parametrize(
    ("per_unit", "read", "ends"),
    [
        pytest.param(1, 4, (False, False, False, True, True), id="the last unit but one"),
        pytest.param(1, 7, (False, True), id="the last unit"),
        pytest.param(2, 4, (False, False, True, True, True), id="units of two frames"),
        pytest.param(2, 6, (False, False, True), id="a frame that completes no unit"),
    ],
)
def test_only_completing_late_frames_end_rehearsal(per_unit, read, ends):
    spec = InputSpec(8, per_unit, 224, 800, 4096, (2,))
    sequence = SimpleNamespace(
        _target=SimpleNamespace(spec=spec),
        frame_count=read,
        _waiting=[],
        _units=[None] * (read // per_unit + 1),
    )
    assert tuple(TargetSequence.ends_rehearsal(sequence, i) for i in range(len(ends))) == ends
