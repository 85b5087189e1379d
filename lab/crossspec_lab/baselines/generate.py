"""transformers' own `generate`: plain, with prompt lookup, and with an assistant."""

from __future__ import annotations

import copy
from typing import Any, cast

import numpy as np
import torch
from llguidance import LLMatcher
from llguidance.hf import from_tokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from crossspec_lab.baselines.generate_inputs import generate_inputs
from crossspec_lab.baselines.one_shot import LIMIT, Written
from crossspec_ros.models.base import LanguageModel, VideoTarget
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

_LOOKUP_TOKENS = 8
_SPACES: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class TransformersGenerate:
    """transformers' own `generate`.

    It runs `plain` from pixels and ids, with prompt `lookup`, or `assisted` by the draft's language model.
    The latter two cannot take a video, so they get our one-shot encoding of the frames as words. The
    assistant reads the text only, because transformers supports no draft with other inputs. Answers follow a
    JSON `schema`, if there is one.
    """

    def __init__(self, pair: ModelPair, how: str, schema: str = "", limit: int = LIMIT) -> None:
        self._pair, self._how, self._limit = pair, how, limit
        self._mask = SchemaMask(pair.target, schema) if schema else None
        if how != "plain":
            self._target = _text_model(pair.target, pair.target.spec.eos_ids[0])
        self._options: dict[str, Any] = {}
        if how == "lookup":
            self._options = {"prompt_lookup_num_tokens": _LOOKUP_TOKENS}
        elif how == "assisted":
            assert pair.draft is not None
            self._options = {"assistant_model": _text_model(pair.draft, pair.target.spec.eos_ids[0])}

    @torch.inference_mode()
    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        target, eos_ids = self._pair.target, self._pair.target.spec.eos_ids
        if self._how == "plain":
            model, inputs = target.module, generate_inputs(target, window.frames, question)
        else:
            model, inputs = self._with_words(window, question, trace)
        if self._mask is not None:
            self._mask.begin(inputs["input_ids"].shape[1])
        with trace.span("decode"):
            out = model.generate(
                **inputs,
                # SmolVLM2's config switches the cache off.
                use_cache=True,
                do_sample=False,
                max_new_tokens=self._limit,
                eos_token_id=list(eos_ids),
                pad_token_id=eos_ids[0],
                **({"logits_processor": LogitsProcessorList([self._mask])} if self._mask else {}),
                **self._options,
            )
            return Written(tuple(out[0, inputs["input_ids"].shape[1] :].tolist()))

    def _with_words(
        self, window: Window, question: str, trace: Trace
    ) -> tuple[PreTrainedModel, dict[str, torch.Tensor]]:
        """Return the language model with a word for each frame token, so that `generate` needs ids only."""
        target, (before, after) = self._pair.target, self._pair.target.prompt_ids(question)
        with trace.span("frame_encode"):
            chunks = [target.unit(features, i) for i, features in enumerate(target.encode(window.frames))]
            closing = target.closing(question).embeds
            video = torch.cat([*(chunk.embeds for chunk in chunks), closing[: len(closing) - len(after)]])
        words = target.module.get_input_embeddings().weight
        positions = range(len(words), len(words) + len(video))
        self._target.set_input_embeddings(nn.Embedding.from_pretrained(torch.cat([words, video])))
        self._target.config.vocab_size = len(words) + len(video)  # prompt lookup may find them
        if assistant := self._options.get("assistant_model"):
            draft: Any = self._pair.draft
            own = draft.module.get_input_embeddings().weight
            blank = own.new_zeros(len(words) + len(video) - len(own), own.shape[1])
            assistant.set_input_embeddings(nn.Embedding.from_pretrained(torch.cat([own, blank])))
            assistant.config.vocab_size = self._target.config.vocab_size
        ids = torch.tensor([[*before, *positions, *after]], device=target.device)
        return self._target, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _text_model(model: LanguageModel, eos_id: int) -> PreTrainedModel:
    """Return a language model with the weights of another and embeddings of its own."""
    with torch.device("meta"):
        text: Any = AutoModelForCausalLM.from_config(copy.deepcopy(model.body.config))
    shell, module = text.base_model, cast(Any, model.module)
    shell.layers, shell.norm, shell.rotary_emb = model.body.layers, model.body.norm, model.body.rotary_emb
    text.lm_head = module.lm_head
    text.generation_config = GenerationConfig(eos_token_id=eos_id, pad_token_id=eos_id)
    return text.eval()


class SchemaMask(LogitsProcessor):
    """Mask the tokens that may not come next; `begin` sets the length of the next prompt."""

    def __init__(self, target: VideoTarget, schema: str) -> None:
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=target.tokenizer)
        self._tokens = from_tokenizer(tokenizer, eos_token=list(target.spec.eos_ids))
        self._grammar = LLMatcher.grammar_from_json_schema(schema, overrides=_SPACES)
        self.begin(0)

    def begin(self, prompt_tokens: int) -> None:
        """Forget the answer before."""
        self._prompt_tokens = prompt_tokens
        self._matcher = LLMatcher(self._tokens, self._grammar)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] > self._prompt_tokens:
            self._matcher.consume_token(int(input_ids[0, -1]))
        mask = allocate_token_bitmask(1, self._tokens.vocab_size)
        fill_next_token_bitmask(self._matcher, mask)
        allowed = np.unpackbits(mask.view(np.uint8)[0], count=self._tokens.vocab_size, bitorder="little")
        forbidden = torch.ones(scores.shape[1], dtype=torch.bool)
        forbidden[: len(allowed)] = torch.from_numpy(allowed == 0)
        return scores.masked_fill(forbidden.to(scores.device), -torch.inf)
