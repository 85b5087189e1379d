"""What our decoder is compared with, on the same windows: other decoders of the same target.

Every one of them is lossless too, so they differ in time and passes only.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn
from transformers import AutoModelForCausalLM, DynamicCache, GenerationConfig, PreTrainedModel

from crossspec_ros.drafting.draft_model import DraftModel
from crossspec_ros.engine.accept import agreement
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.base import LanguageModel
from crossspec_ros.models.pair import ModelPair
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
            self._target = _text_model(pair.target, pair.target.spec.eos_ids[0])
        self._options: dict[str, Any] = {}
        if how == "lookup":
            self._options = {"prompt_lookup_num_tokens": _LOOKUP_TOKENS}
        elif how == "assisted":
            assert pair.draft is not None
            self._options = {"assistant_model": _text_model(pair.draft, pair.target.spec.eos_ids[0])}

    @torch.inference_mode()
    def __call__(self, window: Window, question: str, trace: Trace) -> tuple[int, ...]:
        target, eos_ids = self._pair.target, self._pair.target.spec.eos_ids
        if self._how == "plain":
            model, inputs = target.module, target.inputs(window.frames, question)
        else:
            model, inputs = self._with_words(window, question, trace)
        with trace.span("decode"):
            out = model.generate(  # type: ignore[operator]
                **inputs,
                do_sample=False,
                max_new_tokens=_LIMIT,
                eos_token_id=list(eos_ids),
                pad_token_id=eos_ids[0],
                **self._options,
            )
            return tuple(out[0, inputs["input_ids"].shape[1] :].tolist())

    def _with_words(
        self, window: Window, question: str, trace: Trace
    ) -> tuple[PreTrainedModel, dict[str, torch.Tensor]]:
        """The language model with a word for each token of the frames, so that `generate` needs ids only."""
        target, (before, after) = self._pair.target, self._pair.target.prompt_ids(question)
        with trace.span("frame_encode"):
            chunks = [target.unit(features, i) for i, features in enumerate(target.encode(window.frames))]
            closing = target.closing(question).embeds
            video = torch.cat([*(chunk.embeds for chunk in chunks), closing[: len(closing) - len(after)]])
        words = target.module.get_input_embeddings().weight  # type: ignore[operator]
        places = range(len(words), len(words) + len(video))
        self._target.set_input_embeddings(nn.Embedding.from_pretrained(torch.cat([words, video])))
        self._target.config.vocab_size = len(words) + len(video)  # prompt lookup may come upon them
        if assistant := self._options.get("assistant_model"):
            draft: Any = self._pair.draft
            own = draft.module.get_input_embeddings().weight
            blank = own.new_zeros(len(words) + len(video) - len(own), own.shape[1])
            assistant.set_input_embeddings(nn.Embedding.from_pretrained(torch.cat([own, blank])))
            assistant.config.vocab_size = self._target.config.vocab_size
        ids = torch.tensor([[*before, *places, *after]], device=target.device)
        return self._target, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def text_generates(pair: ModelPair) -> dict[str, TransformersGenerate]:
    """Those by name that give the frames as words.

    A family with several axes cannot take them, and an assistant must share most of the target's vocabulary.
    """
    if pair.target.spec.axes > 1:
        return {}
    found = {"prompt lookup": TransformersGenerate(pair, "lookup")}
    if pair.draft and 2 * pair.shared_ids > pair.draft.tokenizer.get_vocab_size():
        found["assisted"] = TransformersGenerate(pair, "assisted")
    return found


def _text_model(model: LanguageModel, eos_id: int) -> PreTrainedModel:
    """A language model that shares the weights of another but has embeddings of its own."""
    with torch.device("meta"):
        text: Any = AutoModelForCausalLM.from_config(copy.deepcopy(model.body.config))
    shell, module = text.base_model, cast(Any, model.module)
    shell.layers, shell.norm, shell.rotary_emb = model.body.layers, model.body.norm, model.body.rotary_emb
    text.lm_head = module.lm_head
    text.generation_config = GenerationConfig(eos_token_id=eos_id, pad_token_id=eos_id)
    return text.eval()


class _OneShot:
    """Gives the target all frames with the question, then one guess after the other, each from the tokens
    so far."""

    def __init__(self, pair: ModelPair) -> None:
        self.pair, self._engine = pair, LocalEngine(pair.target)
        self._engine.warm_up(1)

    def answer(
        self, window: Window, question: str, trace: Trace, guess: Callable[[tuple[int, ...]], DraftTree]
    ) -> tuple[int, ...]:
        session, tokens, ended = self._engine.open(window.index, trace), tuple[int, ...](), False
        session.fit(list(window.frames), list(window.frame_stamps_ns))
        session.ask(question, trace)
        while not ended and len(tokens) < _LIMIT:
            with trace.span("propose"):
                tree = guess(tokens).cut(_LIMIT - len(tokens) - 1)
            step = session.step(tree).result()
            trace.mark("first_token")
            tokens, ended = tokens + step.tokens, step.ended
        session.close()
        return tokens

    def close(self) -> None:
        """End the engine's thread."""
        self._engine.close()


