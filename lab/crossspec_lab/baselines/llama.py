"""llama.cpp: a greedy loop on the target's weights, a token a pass.

The vision tower runs in torch, once the last frame has come, and its embeddings go in. The cache is in
float16, as by the library's default, so that captions may differ in a word. Needs the extra `gguf`.
"""

from __future__ import annotations

import numpy as np
import torch

from crossspec_lab.baselines.one_shot import LIMIT, Written, embed_prompt
from crossspec_ros.models.base import TEXT_ROOM
from crossspec_ros.models.gguf_file import convert_model, is_llama
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import has_llama
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


class LlamaCpp:
    """Target in llama.cpp, with weights of one of `LLAMA_KINDS`."""

    def __init__(self, pair: ModelPair, kind: str) -> None:
        self._pair = pair
        self._model = convert_model(pair.target, kind)
        self._library = llama_cpp = self._model.library
        shape = llama_cpp.llama_context_default_params()
        shape.n_ctx = shape.n_batch = shape.n_ubatch = pair.target.spec.frame_tokens + TEXT_ROOM
        shape.n_threads = shape.n_threads_batch = torch.get_num_threads()
        self._context = llama_cpp.llama_init_from_model(self._model.handle, shape)
        assert self._context, "llama.cpp takes no such model"
        # The first pass is slow.
        self._read(0, np.zeros((2, pair.target.body.config.hidden_size), np.float32))

    def close(self) -> None:
        """Free its memory."""
        self._library.llama_free(self._context)
        self._model.close()

    @torch.inference_mode()
    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        target = self._pair.target
        with trace.span("frame_encode"):
            prompt = embed_prompt(target, window, question)
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
        """Return the logits after inputs from the position `start` on: (n, width) embeddings, or n tokens."""
        positions = np.arange(start, start + len(inputs), dtype=np.int32)[None]
        return self._model.read(self._context, inputs, positions, len(inputs) - 1)[0]


def has_llama_model(pair: ModelPair) -> bool:
    """Test whether the target can run in llama.cpp: packages, device and architecture."""
    return has_llama() and pair.target.device.type == "cpu" and is_llama(pair.target.body.config)
