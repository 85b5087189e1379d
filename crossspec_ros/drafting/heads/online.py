"""Online distillation: a head goes on learning from what the target has verified, while the robot runs."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from torch import Tensor, nn

from crossspec_ros.drafting.heads.head import Head, Pairs
from crossspec_ros.drafting.proposer import PassResult

KEPT = 64
"""Captions that are remembered."""
A_STEP = 4
"""Captions that a step learns from; one of them is the latest."""
LEARNING_RATE = 1e-4


class OnlineDistillation:
    """Teaches a head after each caption, as in online speculative decoding (Liu et al., 2024).

    The captions verify everything, so whatever it learns can make them slower at worst.
    """

    def __init__(self, head: Head) -> None:
        self._head = head.requires_grad_(True)
        self._optimizer = torch.optim.AdamW(head.parameters(), LEARNING_RATE, (0.9, 0.95), weight_decay=0.0)
        self._captions: deque[Pairs] = deque(maxlen=KEPT)
        self._random = np.random.default_rng(0)
        self._states: list[Tensor] = []
        self._taps: list[Tensor] = []
        # The question of the answer that these are of, and its tokens so far.
        self._answer: tuple[tuple[int, ...], tuple[int, ...]] = (), ()
        self.learned = 0
        """Captions since the start."""

    def observe(self, result: PassResult) -> None:
        """Keep what the pass was; once the caption is complete, it can be learned from."""
        if result.step is None or result.step.hidden is None:
            return
        context = result.context
        if not context.tokens:
            self._states, self._taps = [], []
        elif (context.prompt_ids, context.tokens) != self._answer:
            # The last pass of an answer may be told after those of another that came between.
            return
        self._answer = context.prompt_ids, context.tokens + result.tokens
        self._states.append(result.step.hidden.accepted())
        taps = result.step.hidden.tapped(self._head.taps)
        self._taps += [] if taps is None else [taps]
        lacks = ("events" in self._head.needs and context.feature is None) or (
            "frames" in self._head.needs and not context.frames
        )
        if result.ended and not lacks and (caption := self._caption(result)) is not None:
            self._captions.append(caption)
            self.learned += 1

    def step(self) -> None:
        """One step of the optimizer; nothing before the first caption."""
        if not self._captions:
            return
        older = self._random.integers(0, len(self._captions), A_STEP - 1)
        # Proposers run in inference mode.
        with torch.inference_mode(False), torch.enable_grad():
            for i in (-1, *older.tolist()):
                (self._head.loss(self._captions[i]) / A_STEP).backward()
            nn.utils.clip_grad_norm_(self._head.parameters(), 1.0)
            self._optimizer.step()
            self._optimizer.zero_grad()

    def _caption(self, result: PassResult) -> Pairs | None:
        context = result.context
        tokens, question = context.tokens + result.tokens, context.prompt_ids
        # What was accepted behind the end of the response counts no more.
        end = sum(map(len, self._states)) - max(0, 1 + len(result.path) - len(result.tokens))
        # A family may close its prompt with more than ids.
        begin = end - (len(question) - 1 + len(tokens))
        if begin < 0:
            return None  # some of its passes were not seen
        with torch.inference_mode(False):
            states = torch.cat(self._states).float()
            taps = torch.cat(self._taps).float() if self._taps else states.new_zeros(len(states), 0)
            seen = context.frames if "frames" in self._head.needs else ()
            frames = torch.cat(seen).float() if seen else states.new_zeros(0, states.shape[1])
            feature = None if context.feature is None else torch.from_numpy(context.feature).to(states)[None]
            return Pairs(
                tokens=torch.tensor([tokens], device=states.device),
                question=torch.tensor(question, device=states.device),
                states=states[None, begin:end],
                taps=taps[None, begin:end],
                frames=frames[None],
                frames_seen=torch.ones(1, len(frames), dtype=torch.bool, device=states.device),
                units=tuple(map(len, seen)),
                feature=feature,
            )