class FixedGamma(_OneShot):
    """Standard speculative decoding (Leviathan et al., ICML 2023): gamma tokens of the draft a round."""

    def __init__(self, pair: ModelPair, gamma: int) -> None:
        super().__init__(pair)
        self._gamma = gamma

    def __call__(self, window: Window, question: str, trace: Trace) -> tuple[int, ...]:
        draft = _DraftAsYouGo(self.pair, window, question, self._gamma, trace)
        return self.answer(window, question, trace, draft.go_on)


class _DraftAsYouGo:
    """The event draft continues what the target has verified, a few tokens at a time."""

    def __init__(self, pair: ModelPair, window: Window, question: str, gamma: int, trace: Trace) -> None:
        assert pair.draft is not None
        self._model, self._gamma, self._shared = pair.draft, gamma, pair.shared_ids
        self._cache = DynamicCache(config=pair.draft.body.config)
        self._read: tuple[int, ...] = ()
        with torch.inference_mode():
            with trace.span("event_encode"):
                events = self._model.encode(window.event_images)
            with trace.span("draft_prefill"):
                self._next = self._forward(self._model.prompt(question, events).embeds)

    @torch.inference_mode()
    def go_on(self, said: tuple[int, ...]) -> DraftTree:
        """The next tokens, up to one that means something else to the target."""
        if said:
            # Forget what the target refused, and read at least its last token to know what follows.
            kept = agreement(self._read, said[:-1])
            if kept < len(self._read):
                self._cache.crop(kept - len(self._read))
            self._next, self._read = self._forward(self._model.words(said[kept:]).embeds), said
        tokens: list[int] = []
        while self._next < self._shared:
            tokens.append(self._next)
            if len(tokens) == self._gamma:
                break
            self._next = self._forward(self._model.words((tokens[-1],)).embeds)
            self._read = (*said, *tokens)
        return DraftTree.chain(tokens, [1.0] * len(tokens), "event_draft")

    def _forward(self, embeds: torch.Tensor) -> int:
        read = self._model.body(inputs_embeds=embeds[None], past_key_values=self._cache, use_cache=True)
        return int(self._model.logits(read.last_hidden_state[0, -1:]).argmax())


class PublishedPrefillHiding(_OneShot):
    """Draft beside the target's one-shot prefill, verify what is there as a chain, then go on alone.

    It has buffers, graphs and streams as ours has them. The draft ends when it has been asked: it has nothing
    more to tell, and would only slow the target down.
    """

    def __init__(self, pair: ModelPair) -> None:
        super().__init__(pair)
        assert pair.draft is not None and pair.translation is not None
        self._drafts = DraftModel(pair.draft, pair.translation)
        self._drafts.warm_up()

    def __call__(self, window: Window, question: str, trace: Trace) -> tuple[int, ...]:
        draft, asked = self._drafts.draft(window.event_images, question, _LIMIT), threading.Event()
        running = self._drafts.submit(draft.run, trace, asked.is_set)

        def guess(tokens: tuple[int, ...]) -> DraftTree:
            if not tokens or asked.is_set():
                return DraftTree()
            asked.set()
            proposal = draft.proposal()[0]
            # It fits if it begins as the target does.
            fitting = proposal[1:] if proposal[:1] == tokens else ()
            return DraftTree.chain(fitting, [1.0] * len(fitting), "event_draft")

        tokens = self.answer(window, question, trace, guess)
        asked.set()
        running.result()
        return tokens

    def close(self) -> None:
        """End the threads of draft and engine."""
        self._drafts.close()
        super().close()
