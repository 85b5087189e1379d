"""transformers' own captions and logits, without code of crossspec_ros; scripted proposers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.captioning.caption import Caption, Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.draft_model import DraftModel, EventDraft
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context, PassResult, Proposer
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.preprocess import clip_pixels
from crossspec_ros.models.video_llava import VideoLlava
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def prompt(pair: ModelPair, frames: int, question: str) -> list[int]:
    before, after = VideoLlava.texts(pair.target.tokenizer, question)
    config = pair.target.module.config  # type: ignore[union-attr]
    video = [config.video_token_index] * (config.video_seq_length // pair.target.spec.frames * frames)
    return [*before, *video, *after]


def generated(
    pair: ModelPair, window: Window, limit: int = 64, question: str = QUESTION, **options: Any
) -> tuple[int, ...]:
    """Return transformers' own greedy tokens, which are cached."""
    if options:
        return _generated(pair, window, limit, question, options)
    module = pair.target.module
    frames = sha256(np.ascontiguousarray(window.frames)).digest()
    key = (frames, window.frames.shape, module.dtype, limit, question)
    written = _WRITTEN.setdefault(module, {})
    if key not in written:
        written[key] = _generated(pair, window, limit, question, {})
    return written[key]


_WRITTEN: WeakKeyDictionary[torch.nn.Module, dict[tuple[Any, ...], tuple[int, ...]]] = WeakKeyDictionary()


@torch.inference_mode()
def _generated(
    pair: ModelPair, window: Window, limit: int, question: str, options: dict[str, Any]
) -> tuple[int, ...]:
    ids = prompt(pair, len(window.frames), question)
    out = pair.target.module.generate(
        input_ids=torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        pixel_values_videos=clip_pixels(window.frames, pair.target.spec.image_size)[None],
        do_sample=False,
        max_new_tokens=limit,
        **options,
    )
    return tuple(out[0, len(ids) :].tolist())


@torch.inference_mode()
def logits(pair: ModelPair, window: Window, tokens: Sequence[int], question: str = QUESTION) -> torch.Tensor:
    """Return (1 + tokens, vocabulary) logits after the prompt and after each of `tokens`, in one pass."""
    ids = [*prompt(pair, len(window.frames), question), *tokens]
    out = pair.target.module(
        input_ids=torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        pixel_values_videos=clip_pixels(window.frames, pair.target.spec.image_size)[None],
    ).logits
    return out[0, len(ids) - len(tokens) - 1 :]


class Guess(Proposer):
    """Proposes the tree that a function returns for the context, and records the results."""

    name = "guess"

    def __init__(self, guess: Callable[[Context], DraftTree]) -> None:
        self._guess = guess
        self.results: list[PassResult] = []

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        return self._guess(context)

    def observe(self, result: PassResult) -> None:
        self.results.append(result)


def chain(tokens: Sequence[int]) -> DraftTree:
    return DraftTree.chain(tokens, [0.9] * len(tokens), Guess.name)


def script(tokens: Sequence[int]) -> Guess:
    """Return a proposer that always drafts the rest of `tokens`."""
    return Guess(lambda context: chain(tokens[len(context.tokens) :]))


def caption(
    pair: ModelPair,
    window: Window,
    *proposers: Guess,
    limit: int = 64,
    streamed: bool = False,
    question: str = QUESTION,
) -> Caption:
    """Return the decoder's caption; it verifies all proposed nodes."""
    decoder = PrefillHiddenDecoder(pair, Policy(proposers, None))
    try:
        if streamed:
            stream(decoder, window)
        return decoder.caption(window, Options(question, limit), Trace())
    finally:
        decoder.close()


def stream(
    decoder: PrefillHiddenDecoder, window: Window, count: int = 8, rehearsed: Options | None = None
) -> None:
    """Stream the first frames of an open window, and wait for the prefill of each."""
    for frame, stamp_ns in list(zip(window.frames, window.frame_stamps_ns, strict=True))[:count]:
        read = decoder.stream_frame(window.index, frame, stamp_ns, rehearsed=rehearsed)
        assert read is not None
        read.result(20)


def settled(decoder: PrefillHiddenDecoder) -> None:
    """Wait until the decoder's engine is idle, also without rehearsals and learning."""
    engine: Any = decoder.engine

    def is_idle() -> bool:
        return all(not one.has_more and not one.frames and not one.tasks for one in engine._requests)

    # The engine calls `is_idle` between two turns.
    while not engine._call(is_idle):
        time.sleep(0.001)


def live(decoder: PrefillHiddenDecoder, window: Window) -> None:
    """Stream all images of an open window, and wait for the event drafts."""
    drafts = [
        decoder.stream_event_image(window.index, image, Options(QUESTION)) for image in window.event_images
    ]
    stream(decoder, window)
    for draft in drafts:
        if draft is not None:
            draft.result(20)


def event_draft(pair: ModelPair, images: np.ndarray, question: str, limit: int) -> EventDraft:
    """Return an event draft with a KV pool of its own."""
    assert pair.draft is not None
    return DraftModel(pair.draft, pair.translation).draft(images, question, limit)


def first_frames(window: Window, count: int) -> Window:
    """Return the window with its first `count` frames."""
    return replace(window, frames=window.frames[:count], frame_stamps_ns=window.frame_stamps_ns[:count])
