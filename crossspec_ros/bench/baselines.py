"""What our decoder is compared with, on the same windows: other decoders of the same target.

Every one of them is lossless too, so they differ in time and passes only.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import DynamicCache, GenerationConfig, LlamaForCausalLM, LlamaModel

from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.draft_model import DraftModel
from crossspec_ros.drafting.event_draft import EventDraft
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context, Outcome
from crossspec_ros.engine.accept import agreement, greedy_path
from crossspec_ros.engine.session import TargetSession
from crossspec_ros.engine.target_model import TargetModel
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.loading import ModelPair
from crossspec_ros.models.preprocess import clip_pixels
from crossspec_ros.models.prompts import target_prompt_ids
from crossspec_ros.models.transfer import to_device
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

Baseline = Callable[[Window, str, Trace], tuple[int, ...]]
"""Greedy token ids of a window's caption; its stages become spans, the first token a mark."""

_LIMIT = 64
_LOOKUP_TOKENS = 8


class TransformersGenerate:
    """transformers' own `generate`.

    `plain`, from pixels and ids; `lookup`, prompt lookup; `assisted`, with the draft's language model as the
    assistant, which sees the text only: transformers has no place for a draft with other eyes. The latter two
    cannot take a video, so they get our one-shot encoding of the frames as words.
    """

    def __init__(self, pair: ModelPair, how: str) -> None:
        self._pair, self._how = pair, how
        if how != "plain":
            self._target = _text_model(pair.target.model.language_model, pair.target.lm_head, pair)
        self._options: dict[str, Any] = {}
        if how == "lookup":
            self._options = {"prompt_lookup_num_tokens": _LOOKUP_TOKENS}
        elif how == "assisted":
            draft = _text_model(pair.draft.model, pair.draft.lm_head, pair)
            self._options = {"assistant_model": draft}

    @torch.inference_mode()
    def __call__(self, window: Window, question: str, trace: Trace) -> tuple[int, ...]:
        inputs = target_inputs(self._pair, window, question)
        model = self._pair.target if self._how == "plain" else self._with_video(inputs, trace)
        ids = inputs["input_ids"]
        with trace.span("decode"):
            out = model.generate(
                **inputs,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=_LIMIT,
                eos_token_id=self._pair.eos_id,
                pad_token_id=self._pair.eos_id,
                **self._options,
            )
            return tuple(out[0, ids.shape[1] :].tolist())

    def _with_video(self, inputs: dict[str, torch.Tensor], trace: Trace) -> LlamaForCausalLM:
        """The language model with a word for each video token, so that `generate` needs ids only."""
        pair, pixels, ids = self._pair, inputs.pop("pixel_values_videos"), inputs["input_ids"]
        with trace.span("frame_encode"):
            video = pair.target.model.get_video_features(pixels).pooler_output.flatten(0, -2)
        words = pair.target.get_input_embeddings().weight
        places = torch.arange(len(words), len(words) + len(video), device=ids.device)
        ids[ids == pair.target.config.video_token_index] = places
        self._target.model.embed_tokens = nn.Embedding.from_pretrained(torch.cat([words, video]))
        self._target.config.vocab_size = len(words) + len(video)  # prompt lookup may come upon them
        if assistant := self._options.get("assistant_model"):
            own = pair.draft.get_input_embeddings().weight
            blank = own.new_zeros(len(words) + len(video) - len(own), own.shape[1])
            assistant.model.embed_tokens = nn.Embedding.from_pretrained(torch.cat([own, blank]))
            assistant.config.vocab_size = self._target.config.vocab_size
        return self._target


def target_inputs(pair: ModelPair, window: Window, question: str) -> dict[str, torch.Tensor]:
    """What transformers' target takes: the prompt's ids and the frames' pixels."""
    before, after = target_prompt_ids(pair.target_tokenizer, question)
    config = pair.target.config
    ids = [*before, *[config.video_token_index] * config.video_seq_length, *after]
    pixels = to_device(clip_pixels(window.frames, pair.frame_size)[None], pair.target.device)
    return {
        "input_ids": to_device(torch.tensor([ids]), pair.target.device),
        "pixel_values_videos": pixels.to(pair.target.dtype),
    }


def _text_model(body: nn.Module, head: nn.Module, pair: ModelPair) -> LlamaForCausalLM:
    """A language model that shares the weights of `body` and `head` but has embeddings of its own."""
    config = copy.deepcopy(body.config)
    with torch.device("meta"):
        model, shell = LlamaForCausalLM(config), LlamaModel(config)
    shell.layers, shell.norm, shell.rotary_emb = body.layers, body.norm, body.rotary_emb
    model.model, model.lm_head = shell, head
    model.generation_config = GenerationConfig(eos_token_id=pair.eos_id, pad_token_id=pair.eos_id)
    return model.eval()


