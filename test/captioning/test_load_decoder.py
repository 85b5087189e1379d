"""Loading of models: memory, placement and sampling. The decoder is warm and stores its caption memory."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
from plain_target import QUESTION, generated, live
from refusals import refused

from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.caption_options import requested_sampling
from crossspec_ros.captioning.load_decoder import is_out_of_memory, requested_placement, speculative_decoder
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.errors import InputError
from crossspec_ros.models import loading
from crossspec_ros.models import placement as placements
from crossspec_ros.models.placement import Placement
from crossspec_ros.paths import tiny_models
from crossspec_ros.ros import captioner_node
from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.telemetry.trace import Trace


def test_device_of_no_draft_is_ignored(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    devices = {"models_device": "cpu", "models_draft_device": "cuda:77"}
    assert requested_placement(CaptionerSettings(draft="none", **devices)) == Placement()
    with refused("draft-device-missing"):
        requested_placement(CaptionerSettings(**devices))


@pytest.mark.parametrize(
    ("published", "wanted", "logged"),
    [({"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.0},
      Sampling(0.7, 0.8, 3, 20), ""),
     ({"do_sample": True}, Sampling(1.0, 1.0, 3, 50), ""),
     ({"do_sample": True, "top_k": 0, "presence_penalty": 1.5, "min_p": 0.1}, Sampling(1.0, 1.0, 3, 0),
      "ignores these values of generation_config.json: presence_penalty 1.5, min_p 0.1"),
     ({"temperature": 0.7}, None, "does not set do_sample")],
)  # fmt: skip
def test_published_sampling_is_read(tmp_path, caplog, published, wanted, logged):
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, **published}))
    settings = CaptionerSettings(target=str(tmp_path), generation="published", seed=3)
    assert requested_sampling(settings) == wanted
    assert requested_sampling(replace(settings, generation="greedy")) is None
    assert logged in caplog.text and len(caplog.records) == bool(logged)


@pytest.mark.parametrize(
    ("published", "settings", "code"),
    [({}, {"temperature": 0.5}, "published-and-own-sampling"),
     ({}, {"top_p": 0.5}, "published-and-own-sampling"),
     ({}, {"target": "grpc://host:9000"}, "published-on-server"),
     ({"temperature": "hot"}, {}, "published-temperature-text"),
     ({"temperature": 0.0}, {}, "published-temperature-zero"),
     ({"top_k": -1}, {}, "published-top-k")],
)  # fmt: skip
def test_contradictory_or_invalid_sampling_is_refused(tmp_path, published, settings, code):
    (tmp_path / "generation_config.json").write_text(json.dumps({"do_sample": True, **published}))
    values = {"target": str(tmp_path), "generation": "published", **settings}
    with refused(code):
        requested_sampling(CaptionerSettings(**values))


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
def test_out_of_memory_errors_are_recognized(error, expected):
    assert is_out_of_memory(error) is expected


def parameters(**values):
    return CaptionerSettings(**{"models_device": "cpu", "mode": "autoregressive"} | values)


@pytest.mark.parametrize("dtype", ["float32", "nf4"])
def test_models_that_do_not_fit_end_the_captioner(monkeypatch, dtype):
    monkeypatch.setattr(loading, "memory", lambda device: (1_000_000, 10**9))
    monkeypatch.setattr(loading, "_loaded", lambda *args: pytest.fail("tried nevertheless"))
    with refused("models-too-large", library_text=True, dtype=dtype):
        captioner_node.load(parameters(models_dtype=dtype))


def test_missing_device_is_refused_before_loading(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with refused("target-device-missing"):
        captioner_node.load(parameters(models_device="cuda:3"))


def test_unsupported_llama_cpp_target_is_refused_first(monkeypatch, tmp_path):
    monkeypatch.setattr(placements, "has_llama", lambda: True)
    monkeypatch.setattr(loading, "memory", lambda device: (0, 0))
    target = shutil.copytree(tiny_models() / "target", tmp_path / "target")
    config = json.loads((target / "config.json").read_text())
    config["text_config"]["rope_parameters"] = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    (target / "config.json").write_text(json.dumps(config))
    with refused("llama-cpp-rotations"):
        captioner_node.load(parameters(models_engine="llama.cpp", target=str(target), draft="none"))


def test_memory_continues_the_last_session(pair, windows, tmp_path):
    path, passes = tmp_path / "memory.json", []
    for _ in range(2):
        decoder = speculative_decoder(pair, memory=path)
        caption = decoder.caption(windows[0], Options(QUESTION), Trace())
        assert caption.token_ids == generated(pair, windows[0])
        passes.append(caption.target_passes)
        decoder.close()
    assert passes[1] < passes[0] / 3


def test_failure_at_the_end_does_not_lose_the_memory(pair, windows, tmp_path, monkeypatch):
    decoder = speculative_decoder(pair, memory=tmp_path / "memory.json")
    decoder.caption(windows[0], Options(QUESTION), Trace())
    close = decoder._drafts.close
    monkeypatch.setattr(decoder._drafts, "close", lambda: (close(), 1 / 0))
    with pytest.raises(ZeroDivisionError):
        decoder.close()
    assert (tmp_path / "memory.json").exists()


def test_all_proposers_together_equal_generate(pair, windows):
    decoder = speculative_decoder(pair)
    for window in [*windows, *windows]:
        live(decoder, window)
        caption = decoder.caption(window, Options(QUESTION), Trace())
        assert caption.token_ids == generated(pair, window)
    assert caption.target_passes < 12 and set(caption.drafted) == {"memory", "event_draft"}
    decoder.close()


def test_memory_file_in_missing_folder_is_refused(pair, tmp_path):
    with refused("memory-folder-missing"):
        speculative_decoder(pair, memory=tmp_path / "nowhere" / "memory.json")


def test_warm_up_leaves_no_captioned_window(pair):
    decoder = speculative_decoder(pair)
    with refused("no-window-after-warm-up"):
        decoder.ask(Options(QUESTION), Trace())
    decoder.close()
