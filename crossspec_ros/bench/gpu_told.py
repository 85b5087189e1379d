"""Decoders that compute as usual but are told what to say: recorded responses, with models that know nothing.

So the time of a real model's captions is measured without its weights: what is accepted follows the record.
"""

from __future__ import annotations

import numpy as np
import torch

from crossspec_ros.bench.baselines import PublishedPrefillHiding
from crossspec_ros.bench.trace import Response
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.event_draft import EventDraft
from crossspec_ros.engine.runner import Readers
from crossspec_ros.engine.tree import DraftTree, follow
from crossspec_ros.models.base import to_device
from crossspec_ros.models.loading import ModelPair
from crossspec_ros.models.preprocess import clip_pixels
from crossspec_ros.models.video_llava import target_prompt_ids
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class ToldDraft(EventDraft):
    """Takes as many steps as the recorded draft has tokens, and proposes those, surely."""

    def __init__(
        self, pair: ModelPair, images: np.ndarray, question: str, told: tuple[int, ...], readers: Readers
    ) -> None:
        super().__init__(pair, images, question, len(told), readers)
        self._told = told

    @property
    def ended(self) -> bool:
        return len(self._tokens) >= self._limit

    def proposal(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        said = self._told[: len(self._tokens)]
        return said, (1.0,) * len(said)


class ToldDecoder(PrefillHiddenDecoder):
    """Captions every window with the response that it was told last."""

    _told = Response((), ())
    _said = 0

    def warm_up_alone(self) -> None:
        """Take one set of buffers, enough for windows that are not read ahead; gigabytes each at 7B."""
        self._target.warm_up(1)

    def tell(self, response: Response) -> None:
        """What the next window's caption will be."""
        self._told, self._said = response, 0
        self.max_new_tokens = len(response.target)

    def _choose(self, tree: DraftTree, logits: torch.Tensor) -> tuple[tuple[int, ...], int]:
        super()._choose(tree, logits)
        path, following = follow_text(tree, self._told.target, self._said)
        self._said += len(path) + 1
        return path, following

    def _event_draft(self, images: np.ndarray, question: str) -> EventDraft:
        return ToldDraft(self.pair, images, question, self._told.draft, self._draft.readers)


class ToldPrefillHiding(PublishedPrefillHiding):
    """The published prefill hiding, with told captions too."""

    _told = Response((), ())

    def tell(self, response: Response) -> None:
        """What the next window's caption will be."""
        self._told, self.max_new_tokens = response, len(response.target)

    def _choose(self, tree: DraftTree, logits: torch.Tensor, said: int) -> tuple[tuple[int, ...], int]:
        super()._choose(tree, logits, said)
        return follow_text(tree, self._told.target, said)

    def _event_draft(self, images: np.ndarray, question: str) -> EventDraft:
        return ToldDraft(self.pair, images, question, self._told.draft, self._draft.readers)


class ToldGenerate:
    """transformers' own `generate` from pixels and ids, which writes as many tokens as the response has."""

    def __init__(self, pair: ModelPair) -> None:
        self._pair = pair

    @torch.inference_mode()
    def __call__(self, window: Window, response: Response, question: str, trace: Trace) -> None:
        pair, length = self._pair, len(response.target)
        before, after = target_prompt_ids(pair.target_tokenizer, question)
        video = [pair.target.config.video_token_index] * pair.target.config.video_seq_length
        prompt = [*before, *video, *after]
        ids = to_device(torch.tensor([prompt]), pair.target.device)
        pixels = to_device(clip_pixels(window.frames, pair.frame_size)[None], pair.target.device)
        with trace.span("decode"):
            out = pair.target.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                pixel_values_videos=pixels.to(pair.target.dtype),
                do_sample=False,
                min_new_tokens=length,
                max_new_tokens=length,
                eos_token_id=pair.eos_id,
                pad_token_id=pair.eos_id,
            )
            out.tolist()


def follow_text(tree: DraftTree, text: tuple[int, ...], said: int) -> tuple[tuple[int, ...], int]:
    """The nodes that go on as `text` does after its first `said` tokens, and its token after the last of
    them.

    The tree must end at least one token before the text does.
    """
    depths = [0, *tree.depths()]
    return follow(tree, lambda node: text[said + depths[1 + node]])
