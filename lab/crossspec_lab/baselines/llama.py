"""llama.cpp alone: its greedy loop on the target's weights, a token a pass.

The vision tower runs in torch, once the last frame has come, and its embeddings go in. The cache is in
float16, as by the library's default, so that captions may differ in a word. Needs the packages
`llama-cpp-python` (0.3.36, whose low-level calls these are) and `gguf`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from crossspec_lab.baselines.written import LIMIT, Written
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.load_decoder import speculative_decoder
from crossspec_ros.engine.llama_cpp import llama_runner
from crossspec_ros.models.base import TEXT_ROOM, Chunk
from crossspec_ros.models.gguf_file import is_llama, written_model
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import LLAMA_KINDS, has_llama
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class LlamaCpp:
    """Target in llama.cpp, with weights of one of `LLAMA_KINDS`."""

    def __init__(self, pair: ModelPair, kind: str) -> None:
        self._pair = pair
        self._model = written_model(pair.target, kind)
        self._library = llama_cpp = self._model.library
        shape = llama_cpp.llama_context_default_params()
        shape.n_ctx = shape.n_batch = shape.n_ubatch = pair.target.spec.frame_tokens + TEXT_ROOM
        shape.n_threads = shape.n_threads_batch = torch.get_num_threads()
        self._context = llama_cpp.llama_init_from_model(self._model.handle, shape)
        assert self._context, "llama.cpp takes no such model"

    def close(self) -> None:
        """Give its memory back."""
        self._library.llama_free(self._context)
        self._model.close()

    @torch.inference_mode()
    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        target = self._pair.target
        with trace.span("frame_encode"):
            units = [target.unit(features, i) for i, features in enumerate(target.encode(window.frames))]
            prompt = Chunk.joined([target.opening(), *units, target.closing(question)]).embeds
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), False)
        with trace.span("target_prefill"):
            logits = self._read(0, prompt.float().numpy())
        tokens: list[int] = []
        with trace.span("decode"):
            tokens.append(int(logits.argmax()))
            trace.mark("first_token")
            while tokens[-1] not in target.spec.eos_ids and len(tokens) < LIMIT:
                logits = self._read(len(prompt) + len(tokens) - 1, np.array(tokens[-1:], np.int32))
                tokens.append(int(logits.argmax()))
        return Written(tuple(tokens))

    def _read(self, start: int, inputs: np.ndarray) -> np.ndarray:
        """Logits behind inputs from the position `start` on: (n, width) embeddings, or n tokens."""
        places = np.arange(start, start + len(inputs), dtype=np.int32)[None]
        return self._model.read(self._context, inputs, places, len(inputs) - 1)[0]


def llama_cpps(pair: ModelPair) -> dict[str, Callable[[], LlamaCpp]]:
    """Makers of decoders by name; none where a package is missing, on a GPU, or for other architectures."""
    if not (has_llama() and pair.target.device.type == "cpu" and is_llama(pair.target.body.config)):
        return {}
    return {f"llama.cpp, {kind}": partial(LlamaCpp, pair, kind) for kind in LLAMA_KINDS.values()}


def llama_decoders(pair: ModelPair) -> dict[str, Callable[[], PrefillHiddenDecoder]]:
    """Makers of ours by name, the target's language model in llama.cpp; as many as `llama_cpps`."""

    def decoder(dtype: str) -> PrefillHiddenDecoder:
        runner = llama_runner(pair.target, dtype, torch.get_num_threads())
        return speculative_decoder(pair, runner=runner)

    kinds = LLAMA_KINDS.items() if llama_cpps(pair) else ()
    return {f"ours, llama.cpp, {kind}": partial(decoder, dtype) for dtype, kind in kinds}
