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
        self._read(np.zeros((2, self._model.width), np.float32), np.arange(2)[None])

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
            parts = [prompt.embeds, *(() if prompt.layers is None else prompt.layers)]
            logits = self._read(torch.cat(parts, 1).float().numpy(), prompt.positions.numpy())
        tokens: list[int] = []
        with trace.span("decode"):
            tokens.append(int(logits.argmax()))
            trace.mark("first_token")
            while tokens[-1] not in target.spec.eos_ids and len(tokens) < LIMIT:
                position = np.array([[prompt.span + len(tokens) - 1]])
                logits = self._read(np.array(tokens[-1:], np.int32), position)
                tokens.append(int(logits.argmax()))
        return Written(tuple(tokens))

    def _read(self, inputs: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the logits after (n, width) embeddings or n tokens; missing axes repeat the first."""
        more = positions[:1].repeat(self._model.axes - len(positions), 0)
        positions = np.concatenate([positions, more], dtype=np.int32)
        return self._model.read(self._context, inputs, positions, len(inputs) - 1)[0]


def has_llama_model(pair: ModelPair) -> bool:
    """Test whether the target can run in llama.cpp: packages, device and architecture."""
    return has_llama() and pair.target.device.type == "cpu" and is_llama(pair.target.body.config)
