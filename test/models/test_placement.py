"""What may be asked for, what comes next where memory is scarce, and what is refused."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
import torch
from refusals import refused

from crossspec_ros.models import placement as placements
from crossspec_ros.models.placement import DTYPES, LLAMA_CPP, Placement, available, ladder


def test_the_ladder_of_a_gpu_ends_on_the_cpu_and_that_of_the_cpu_with_nf4() -> None:
    on_gpu = [str(choice) for choice in ladder(Placement("float32", "cuda:0"))]
    assert on_gpu == [
        *(f"{dtype} on cuda:0" for dtype in DTYPES),
        "nf4 on cuda:0, draft on cpu",
        *(f"{dtype} on cpu" for dtype in DTYPES[1:]),
    ]
    assert list(ladder(Placement("int8"))) == [Placement("int8"), Placement("nf4")]
    apart = list(ladder(Placement("nf4", "cuda:0", "cuda:1")))
    assert apart[1:3] == [Placement("nf4", "cuda:0", "cpu"), Placement("bf16", "cpu")]
    assert list(ladder(Placement("nf4", "cpu", "cuda:0"))) == [
        Placement("nf4", "cpu", "cuda:0"),
        Placement("nf4", "cpu", "cpu"),
    ]


def test_llama_cpp_takes_the_cpu_and_numbers_of_its_own(gpus: pytest.MonkeyPatch) -> None:
    gpus.setattr(placements, "has_llama", lambda: True)
    asked = available("float32", "auto", "", LLAMA_CPP)
    assert [str(choice) for choice in ladder(asked)] == [
        f"{dtype} on cpu by llama.cpp" for dtype in ("float32", "bf16", "int8")
    ]
    assert str(available("bf16", "cpu", "cuda:1", LLAMA_CPP)) == "bf16 on cpu by llama.cpp, draft on cuda:1"
    for code, wrong in (("llama-cpp-on-cuda", ("float32", "cuda")), ("llama-cpp-in-nf4", ("nf4", "auto"))):
        with refused(code):
            available(*wrong, "", LLAMA_CPP)
    gpus.setattr(placements, "has_llama", lambda: False)
    with refused("llama-cpp-missing"):
        available("float32", "auto", "", LLAMA_CPP)


def test_what_is_not_quantised_is_bfloat16_and_float32_is_float32() -> None:
    assert [Placement(dtype).torch_dtype for dtype in DTYPES] == [torch.float32, *[torch.bfloat16] * 3]
    kept = ("lm_head", "model.tower")
    assert Placement("float32").quantization(kept) is None and Placement("bf16").quantization(kept) is None
    int8, nf4 = Placement("int8").quantization(kept), Placement("nf4").quantization(kept)
    assert int8 is not None and int8.load_in_8bit and int8.llm_int8_skip_modules == list(kept)
    assert nf4 is not None and nf4.load_in_4bit and nf4.bnb_4bit_quant_type == "nf4"
    assert nf4.bnb_4bit_compute_dtype is torch.bfloat16


def test_what_is_inside_a_module_that_is_kept_is_kept() -> None:
    names = "lm_head", "model.tower.layers.0", "model.towering", "model.layers.0"
    is_quantized = [Placement("nf4").quantizes(name, ("lm_head", "model.tower")) for name in names]
    assert is_quantized == [False, False, True, True]
    assert not any(Placement("bf16").quantizes(name, ()) for name in names)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    return monkeypatch


@pytest.mark.parametrize(
    ("asked", "placement"),
    [
        (("bf16",), Placement("bf16", "cuda:0")),
        (("bf16", "cuda"), Placement("bf16", "cuda:0")),
        (("nf4", "cuda:1", "cuda:0"), Placement("nf4", "cuda:1", "cuda:0")),
        (("nf4", "cuda:0", "cuda"), Placement("nf4", "cuda:0")),
        (("bf16", "cuda", "cpu"), Placement("bf16", "cuda:0", "cpu")),
        (("float32", "cpu"), Placement("float32", "cpu")),
    ],
)
def test_names_become_devices(gpus: pytest.MonkeyPatch, asked: tuple[str, ...], placement: Placement) -> None:
    assert available(*asked) == placement


def test_a_missing_device_is_refused(gpus: pytest.MonkeyPatch) -> None:
    for code, wrong in (("device-beyond-last", ("cuda:3", "")), ("draft-beyond-last", ("cuda", "cuda:2"))):
        with refused(code):
            available("bf16", *wrong)
    gpus.setattr(torch.cuda, "is_available", lambda: False)
    assert available("float32") == Placement("float32", "cpu")
    with refused("device-without-cuda"):
        available("float32", "cuda")


def test_parameters_are_checked_without_torch() -> None:
    code = "import sys, crossspec_ros.captioning.replay_parameters; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


def test_quantisation_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refused("bitsandbytes-missing"):
        available("nf4", "cpu")
    assert available("bf16", "cpu") == Placement("bf16")
    assert [str(choice) for choice in ladder(Placement("float32", "cuda:0"))] == [
        "float32 on cuda:0",
        "bf16 on cuda:0",
        "bf16 on cuda:0, draft on cpu",
        "bf16 on cpu",
    ]
