"""`crossspec doctor`: the machine, the dtypes and devices that fit on it, and faults of the models."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from crossspec_ros.captioning.caption import check_question
from crossspec_ros.environment import PARTICIPANTS, SEGMENT_BYTES
from crossspec_ros.errors import InputError
from crossspec_ros.files import write_report
from crossspec_ros.models.checkpoint import Checkpoint
from crossspec_ros.models.footprint import Footprint, estimate, memory
from crossspec_ros.models.gguf import GgufArchitecture
from crossspec_ros.models.gguf_file import is_llama
from crossspec_ros.models.hub import is_hub_id, offer
from crossspec_ros.models.loading import architectures
from crossspec_ros.models.placement import GGUF, LLAMA_KINDS, Placement, available
from crossspec_ros.models.registry import TargetArchitecture
from crossspec_ros.models.transformers_family import TransformersTarget
from crossspec_ros.paths import models_folder
from crossspec_ros.settings import DTYPES, LLAMA_CPP, NO_DRAFT, TORCH, CaptionerSettings
from crossspec_ros.versions import installed_version, unmet_requirements

_MODELS = ("target", "draft")
_LIBRARIES = ("torch", "transformers", "bitsandbytes", "accelerate")
_FITS, _ALONE, _CROWDED = "fits", "fits without a draft", "fits only without other programs"
_PARTS = ("weights", "caches", "working")
_FILE_WIDTH = 160
"""Columns of the table if the output is not a terminal."""


def run(args: argparse.Namespace) -> None:
    """Examine the machine and the models, print the report, and write it as JSON if requested."""
    folder = models_folder(args.models)
    names = {model: getattr(args, model) or str(folder / model) for model in _MODELS}
    models = architectures("", *names.values())
    choices = [judge(estimate(placement, *models)) for placement in placements(models[0])]
    report = {
        "machine": {
            "system": platform.platform(),
            "cpu_cores": len(os.sched_getaffinity(0)),
            "ram": dict(zip(("free", "total"), memory("cpu"), strict=True)),
            "cuda": [_gpu(index) for index in range(torch.cuda.device_count())],
            "versions": {"python": platform.python_version()}
            | {name: installed_version(name) or "missing" for name in _LIBRARIES},
        },
        **names,
        # None if the hub does not answer.
        "hub": {
            model: asdict(offered) if (offered := offer(name)) else None
            for model, name in names.items()
            if is_hub_id(name)
        },
        "window": {name: getattr(models[0].spec, name) for name in ("frames", "image_size", "frame_tokens")},
        "choices": choices,
        "recommendation": recommend(choices),
        "findings": [*findings(), *refusals(tuple(names.values()), models)],
    }
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    for part in _printed(report):
        console.print(part, markup=False)
    if args.json:
        write_report(args.json, json.dumps(report, indent=1) + "\n")


def placements(target: TargetArchitecture) -> list[Placement]:
    """Return the sensible placements of a target, the largest first. A GGUF has one.

    The order is: both models on GPUs, the draft on the CPU, both models on the CPU, llama.cpp.
    """
    if isinstance(target, GgufArchitecture):
        return [available(target=target.file.name)]
    device, dtypes = available().device, DTYPES if find_spec("bitsandbytes") else DTYPES[:2]
    drafts = ("", "cuda:1") if torch.cuda.device_count() > 1 else ("",)
    choices = [Placement(dtype, device, draft) for dtype in dtypes for draft in drafts]
    if device != "cpu":
        choices += [Placement(dtypes[-1], device, "cpu"), *(Placement(dtype) for dtype in dtypes[1:])]
    if is_llama(target.text):
        choices += [Placement(dtype, engine=LLAMA_CPP) for dtype in LLAMA_KINDS]
    return choices


def judge(footprint: Footprint) -> dict[str, Any]:
    """Return a placement for JSON: the estimated bytes by model and by device, and whether they fit."""
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


def recommend(choices: Sequence[Mapping[str, Any]]) -> str:
    """Return the flags of the most exact placement that fits, preferably with the draft.

    On a GPU, bfloat16 precedes float32: the models were published in half precision, and it is twice as fast.
    """
    for verdict in (_FITS, _ALONE):
        for choice in choices:
            placement = Placement(**choice["placement"])
            is_slow = placement.dtype == "float32" and placement.device != "cpu"
            if choice["verdict"] == verdict and not is_slow:
                is_gguf = placement.dtype == GGUF
                options = {
                    "dtype": "" if is_gguf else placement.dtype,
                    "device": placement.device,
                    "engine": "" if is_gguf or placement.engine == TORCH else placement.engine,
                    "draft-device": placement.draft_device,
                    "draft": NO_DRAFT if verdict == _ALONE else "",
                }
                return " ".join(f"--{name} {value}" for name, value in options.items() if value)
    return "nothing fits now: end other programs that use the memory, or choose smaller models"


def findings() -> Iterator[str]:
    """Yield a sentence about each fault of the installation."""
    shared, needed = "/dev/shm", PARTICIPANTS * SEGMENT_BYTES
    if os.path.isdir(shared) and (free := shutil.disk_usage(shared).free) < needed:
        yield (
            f"{shared} has {free >> 20} MB free, which makes images slow: give it {needed >> 20} MB (docker "
            f"run --shm-size), or run rm {shared}/*fastdds* while no node runs"
        )
    yield from (sentence for _, sentence in unmet_requirements())
    if not installed_version("bitsandbytes"):
        yield "bitsandbytes is missing, which int8 and nf4 need: run pip install bitsandbytes"


def refusals(names: Sequence[str], models: Sequence[Any]) -> Iterator[str]:
    """Yield the errors that loading these models would raise.

    The weights of models on the hub are not checked.
    """
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


def _printed(report: dict[str, Any]) -> Iterator[str | Table]:
    """Yield the lines and the table of the report."""
    machine = report["machine"]
    yield f"{machine['system']}; {', '.join(map(' '.join, machine['versions'].items()))}"
    yield f"{machine['cpu_cores']} CPU cores, RAM {_free(machine['ram'])}"
    for gpu in machine["cuda"]:
        yield f"{gpu['device']}: {gpu['name']}, {_free(gpu)}{'' if gpu['bf16'] else ', no bfloat16'}"
    if not machine["cuda"]:
        yield "no CUDA device"
    yield f"target: {report['target']}; draft: {report['draft']}"
    yield from (_on_the_hub(model, found) for model, found in report["hub"].items())
    yield "a window: {frames} frames of {image_size} px, {frame_tokens} tokens".format(**report["window"])
    yield "estimated sizes, GB:"
    heads = [f"{model}: {', '.join(_PARTS)}" for model in _MODELS]
    table = Table("choice", *heads, "needed", "verdict")
    for choice in report["choices"]:
        sizes = [" + ".join(_gb(choice["estimated"][model][part]) for part in _PARTS) for model in _MODELS]
        needed = ", ".join(f"{device} {_gb(size)}" for device, size in choice["needed"].items())
        table.add_row(str(Placement(**choice["placement"])), *sizes, needed, choice["verdict"])
    yield table
    yield f"recommended: {report['recommendation']}"
    yield "findings:" if report["findings"] else "findings: none"
    yield from (f"- {finding}" for finding in report["findings"])


def _on_the_hub(model: str, found: dict[str, Any] | None) -> str:
    if not found:
        return f"the {model} on the hub: size and licence are unknown, because the hub does not answer"
    licence = (
        f"licence {found['licence']} according to its card" if found["licence"] else "no licence on its card"
    )
    return (
        f"the {model} on the hub: {_gb(found['download'])} GB, {_gb(found['missing'])} GB of it not yet "
        f"downloaded; {licence}: read the terms before you use it; latest revision {found['revision']}"
    )


def _gb(size: int) -> str:
    return f"{size / 1e9:.3g}"


def _free(sizes: dict[str, Any]) -> str:
    return f"{_gb(sizes['free'])} of {_gb(sizes['total'])} GB free"


def _gpu(index: int) -> dict[str, Any]:
    free, total = memory(f"cuda:{index}")
    properties = torch.cuda.get_device_properties(index)
    sizes = {"free": free, "total": total}
    return {"device": f"cuda:{index}", "name": properties.name, **sizes, "bf16": properties.major >= 8}
