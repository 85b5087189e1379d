"""OpenVINO GenAI on a CPU: its greedy loop and its prompt lookup, on the target's weights in float32.

The vision tower runs in torch, once the last frame has come, and its embeddings go into the library's
`ContinuousBatchingPipeline`. That takes embeddings without token ids, so its prompt lookup searches the
caption so far only. Needs the packages in `requirements-openvino.txt`.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers.cache_utils import DynamicCache, DynamicLayer

from crossspec_lab.baselines.one_shot import LIMIT, Written, embed_prompt
from crossspec_ros.models.base import TEXT_ROOM, VideoTarget
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

_LOOKUP = {"num_assistant_tokens": 5, "max_ngram_size": 3}
"""Draft tokens of a pass and longest match, as in the library's samples."""
_BLOCK = 32
"""Tokens of a block of its KV cache on a CPU."""
_EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


class OpenVino:
    """Target in OpenVINO GenAI: a token a pass, or with its prompt `lookup`."""

    def __init__(self, pair: ModelPair, lookup: bool = False) -> None:
        # openvino sends usage data to its maker on import, unless this module is missing.
        sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
        from openvino import Tensor
        from openvino_genai import ContinuousBatchingPipeline, GenerationConfig, SchedulerConfig

        self._pair, self._tensor, spec = pair, Tensor, pair.target.spec
        self._options = GenerationConfig(max_new_tokens=LIMIT, stop_token_ids=set(spec.eos_ids))
        self._options.set_eos_token_id(spec.eos_ids[0])
        properties: dict[str, Any] = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), **_EXACT}
        if lookup:
            self._options.update_generation_config(**_LOOKUP)
            properties["prompt_lookup"] = True
        scheduler, tokens = SchedulerConfig(), spec.frame_tokens + TEXT_ROOM
        # One pass reads the prompt.
        scheduler.max_num_batched_tokens, scheduler.num_kv_blocks = tokens, tokens // _BLOCK + 2
        with TemporaryDirectory() as folder:
            _write(pair.target, Path(folder))
            # Its weights stay mapped after the folder is deleted.
            self._pipeline = ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)
        # The first request is slow.
        noise = Tensor(np.zeros((1, 2, pair.target.body.config.hidden_size), np.float32))
        self._pipeline.add_request(0, noise, self._options)
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()

    @torch.inference_mode()
    def __call__(self, window: Window, question: str, trace: Trace) -> Written:
        target = self._pair.target
        with trace.span("frame_encode"):
            prompt = embed_prompt(target, window, question).embeds
        with trace.span("target_prefill"):
            request = self._pipeline.add_request(0, self._tensor(prompt[None].numpy()), self._options)
            passes = [self._step(request)]
        trace.mark("first_token")
        with trace.span("decode"):
            while self._pipeline.has_non_finished_requests():
                passes.append(self._step(request))
        return Written(tuple(token for tokens in passes for token in tokens), tuple(map(len, passes)))

    def _step(self, request: Any) -> list[int]:
        """Return the tokens of the next pass."""
        self._pipeline.step()
        tokens: list[int] = []
        while request.can_read():
            tokens += request.read()[0].generated_ids
        return tokens


def find_obstacle(pair: ModelPair) -> str:
    """Return why OpenVINO GenAI cannot run the target here, or an empty string."""
    target = pair.target
    if not find_spec("openvino_genai"):
        return "its package openvino-genai is not installed"
    if target.spec.added_layers or target.spec.axes > 1:
        return "it runs this family only by optimum-intel 2.2.0, which needs transformers 5.0 or older"
    is_supported = target.device.type == "cpu" and target.dtype == torch.float32
    return "" if is_supported else "this baseline runs on a CPU in float32"


class _Decoder(nn.Module):
    """Language model whose KV cache is input and output."""

    def __init__(self, target: VideoTarget) -> None:
        super().__init__()
        self._body, self._head = target.body, target.module.get_output_embeddings()

    # The pipeline finds its inputs by these names.
    def forward(self, inputs_embeds: Any, attention_mask: Any, position_ids: Any, past: Any) -> Any:
        total, cache, layers = attention_mask.shape[1], DynamicCache(), [DynamicLayer() for _ in past]
        for layer, (keys, values) in zip(layers, past, strict=True):
            layer.keys, layer.values, layer.is_initialized = keys, values, True
        cache.layers += layers
        rows = torch.arange(total - inputs_embeds.shape[1], total)[:, None]
        mask = torch.where(torch.arange(total) <= rows, 0.0, torch.finfo(torch.float32).min)[None, None]
        hidden = self._body(
            inputs_embeds=inputs_embeds, attention_mask=mask, position_ids=position_ids, past_key_values=cache
        ).last_hidden_state
        return self._head(hidden), *(one for layer in layers for one in (layer.keys, layer.values))


@torch.no_grad()
def _write(target: VideoTarget, folder: Path) -> None:
    """Write the files that the pipeline expects of a LLaVA, with an unused model as its vision tower."""
    import openvino
    from openvino import opset13 as ops

    config = target.body.config
    heads, width = config.num_key_value_heads, target.body.layers[0].self_attn.head_dim
    example = {
        "inputs_embeds": torch.zeros(1, 2, config.hidden_size),
        "attention_mask": torch.ones(1, 5, dtype=torch.long),
        "position_ids": torch.tensor([[3, 4]]),
        "past": [torch.zeros(2, 1, heads, 3, width).unbind() for _ in target.body.layers],
    }
    traced = openvino.convert_model(_Decoder(target), example_input=example)
    words = openvino.convert_model(target.module.get_input_embeddings(), example_input=torch.tensor([[0, 1]]))
    logits, *states = (port.node.input_value(0).node for port in traced.outputs)
    beams, sinks = ops.parameter([-1], np.int32, "beam_idx"), []
    # The pipeline replaces attention to states that are read, reordered and written like these.
    for i, (port, state) in enumerate(zip(traced.inputs[3:], states, strict=True)):
        empty = ops.constant(np.zeros((1, heads, 0, width), np.float32))
        read = ops.read_value(empty, f"past.{i}", np.float32, [-1, heads, -1, width])
        reordered = ops.gather(read, beams, 0).output(0)
        for reader in port.get_target_inputs():
            reader.replace_source_output(reordered)
        sinks.append(ops.assign(state, f"past.{i}"))
    inputs = [*(port.node for port in traced.inputs[:3]), beams]
    language = openvino.Model([ops.result(logits)], sinks, inputs)
    language.inputs[3].set_names({"beam_idx"})
    language.outputs[0].set_names({"logits"})
    for model, name in ((language, "language"), (words, "text_embeddings"), (words, "vision_embeddings")):
        openvino.save_model(model, folder / f"openvino_{name}_model.xml", compress_to_fp16=False)
    (folder / "config.json").write_text(json.dumps({"model_type": "llava"}))
