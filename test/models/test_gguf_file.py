"""A target's language model as a GGUF is read back by another library as the same model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from crossspec_ros.models.gguf_file import write_gguf
from crossspec_ros.models.loading import load_pair
from crossspec_ros.paths import tiny_models
from crossspec_ros.settings import NO_DRAFT

pytest.importorskip("gguf")


@torch.inference_mode()
def test_another_library_reads_the_same_model(tmp_path: Path) -> None:
    target = load_pair(tiny_models(), draft=NO_DRAFT).target
    write_gguf(target, tmp_path / "target.gguf", "F32")
    module = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="target.gguf", dtype="float32")
    ids = torch.arange(3, 40)[None]
    theirs = module(ids).logits[0]
    ours = target.logits(target.body(ids).last_hidden_state[0])
    assert torch.allclose(ours, theirs, atol=1e-4)
