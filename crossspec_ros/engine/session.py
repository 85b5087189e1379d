"""The target's state for one window: what it has seen and said, as a KV cache that grows with the frames."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from tokenizers import Tokenizer

from crossspec_ros.engine.target_model import TargetModel
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.engine.tree_attention import attention_mask, positions
from crossspec_ros.models.prompts import target_prompt_ids
from crossspec_ros.models.transfer import to_device
from crossspec_ros.telemetry.trace import Trace


class TargetSession:
    """Append the frames as they come, then the question, then let the target verify trees and commit paths.

    Frames may be prefilled one by one or all with the question; both are exact, for Video-LLaVA's port
    encodes frames independently and its language model is causal. The first `verify` reads the question and
    the first tree in one pass: fused prefill-verify.
    """

    def __init__(self, target: TargetModel, trace: Trace) -> None:
        self._pair, self._features, self._trace = target.pair, target.features, trace
        self._reader = target.readers.take(self)
        # What follows the cache and the target has not read yet: (tokens, width).
        self._unread = self._embed(target_prompt_ids(self._pair.target_tokenizer, "")[0])
        self._prefix: int | None = None
        self._nodes = 0
        self.question_ids: tuple[int, ...] = ()
        self.frames: list[np.ndarray] = []
        """What it has seen, in order."""
        self.passes = 0
        """Passes that gave logits; those that only take in a frame do not count."""

    @property
    def unread(self) -> int:
        """Tokens that the next pass reads before it comes to the tree."""
        return len(self._unread)

    def append_frame(self, frame: np.ndarray) -> None:
        """Encode the next (H, W, 3) uint8 RGB frame, unless its features are known."""
        with self._trace.span(f"frame_encode[{len(self.frames)}]"):
            self._unread = torch.cat([self._unread, self._features.encode(frame)])
        self.frames.append(frame)

    def prefill(self) -> None:
        """Read the frames that have been appended, ahead of the question."""
        with self._trace.span(f"target_prefill[{len(self.frames) - 1}]"):
            self._read(DraftTree())

    def append_prompt(self, question: str) -> None:
        """Let the question follow the frames; the next `verify` reads it together with its tree.

        A further question takes the place of the one before and of its answer; the frames stay read.
        """
        if self._prefix is None:
            self._prefix = self._reader.length + self.unread
        else:
            self._reader.keep(self._prefix)
            self._unread = self._unread[:0]
        self.question_ids = _question_ids(self._pair.target_tokenizer, question)
        self._unread = torch.cat([self._unread, self._embed(self.question_ids)])

    def verify(self, tree: DraftTree) -> torch.Tensor:
        """Read what is unread and put the tree to the target as its continuation.

        Returns the (1 + nodes, vocabulary) logits after the last token before the tree and after each node.
        """
        hidden = self._read(tree)
        self.passes += 1
        self._nodes = len(tree)
        return self._pair.target.lm_head(hidden[len(hidden) - len(tree) - 1 :])

    def commit(self, path: tuple[int, ...], next_token: int) -> None:
        """Keep the nodes of `path` of the last tree, from the root down, and append `next_token`."""
        verified = self._reader.length - self._nodes
        self._reader.keep(verified, [verified + node for node in path])
        self._unread = self._embed([next_token])

    def _read(self, tree: DraftTree) -> torch.Tensor:
        """The (unread + nodes, width) last hidden states; all of it is in the cache afterwards."""
        cached, unread = self._reader.length, len(self._unread)
        inputs = torch.cat([self._unread, self._embed(tree.token_ids)])
        self._unread = self._unread[:0]
        mask = attention_mask(cached, unread, tree, inputs.dtype)
        return self._reader.read(inputs, positions(cached, unread, tree), mask)

    def _embed(self, ids: Sequence[int]) -> torch.Tensor:
        words = self._pair.target.get_input_embeddings()
        return words(to_device(torch.tensor(ids, dtype=torch.long), words.weight.device))


@lru_cache
def _question_ids(tokenizer: Tokenizer, question: str) -> tuple[int, ...]:
    """Every window is asked the same, and at its close there is no time to lose."""
    return tuple(target_prompt_ids(tokenizer, question)[1])
