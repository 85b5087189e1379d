"""`crossspec doctor`: what machine this is, which choices of precision and device fit, and what is wrong."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from crossspec_ros.captioning.caption import check_question
from crossspec_ros.captioning.doctor_report import TIMED, print_report
from crossspec_ros.captioning.loading import (
    free_memory,
    is_out_of_memory,
    placed_runner,
    release,
    speculative_decoder,
)
from crossspec_ros.environment import PARTICIPANTS, SEGMENT_BYTES, ros_environment
from crossspec_ros.errors import InputError
from crossspec_ros.files import write_report
from crossspec_ros.models.checkpoint import Checkpoint
from crossspec_ros.models.footprint import Footprint, estimate, measured_bytes, memory
from crossspec_ros.models.gguf import GgufArchitecture
from crossspec_ros.models.gguf_file import is_llama
from crossspec_ros.models.hub import is_hub_id, offer
from crossspec_ros.models.loading import architectures, load_pair
from crossspec_ros.models.placement import GGUF, LLAMA_KINDS, Placement, available
from crossspec_ros.models.registry import TargetArchitecture
from crossspec_ros.models.transformers_family import TransformersTarget
from crossspec_ros.paths import found, tiny_models
from crossspec_ros.settings import DTYPES, LLAMA_CPP, TORCH, CaptionerSettings
from crossspec_ros.versions import installed_version, unmet_requirements

_MODELS = ("target", "draft")
_LIBRARIES = ("torch", "transformers", "bitsandbytes", "accelerate")
_FITS, _ALONE, _CROWDED = "fits", "fits without a draft", "fits only without other programs"
_ADVICE = {_FITS: "{}", _ALONE: "{} --draft none"}
"""Options to recommend by verdict, the best first."""


def run(args: argparse.Namespace) -> None:
    """Examine the machine, print what was found, and write it as JSON if asked."""
    names = {one: getattr(args, one) or str(found(args.models or tiny_models()) / one) for one in _MODELS}
    target, draft = names.values()
    models = architectures("", target, draft)
    spec = models[0].spec
    choices = [judged(estimate(placement, *models)) for placement in placements(models[0])]
    unmeasured: list[str] = []
    for choice in choices if args.measure else ():
        if choice["verdict"] == _FITS:
            choice["measured"] = measured(target, draft, Placement(**choice["placement"]), unmeasured)
    free, total = memory("cpu")
    report = {
        "machine": {
            "system": platform.platform(),
            "cpu_cores": len(os.sched_getaffinity(0)),
            "ram": {"free": free, "total": total},
            "cuda": [_gpu(index) for index in range(_gpus())],
            "versions": {"python": platform.python_version()}
            | {name: installed_version(name) or "missing" for name in _LIBRARIES},
        },
        "target": target,
        "draft": draft,
        # None where the hub does not answer.
        "hub": {
            model: asdict(found) if (found := offer(name)) else None
            for model, name in names.items()
            if is_hub_id(name)
        },
        "window": {
            "frames": spec.frames,
            "image_size": spec.image_size,
            "frame_tokens": spec.frame_tokens,
        },
        "choices": choices,
        "recommendation": recommendation(choices),
        "findings": [*findings(), *unmeasured, *refusals((target, draft), models)],
    }
    print_report(report)
    if args.json:
        write_report(args.json, json.dumps(report, indent=1) + "\n")


def placements(target: TargetArchitecture) -> list[Placement]:
    """Every choice worth a thought for a target, from the largest; of a GGUF there is one.

    Behind those of the first GPU come the draft on the CPU, both models there, and llama.cpp.
    """
    if isinstance(target, GgufArchitecture):
        return [available(target=target.file.name)]
    device, dtypes = available().device, DTYPES if find_spec("bitsandbytes") else DTYPES[:2]
    drafts = ("", "cuda:1") if _gpus() > 1 else ("",)
    choices = [Placement(dtype, device, draft) for dtype in dtypes for draft in drafts]
    if device != "cpu":
        choices += [Placement(dtypes[-1], device, "cpu"), *(Placement(dtype) for dtype in dtypes[1:])]
    if is_llama(target.text):
        choices += [Placement(dtype, engine=LLAMA_CPP) for dtype in LLAMA_KINDS]
    return choices


def judged(footprint: Footprint) -> dict[str, Any]:
    """One choice, ready for JSON: the estimated bytes by model and by device, and whether they are there."""
    needed = footprint.by_device()
    memories = {device: memory(device) for device in needed}

    def fits(needed: Mapping[str, int], which: int = 0) -> bool:
        return all(size <= memories[device][which] for device, size in needed.items())

    verdict = _CROWDED if fits(needed, 1) else "does not fit"
    if fits(footprint.by_device(with_draft=False)):
        verdict = _FITS if fits(needed) else _ALONE
    return {
        "placement": asdict(footprint.placement),
        "estimated": {"target": asdict(footprint.target), "draft": asdict(footprint.draft)},
        "needed": needed,
        "verdict": verdict,
    }


def measured(target: str, draft: str, placement: Placement, unmeasured: list[str]) -> dict[str, Any] | None:
    """Bytes and seconds that the models really take in this placement; None where they do not fit, or where
    llama.cpp's file does not, with a sentence in `unmeasured`."""
    free_memory()
    devices = {device for device in (placement.device, placement.draft_on) if device != "cpu"}
    for device in devices:
        torch.cuda.reset_peak_memory_stats(device)
    started = time.perf_counter()
    try:
        pair = load_pair("", 1, placement, target, draft)
        loading_s = time.perf_counter() - started
        # Now, because bitsandbytes packs some anew at the first pass on a CPU.
        weights = {
            "target": GgufArchitecture.of_folder(Path(target)).bytes
            if placement.dtype == GGUF
            else measured_bytes(pair.target.module),
            "draft": measured_bytes(pair.draft.module) if pair.draft else 0,
        }
        decoder = speculative_decoder(pair, runner=placed_runner(pair.target, placement, 1))
        assert decoder.policy.cost is not None
        seconds = decoder.policy.cost.table()
        decoder.close()
    except Exception as error:
        if isinstance(error, InputError) and placement.engine == LLAMA_CPP:
            unmeasured.append(f"{placement} was not measured: {error}")
        elif not is_out_of_memory(error):
            raise
        release(error)
        return None
    return {
        "weights": weights,
        "needed": {device: torch.cuda.max_memory_allocated(device) for device in devices},
        "loading_s": loading_s,
        "verify_ms": {str(size): 1e3 * seconds[size] for size in TIMED},
    }


