"""A trained draft head as a proposer: what the target has read it reads when it is asked."""

from __future__ import annotations

from pathlib import Path

import torch

from crossspec_ros.drafting.heads.files import load_head
from crossspec_ros.drafting.heads.head import Head
from crossspec_ros.drafting.proposer import Context, PassResult, Proposer
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.base import VideoTarget


class HeadProposer(Proposer):
    """Drafts with the head in `folder`, by whose name it is called."""

    listed = "heads"

    def __init__(self, folder: Path, head: Head | None = None) -> None:
        self.name, self._folder = folder.name, folder
        self._head = head
        # What the target has read since the head was last asked.
        self._unread: list[tuple[tuple[int, ...], torch.Tensor, torch.Tensor | None]] = []
        self._has_begun = False

    def load(self, target: VideoTarget) -> None:
        """Load its weights; raises InputError where they are missing, damaged, or of another target."""
        if self._head is None:
            self._head = load_head(self._folder, target)
        self._head.attach(target)
        self._head.eval()
        self.needs, self.taps = self._head.needs, self._head.taps

    @torch.inference_mode()
    def prepare(self, context: Context, budget: int, worth: float) -> None:
        """Let it draft ahead, if it knows enough."""
        if all(getattr(context, need, ()) for need in self.needs):
            self._awaited(context)
            self._loaded.prepare(context)

    @torch.inference_mode()
    def propose(self, context: Context, budget: int, worth: float) -> DraftTree:
        """At most `budget` nodes, down to path probability `worth`."""
        if not self._has_begun or not context.tokens:
            self._loaded.begin()
            self._has_begun = True
        for following, states, taps in self._unread:
            self._loaded.read(following, states, taps)
        self._unread.clear()
        self._awaited(context)
        guess = self._loaded.propose(context, budget, worth)
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

    @property
    def _loaded(self) -> Head:
        assert self._head is not None
        return self._head

    def _awaited(self, context: Context) -> None:
        """Frames and the draft's states are made in other streams, which may still be at work."""
        for tensors in (context.frames, context.draft_states):
            if tensors and tensors[0].is_cuda:
                torch.cuda.synchronize(tensors[0].device)