class FixedGamma:
    """Standard speculative decoding (Leviathan et al., ICML 2023): gamma tokens of the draft a round."""

    def __init__(self, pair: ModelPair, gamma: int) -> None:
        self._pair, self._gamma = pair, gamma

    def __call__(self, window: Window, question: str, trace: Trace) -> tuple[int, ...]:
        proposer = _DraftAsYouGo(self._pair, window, question, self._gamma, trace)
        decoder = PrefillHiddenDecoder(self._pair, Policy((proposer,), None), _LIMIT)
        try:
            return decoder.caption(window, question, trace).token_ids
        finally:
            decoder.close()


class _DraftAsYouGo:
    """The event draft continues what the target has verified, a few tokens at a time."""

    name = "event_draft"

    def __init__(self, pair: ModelPair, window: Window, question: str, gamma: int, trace: Trace) -> None:
        self._model, self._gamma, self._shared = pair.draft, gamma, pair.shared_ids
        self._embed = pair.draft.get_input_embeddings()
        self._cache = DynamicCache(config=pair.draft.config)
        self._read: list[int] = []
        draft = EventDraft(pair, window.event_images, question, gamma)
        with torch.inference_mode(), trace.span("event_encode"):
            prompt = draft.prompt()
        with torch.inference_mode(), trace.span("draft_prefill"):
            self._next = self._forward(prompt)

    @torch.inference_mode()
    def propose(self, context: Context, budget: int, worth: float) -> DraftTree:
        said = list(context.tokens)
        if said:
            # Forget what the target refused, and read at least its last token to know what follows.
            kept = agreement(self._read, said[:-1])
            if kept < len(self._read):
                self._cache.crop(kept - len(self._read))
            self._next = self._forward(self._embed(torch.tensor([said[kept:]])))
            self._read = said
        tokens: list[int] = []
        while self._next < self._shared:
            tokens.append(self._next)
            if len(tokens) == self._gamma:
                break
            self._next = self._forward(self._embed(torch.tensor([tokens[-1:]])))
            self._read = [*said, *tokens]
        return DraftTree.chain(tokens, [1.0] * len(tokens), self.name)

    def _forward(self, inputs: torch.Tensor) -> int:
        logits = self._model(
            inputs_embeds=inputs, past_key_values=self._cache, use_cache=True, logits_to_keep=1
        ).logits
        return int(logits[0, -1].argmax())

    def observe(self, outcome: Outcome) -> None:
        """It learns nothing."""


class PublishedPrefillHiding:
    """Draft beside the target's one-shot prefill, verify what is there as a chain, then go on alone.

    It has buffers, graphs and streams as ours has them. The draft ends when it has been asked: it has nothing
    more to tell, and would only slow the target down.
    """

    max_new_tokens = _LIMIT

    def __init__(self, pair: ModelPair, is_static: bool | None = None) -> None:
        self.pair, self._target = pair, TargetModel(pair, is_static)
        self._draft = DraftModel(pair, is_static)
        self._target.warm_up(1)
        self._draft.warm_up()

    @torch.inference_mode()
    def __call__(self, window: Window, question: str, trace: Trace) -> tuple[int, ...]:
        draft, asked = self._event_draft(window.event_images, question), threading.Event()
        running = self._draft.submit(draft.run, trace, asked.is_set)
        eos, tokens = self.pair.eos_id, list[int]()
        with self._target.lane():
            session = TargetSession(self._target, trace)
            for frame in window.frames:
                session.append_frame(frame)
            session.append_prompt(question)
            tree = DraftTree()
            while not tokens or (tokens[-1] != eos and len(tokens) < self.max_new_tokens):
                stage = "verify" if len(tree) else "decode" if tokens else "target_prefill"
                with trace.span(f"{stage}[{session.passes}]"):
                    path, following = self._choose(tree, session.verify(tree), len(tokens))
                session.commit(path, following)
                tokens += [*(tree.token_ids[node] for node in path), following]
                trace.mark("first_token")
                if eos in tokens:
                    tokens = tokens[: tokens.index(eos) + 1]
                tree = DraftTree()
                if not asked.is_set():
                    proposal = draft.proposal()[0]
                    asked.set()
                    # It fits if it begins as the target does.
                    if proposal[:1] == tuple(tokens):
                        chain = DraftTree.chain(proposal[1:], [1.0] * len(proposal[1:]), "event_draft")
                        tree = chain.cut(self.max_new_tokens - len(tokens) - 1)
        running.result()
        return tuple(tokens)

    def close(self) -> None:
        """End the draft's thread."""
        self._draft.close()

    def _event_draft(self, images: np.ndarray, question: str) -> EventDraft:
        return EventDraft(self.pair, images, question, self.max_new_tokens, self._draft.readers)

    def _choose(self, tree: DraftTree, logits: torch.Tensor, said: int) -> tuple[tuple[int, ...], int]:
        return greedy_path(tree, logits.argmax(-1).tolist())
