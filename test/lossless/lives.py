"""Targets of every family with transformers' own captions, and the streaming of a window."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
import torch
from crossspec_lab.bench.lossless import Adversary
from crossspec_lab.heads.head import Sizes
from crossspec_lab.heads.head_files import load_head, make_head
from crossspec_lab.world.dataset import event_window, frame_window
from plain_target import settled
from tiny_targets import TINY_FAMILIES, noise
from transformers import LogitsProcessor, LogitsProcessorList

from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import make_proposers
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.sampling import draw_token
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.placement import has_llama
from crossspec_ros.paths import tiny_models
from crossspec_ros.settings import REHEARSAL
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

QUESTION, OTHER_QUESTION = "What are the key elements in this scene?", "Is there anybody on the road?"
LIMIT = 16
WAIT_S = 60
WINDOWS_AT_A_TIME = 3
HEAD = "frame_head"
PROPOSERS = {
    "alone": (),
    "memory": ("memory",),
    "event_draft": ("event_draft",),
    "frame_head": (HEAD,),
    "adversary": (Adversary.name,),
    "all": ("memory", "event_draft", HEAD, Adversary.name),
}


class Target:
    """A family's tiny target, its windows, and transformers' own captions of them."""

    def __init__(self, name, folder):
        self._name, self._tiny = name, TINY_FAMILIES[name]
        self._folder = self._tiny.checkpoint(folder)
        self._module = self._tiny.loaded(self._folder)
        self._generated = {}
        self._engines = {}
        self.pair = load_pair(tiny_models(), target=str(self._folder))
        # Sizes change, one window has a further frame, and one is repeated.
        self.windows = [self._window(i, *of) for i, of in enumerate([(7, 2), (8, 7), (7, 2), (1, 1)])]
        self._head = self._frame_head()
        self.adversary = self._new_adversary()

    def _window(self, index, frames, seed):
        """Return a window of the synthetic world for the trained Video-LLaVA, or noise for random targets."""
        size = (80, 48) if seed % 2 else (48, 80)
        is_random = self._name != "video_llava"
        images = noise(frames, *size, seed) if is_random else frame_window(2_000_000 + seed)[:frames]
        stamps_ns = tuple(i * 125_000_000 for i in range(frames))
        return Window(index, 0, 10**9, event_window(2_000_000 + seed), images, stamps_ns)

    def _frame_head(self):
        target, draft = self.pair.target, self.pair.draft
        if self._name == "video_llava":
            return load_head(tiny_models() / "heads" / "massv", target, draft)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            sizes = {"width": 32, "layers": 1, "heads": 2, "inner": 48}
            return make_head("language_model", Sizes.of(target, draft), sizes)

    def _new_adversary(self):
        target = self.pair.target
        return Adversary(target.tokenizer.get_vocab_size(), target.spec.eos_ids[0])

    def engine(self, runner):
        """Return the target's engine with this `runner`, which the decoders of all tests share."""
        if runner not in self._engines:
            made = None
            if runner == "llama.cpp":
                if not has_llama():
                    pytest.skip("llama.cpp is not installed")
                from crossspec_ros.engine.llama_cpp import llama_runner

                made = llama_runner(self.pair.target, "float32", 1)
            self._engines[runner] = LocalEngine(self.pair.target, runner == "static", runner=made)
            self._engines[runner].warm_up(WINDOWS_AT_A_TIME)
        return self._engines[runner]

    @contextmanager
    def decoder(self, runner, proposers, rehearse):
        """Yield a decoder that verifies all drafts of these proposers."""
        engine, self.adversary = self.engine(runner), self._new_adversary()
        self._head.name = HEAD
        ours = {HEAD: self._head, Adversary.name: self.adversary}
        names = (*PROPOSERS[proposers], *[REHEARSAL] * rehearse)
        made = [ours[name] if name in ours else make_proposers([name])[0] for name in names]
        self._head.load(self.pair.target)
        pair = self.pair if "event_draft" in names else replace(self.pair, draft=None, translation=None)
        with closing(PrefillHiddenDecoder(pair, Policy(made, None), engine)) as decoder:
            yield decoder

    @torch.inference_mode()
    def generated(self, window, question=QUESTION, limit=LIMIT, eos_id=None, sampling=None):
        """Return the tokens of transformers' `generate`, greedy or with `sampling`."""
        key = window.frames.tobytes(), question, limit, eos_id, sampling
        if key not in self._generated:
            inputs = self._tiny.inputs(self._folder, window.frames, question)
            options = {"max_new_tokens": limit} | ({} if eos_id is None else {"eos_token_id": eos_id})
            draws = LogitsProcessorList([Draws(sampling)] if sampling else [])
            out = self._module.generate(**inputs, **options, do_sample=False, logits_processor=draws)
            self._generated[key] = tuple(out[0, inputs["input_ids"].shape[1] :].tolist())
        return self._generated[key]

    def close(self):
        for engine in self._engines.values():
            engine.close()


class Draws(LogitsProcessor):
    """Makes `generate` draw tokens one by one."""

    def __init__(self, sampling):
        self._sampling, self._generator = sampling, sampling.generator()

    def __call__(self, input_ids, scores):
        token = draw_token(self._sampling.probs(scores[0]), self._generator)
        return torch.full_like(scores, -torch.inf).index_fill(1, torch.tensor([token]), 0.0)


def lived(decoder, window, options, read_ahead, rehearse):
    """Stream a window: event images, `read_ahead` frames, rehearsals between them, and its caption.

    All lossless tests drive the decoder here. In every other window the last frame is marked and starts the
    answer. Frames interrupt rehearsals, except the last rehearsals, which finish.
    """
    for image in window.event_images:
        if draft := decoder.stream_event_image(window.index, image, options):
            draft.result(WAIT_S)
    count, spec = len(window.frames), decoder.pair.target.spec
    for i in range(read_ahead):
        is_last = i + 1 == count and window.index % 2 == 0
        frame = window.index, window.frames[i], window.frame_stamps_ns[i], is_last
        if read := decoder.stream_frame(*frame, options if rehearse else None):
            read.result(WAIT_S)
        if is_last:
            decoder.begin(window.index, options)
        elif i + 3 > read_ahead:
            settled(decoder)
    caption = decoder.caption(window, options, Trace())
    if rehearse and spec.is_half(read_ahead // spec.frames_per_unit):
        assert caption.rehearsal.is_complete
    return caption