def recommendation(choices: list[dict[str, Any]]) -> str:
    """Options to set, in one sentence: of the choices that fit the most exact, on a GPU from bfloat16 on, by
    the engine that was measured to be the quickest."""
    for verdict, advice in _ADVICE.items():
        fitting = [one for one in choices if one["verdict"] == verdict and _is_sensible(one)]
        if fitting:
            choice = min(filter(partial(_is_alike, fitting[0]), fitting), key=_measured_ms)
            placement = Placement(**choice["placement"])
            engine = f" --engine {placement.engine}" if placement.engine != TORCH else ""
            draft = f" --draft-device {placement.draft_device}" if placement.draft_device else ""
            options = f"--dtype {placement.dtype} --device {placement.device}{engine}{draft}"
            if placement.dtype == GGUF:
                options = f"--device {placement.device}"
            return advice.format(options)
    return "none fits now: end what else uses the memory, or name smaller models"


def _is_sensible(choice: dict[str, Any]) -> bool:
    """Test for a choice worth advising: the models were published in half precision, and a
    GPU reads that in half the time."""
    placement = Placement(**choice["placement"])
    return (placement.dtype != "float32" or placement.device == "cpu") and choice.get("measured", True)


def _is_alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Test two choices for differing in their engine alone."""
    return {**one["placement"], "engine": ""} == {**other["placement"], "engine": ""}


def _measured_ms(choice: dict[str, Any]) -> float:
    """Return the time of the timed passes together; infinite if nothing was measured."""
    return sum(choice["measured"]["verify_ms"].values()) if choice.get("measured") else math.inf


def findings() -> Iterator[str]:
    """Faults of the set-up, a sentence each."""
    environment = ros_environment()
    profile = environment.get("FASTDDS_DEFAULT_PROFILES_FILE") or environment.get(
        "FASTRTPS_DEFAULT_PROFILES_FILE"
    )
    if profile and not Path(profile).is_file():
        yield f"the Fast DDS profile '{profile}' is missing: unset the variable that names it"
    shared = Path("/dev/shm")
    if shared.is_dir() and (free := shutil.disk_usage(shared).free) < PARTICIPANTS * SEGMENT_BYTES:
        yield (
            f"/dev/shm has {free >> 20} MB free, so images travel slowly: give it "
            f"{PARTICIPANTS * SEGMENT_BYTES >> 20} MB (docker run --shm-size), or while no node runs "
            f"rm /dev/shm/*fastdds*"
        )
    # In a process of its own: a broken installation may take it along.
    code = "import sys; sys.path[:] = filter(None, sys.path); import rclpy"
    ros = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if ros.returncode:
        reason = (ros.stderr.strip().splitlines() or [f"exit code {ros.returncode}"])[-1]
        yield f"rclpy cannot be imported ({reason}): source ROS's setup file, or run make setup"
    if not _gpus() and shutil.which("nvidia-smi"):
        yield "there is an NVIDIA driver, but torch finds no GPU: install a CUDA build of torch"
    for index in range(_gpus()):
        if not _gpu(index)["bf16"]:
            yield f"cuda:{index} has no bfloat16 of its own and will be slow: take a GPU from Ampere on"
    yield from (sentence for _, sentence in unmet_requirements())
    if not installed_version("bitsandbytes"):
        yield "bitsandbytes is missing, without which there is no int8 and no nf4: pip install bitsandbytes"


def refusals(names: Sequence[str], models: Sequence[Any]) -> Iterator[str]:
    """Refusals of captioning with the target and the draft of these names, a sentence each; of the
    hub's without what only weights tell."""
    for name, model in zip(names, models, strict=True):
        try:
            if model:
                tokenizer = model.tokenizer()
                if isinstance(model, TransformersTarget):
                    check_question(model.model(model.skeleton, tokenizer), CaptionerSettings().question)
                if isinstance(model, Checkpoint) and not is_hub_id(name):
                    model.tensors()
        except InputError as error:
            yield str(error)


def _gpus() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _gpu(index: int) -> dict[str, Any]:
    free, total = memory(f"cuda:{index}")
    properties = torch.cuda.get_device_properties(index)
    return {
        "device": f"cuda:{index}",
        "name": properties.name,
        "free": free,
        "total": total,
        "bf16": properties.major >= 8,
    }
