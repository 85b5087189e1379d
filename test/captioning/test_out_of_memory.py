"""Models that do not fit into memory are refused, and sampling that cannot be."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
from refusals import refused

from crossspec_ros.captioning import asked_models
from crossspec_ros.captioning.out_of_memory import is_out_of_memory
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.errors import InputError
from crossspec_ros.models import loading
from crossspec_ros.models import placement as placements
from crossspec_ros.models.placement import Placement
from crossspec_ros.paths import tiny_models
from crossspec_ros.ros import captioner
from crossspec_ros.settings import CaptionerSettings


def test_nobody_asks_for_the_device_of_a_draft_that_there_is_not(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    given = {"models_device": "cpu", "models_draft_device": "cuda:77"}
    assert asked_models.asked_placement(CaptionerSettings(draft="none", **given)) == Placement()
    with refused("draft-device-missing"):
        asked_models.asked_placement(CaptionerSettings(**given))


@pytest.mark.parametrize(
    ("said", "wanted", "logged"),
    [({"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.0},
      Sampling(0.7, 0.8, 3, 20), ""),
     ({"do_sample": True}, Sampling(1.0, 1.0, 3, 50), ""),
     ({"do_sample": True, "top_k": 0, "presence_penalty": 1.5, "min_p": 0.1}, Sampling(1.0, 1.0, 3, 0),
      "without what the target's generation_config.json says of presence_penalty 1.5, min_p 0.1"),
     ({"temperature": 0.7}, None, "says nothing of sampling")],
)  # fmt: skip
def test_what_a_publisher_says_of_sampling(tmp_path, caplog, said, wanted, logged):
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, **said}))
    settings = CaptionerSettings(target=str(tmp_path), generation="published", seed=3)
    assert asked_models.asked_sampling(settings) == wanted
    assert asked_models.asked_sampling(replace(settings, generation="greedy")) is None
    assert logged in caplog.text and len(caplog.records) == bool(logged)


@pytest.mark.parametrize(
    ("said", "given", "code"),
    [({}, {"temperature": 0.5}, "published-and-own-sampling"),
     ({}, {"top_p": 0.5}, "published-and-own-sampling"),
     ({}, {"target": "grpc://host:9000"}, "published-on-server"),
     ({"temperature": "hot"}, {}, "published-temperature-text"),
     ({"temperature": 0.0}, {}, "published-temperature-zero"),
     ({"top_k": -1}, {}, "published-top-k")],
)  # fmt: skip
def test_sampling_that_contradicts_or_cannot_be(tmp_path, said, given, code):
    (tmp_path / "generation_config.json").write_text(json.dumps({"do_sample": True, **said}))
    settings = CaptionerSettings(**{"target": str(tmp_path), "generation": "published", **given})
    with refused(code):
        asked_models.asked_sampling(settings)


def wrapped(error):
    try:
        raise InputError("the checkpoint cannot be loaded") from error
    except InputError as outer:
        return outer


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("no"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (ValueError("Some modules are dispatched on the CPU or the disk. Make sure you have enough"), True),
        (wrapped(torch.OutOfMemoryError("no")), True),
        (wrapped(KeyError("weight")), False),
        (RuntimeError("shapes do not fit"), False),
        (InputError("bad"), False),
    ],
)
def test_what_counts_as_out_of_memory(error, expected):
    assert is_out_of_memory(error) is expected


def parameters(**given):
    return CaptionerSettings(**{"models_device": "cpu", "mode": "autoregressive"} | given)


@pytest.mark.parametrize("dtype", ["float32", "nf4"])
def test_models_that_do_not_fit_end_the_captioner(monkeypatch, dtype):
    monkeypatch.setattr(loading, "memory", lambda device: (1_000_000, 10**9))
    monkeypatch.setattr(loading, "_loaded", lambda *given: pytest.fail("tried nevertheless"))
    with refused("models-too-large", library_text=True, dtype=dtype):
        captioner.load(parameters(models_dtype=dtype))


def test_a_device_that_is_not_there_is_refused_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with refused("target-device-missing"):
        captioner.load(parameters(models_device="cuda:3"))


def test_what_llama_cpp_does_not_run_is_refused_before_memory_is_counted(monkeypatch, tmp_path):
    monkeypatch.setattr(placements, "has_llama", lambda: True)
    monkeypatch.setattr(loading, "memory", lambda device: (0, 0))
    target = shutil.copytree(tiny_models() / "target", tmp_path / "target")
    config = json.loads((target / "config.json").read_text())
    config["text_config"]["rope_parameters"] = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    (target / "config.json").write_text(json.dumps(config))
    asked = {"models_engine": "llama.cpp", "target": str(target), "draft": "none"}
    with refused("llama-cpp-rotations"):
        captioner.load(parameters(**asked))
