"""A trained draft head as a proposer."""

from __future__ import annotations

from dataclasses import replace

import torch

from crossspec_ros.drafting.heads.head import Head
from crossspec_ros.drafting.proposer import Context, PassResult, Proposer
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.base import VideoTarget


class HeadProposer(Proposer):
    """Drafts with a head, under its name."""

    listed = "heads"

    def __init__(self, name: str, head: Head) -> None:
        self.name, self._head = name, head
        self.needs, self.taps = head.needs, head.taps
        # The target's states since the head was last asked.
        self._unread: list[tuple[tuple[int, ...], torch.Tensor, torch.Tensor | None]] = []

    def load(self, target: VideoTarget) -> None:
        """Let the head use the target's embeddings and head."""
        self._head.attach(target)
        self._head.eval()

    @torch.inference_mode()
    def prepare(self, context: Context, budget: int, min_prob: float) -> bool:
        self._synchronize(context)
        return self._head.prepare(context)

    @torch.inference_mode()
    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        for following, states, taps in self._unread:
            self._head.read(following, states, taps)
        self._unread.clear()
        self._synchronize(context)
        tree = self._head.propose(context, budget, min_prob)
        return replace(tree, sources=((self.name,),) * len(tree))

    @torch.inference_mode()
    def observe(self, result: PassResult) -> None:
        """Keep the target's states, which the head reads once it is asked."""
        if "hidden" not in self.needs or result.step is None or result.step.hidden is None:
            return
        question: tuple[int, ...] = ()
        if not result.context.tokens:
            question = result.context.prompt_ids[1:]
            self._unread.clear()
            self._head.begin()
        states, taps = result.step.hidden.accepted(), result.step.hidden.tapped(self.taps)
        following = (question + result.tokens)[-len(states) :]
        # A family may close its prompt with more than ids.
        beyond = len(states) - len(following)
        self._unread.append((following, states[beyond:], taps if taps is None else taps[beyond:]))

    def _synchronize(self, context: Context) -> None:
        """Wait for frames and the draft's states, which are made in other CUDA streams."""
        read = context.frames if "frames" in self.needs else ()
        read += context.draft_states if "events" in self.needs else ()
        for device in {tensor.device for tensor in read if tensor.is_cuda}:
            torch.cuda.synchronize(device)
