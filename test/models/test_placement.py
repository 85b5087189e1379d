"""Placements: devices by name, and refusals."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
import torch
from refusals import refused
from transformers import LlamaConfig

from crossspec_ros.models.gguf_file import check_llama
from crossspec_ros.models.placement import Placement, available
from crossspec_ros.settings import DTYPES, LLAMA_CPP


@pytest.fixture
def gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    return monkeypatch


def test_missing_library_is_refused(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refused("bitsandbytes-missing"):
        available("nf4", "cpu")
    with refused("llama-cpp-missing"):
        check_llama(LlamaConfig())


def test_llama_cpp_runs_on_the_cpu(gpus):
    assert str(available("bf16", "cpu", "cuda:1", LLAMA_CPP)) == "bf16 on cpu by llama.cpp, draft on cuda:1"
    assert str(available(target="a.gguf")) == "gguf on cpu by llama.cpp"
    for code, wrong in (("llama-cpp-on-cuda", ("float32", "cuda")), ("llama-cpp-in-nf4", ("nf4", "auto"))):
        with refused(code):
            available(*wrong, "", LLAMA_CPP)


def test_quantization_skips_other_modules():
    """Only the language model is quantised."""
    assert [Placement(dtype).torch_dtype for dtype in DTYPES] == [torch.float32, *[torch.bfloat16] * 3]
    kept = ("lm_head", "model.tower")
    assert Placement("bf16").quantization(kept) is None
    int8, nf4 = Placement("int8").quantization(kept), Placement("nf4").quantization(kept)
    assert int8 is not None and int8.load_in_8bit and int8.llm_int8_skip_modules == list(kept)
    assert nf4 is not None and nf4.load_in_4bit and nf4.bnb_4bit_quant_type == "nf4"
    assert nf4.bnb_4bit_compute_dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("requested", "placement"),
    [
        (("bf16",), Placement("bf16", "cuda:0")),
        (("bf16", "cuda"), Placement("bf16", "cuda:0")),
        (("nf4", "cuda:1", "cuda:0"), Placement("nf4", "cuda:1", "cuda:0")),
        (("nf4", "cuda:0", "cuda"), Placement("nf4", "cuda:0")),
        (("bf16", "cuda", "cpu"), Placement("bf16", "cuda:0", "cpu")),
        (("float32", "cpu"), Placement("float32", "cpu")),
    ],
)
def test_device_names_become_placement(gpus, requested, placement):
    assert available(*requested) == placement


def test_missing_device_is_refused(gpus):
    for code, wrong in (("device-beyond-last", ("cuda:3", "")), ("draft-beyond-last", ("cuda", "cuda:2"))):
        with refused(code):
            available("bf16", *wrong)
    gpus.setattr(torch.cuda, "is_available", lambda: False)
    assert available("float32") == Placement("float32", "cpu")


def test_parameter_checks_need_no_torch():
    code = "import sys, crossspec_ros.captioning.replay_setup; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
