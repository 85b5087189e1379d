"""A trained draft head as a proposer: what the target has read it reads when it is asked."""

from __future__ import annotations

import torch

from crossspec_ros.drafting.heads.head import Head
from crossspec_ros.drafting.proposer import Context, PassResult, Proposer
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.base import VideoTarget


class HeadProposer(Proposer):
    """Draft with a head, under its name."""

    listed = "heads"

    def __init__(self, name: str, head: Head) -> None:
        self.name, self._head = name, head
        self.needs, self.taps = head.needs, head.taps
        # What the target has read since the head was last asked.
        self._unread: list[tuple[tuple[int, ...], torch.Tensor, torch.Tensor | None]] = []
        self._has_begun = False

    def load(self, target: VideoTarget) -> None:
        """Let it use the target's embeddings and head."""
        self._head.attach(target)
        self._head.eval()

    @torch.inference_mode()
    def prepare(self, context: Context, budget: int, worth: float) -> bool:
        self._awaited(context)
        return self._head.prepare(context)

    @torch.inference_mode()
    def propose(self, context: Context, budget: int, worth: float) -> DraftTree:
        if not self._has_begun or not context.tokens:
            self._head.begin()
            self._has_begun = True
        for following, states, taps in self._unread:
            self._head.read(following, states, taps)
        self._unread.clear()
        self._awaited(context)
        guess = self._head.propose(context, budget, worth)
        return DraftTree(guess.ids, guess.parents, guess.probs, ((self.name,),) * len(guess.ids))

    @torch.inference_mode()
    def observe(self, result: PassResult) -> None:
        """Keep what the target's states were; a head reads them once it is asked."""
        if "hidden" not in self.needs or result.step is None or result.step.hidden is None:
            return
        if result.ended:
            self._unread.clear()
            return
        states, taps = result.step.hidden.accepted(), result.step.hidden.tapped(self.taps)
        known = result.context.prompt_ids[1:] if not result.context.tokens else ()
        if not result.context.tokens:
            self._unread.clear()
            self._has_begun = False
        following = (known + result.tokens)[-len(states) :]
        # A family may close its prompt with more than ids.
        beyond = len(states) - len(following)
        states, taps = states[beyond:], taps if taps is None else taps[beyond:]
        self._unread.append((following, states, taps))

    def _awaited(self, context: Context) -> None:
        """Frames and the draft's states are made in other streams, which may still be at work."""
        read = context.frames if "frames" in self.needs else ()
        read += context.draft_states if "events" in self.needs else ()
        for device in {tensor.device for tensor in read if tensor.is_cuda}:
            torch.cuda.synchronize(device)
