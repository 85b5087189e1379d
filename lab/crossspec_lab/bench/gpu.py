"""`crossspec bench gpu`: time and memory of 7B models on a device, with random weights and scripted captions.

It measures passes against the device's copy bandwidth, and latencies from a window's last frame by replay of
a recorded caption trace. `--tiny` runs the same code with small models, on the CPU as well. Its times show
nothing about a GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers.utils import logging

from crossspec_lab.bench.gpu_passes import copy_bandwidth, pass_bytes, verify_seconds
from crossspec_lab.bench.gpu_windows import latencies, noise, replay_windows
from crossspec_lab.bench.random_pair import Dimensions, dimensions_of, random_pair
from crossspec_lab.bench.report import write_figures
from crossspec_lab.bench.statistics import spread
from crossspec_lab.bench.tables import Table
from crossspec_lab.bench.trace import Response, read_trace
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.captioning.load_decoder import free_memory
from crossspec_ros.errors import InputError
from crossspec_ros.models.footprint import measured_bytes
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import Placement, available
from crossspec_ros.paths import tiny_models
from crossspec_ros.settings import DTYPES
from crossspec_ros.telemetry.process_memory import resident_mb

SCRIPTED = (
    "random weights; captions are scripted: the models compute as usual, but accepted tokens follow the "
    "recorded ones. Prompts are in the words of models/tiny's tokenizers."
)
_COPY_BYTES, _TINY_COPY_BYTES = 4 << 30, 16 << 20
_WINDOW_S, _TINY_WINDOW_S = 1.0, 0.25


def run(args: argparse.Namespace) -> int:
    """Measure, print tables, and write the figures if requested."""
    placements = _placements(args)
    logging.set_verbosity_error()
    like = load_pair(tiny_models())
    dimensions = dimensions_of(args.tiny, args.target)
    heard, cases = _cases(args, dimensions)
    device = torch.device(placements[0].device)
    copies = copy_bandwidth(device, _TINY_COPY_BYTES if args.tiny else _COPY_BYTES, args.repeats)
    free_memory()
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU",
        "torch": torch.__version__,
        "dimensions": dimensions.name,
        "scripted": SCRIPTED,
        "trace": args.trace.name,
        "stride": args.stride,
        "heard": len(heard),
        "repeats": args.repeats,
        "copy_gb_s": spread(np.array(copies) / 1e9),
        "dtypes": {},
    }
    for placement in placements:
        pair = random_pair(like, dimensions, placement)
        measured: dict[str, Any] = {
            "placement": str(placement),
            "attention": pair.target.body.config._attn_implementation,
            "bytes": {
                "target's weights": measured_bytes(pair.target.module),
                "draft's weights": measured_bytes(pair.draft.module) if pair.draft else 0,
            },
        }
        with _peak("passes", placement, measured["bytes"]):
            passes = _passes(pair, args.repeats, float(np.median(copies)))
        free_memory()
        with _peak("latency", placement, measured["bytes"]):
            window_s = _TINY_WINDOW_S if args.tiny else _WINDOW_S
            latency = latencies(*replay_windows(pair, cases, args.hurried, heard, window_s))
        result["dtypes"][placement.dtype] = measured | passes | {"latency": latency}
        # Written now, because time may end in the next dtype.
        write_figures(args, result, _tables(result))
        # The next models come in the place of these.
        del pair
        free_memory()
    return 0


def _placements(args: argparse.Namespace) -> list[Placement]:
    dtypes = dict.fromkeys(args.dtypes.split(","))
    if unknown := [dtype for dtype in dtypes if dtype not in DTYPES]:
        raise InputError(f"--dtypes has '{unknown[0]}': set some of {','.join(DTYPES)}, with commas between")
    if not args.tiny and not torch.cuda.is_available():
        raise InputError(
            "bench gpu measures 7B models, but torch finds no CUDA device: run it where there is one, or try "
            "it on the CPU with --tiny"
        )
    found, refused = list[Placement](), list[InputError]()
    for dtype in dtypes:
        try:
            found.append(available(dtype, args.device, args.draft_device))
        except InputError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    for refusal in refused:
        print(f"left out: {refusal}", file=sys.stderr)
    return found


def _cases(
    args: argparse.Namespace, dimensions: Dimensions
) -> tuple[Sequence[Response], Sequence[tuple[Response, tuple[int, ...]]]]:
    """Return the responses that the memory begins with, and those of the windows, each with the tokens of the
    line before it."""
    lines = read_trace(args.trace)
    rows = range(args.stride - 1, len(lines), args.stride)
    heard, chosen = rows[: args.heard], rows[args.heard : args.heard + args.windows + args.hurried]
    if len(chosen) <= args.hurried:
        raise InputError(
            f"the trace '{args.trace}' has {len(rows)} responses at stride {args.stride}, and --heard "
            f"{args.heard} leaves none to measure: lower it"
        )
    for name, model in (("target", dimensions.target), ("draft", dimensions.draft)):
        largest = max((token for line in lines for token in getattr(line, name)), default=0)
        words = model.text.vocab_size
        if largest >= words:
            raise InputError(
                f"the trace '{args.trace}' has the token {largest} of the {name}, but the {name} of "
                f"{dimensions.name} has {words}: give a trace of its own tokens"
            )
    return [lines[row] for row in heard], [(lines[row], lines[max(0, row - 1)].target) for row in chosen]


def _passes(pair: ModelPair, repeats: int, copied: float) -> dict[str, Any]:
    """Return figures of single passes; `copied` is the copy bandwidth in bytes per second."""
    frames = noise(np.random.default_rng(0), pair.target.spec.frames, pair.target.spec.image_size)
    verify = verify_seconds(pair, frames, QUESTION, repeats)
    read = pass_bytes(pair, pair.target.spec.frame_tokens)
    medians = {size: float(np.median(times)) for size, times in verify.items()}
    return {
        "verify_ms": {size: spread(np.array(times) * 1e3) for size, times in verify.items()},
        "verify_32_to_1": medians[32] / medians[1],
        "pass_bytes": read,
        "bound_ms": read / copied * 1e3,
        "achieved_gb_s": read / medians[1] / 1e9,
        "bandwidth_share": read / medians[1] / copied,
    }


@contextmanager
def _peak(phase: str, placement: Placement, sizes: dict[str, int]) -> Iterator[None]:
    """Add the peak bytes on each device to `sizes`; on the CPU, the size of the process afterwards."""
    devices = {placement.device, placement.draft_on}
    for device in devices - {"cpu"}:
        torch.cuda.reset_peak_memory_stats(device)
    yield
    for device in devices:
        size = resident_mb() * 1e6 if device == "cpu" else torch.cuda.max_memory_allocated(device)
        sizes[f"{phase} on {device}"] = int(size)


def _tables(figures: dict[str, Any]) -> list[Table]:
    """Return the figures as tables, a row for each dtype."""
    runs = figures["dtypes"]
    title = f"{figures['dimensions']} dimensions on {figures['device']}; {SCRIPTED}"
    verify = {dtype: {f"T({n}), ms": ms for n, ms in run["verify_ms"].items()} for dtype, run in runs.items()}
    single = ("bound_ms", "achieved_gb_s", "bandwidth_share", "verify_32_to_1")
    copies = {"copy_gb_s": figures["copy_gb_s"]}
    passes = {dtype: copies | {key: run[key] for key in single} for dtype, run in runs.items()}
    sizes = {dtype: {name: size / 1e9 for name, size in run["bytes"].items()} for dtype, run in runs.items()}
    latency = [
        Table(f"{dtype}: {run['latency']['windows']} windows", run["latency"]["modes"], "decoder")
        for dtype, run in runs.items()
    ]
    return [
        Table(title, verify),
        Table("one pass", passes),
        Table("memory, at most after each phase, GB", sizes),
        *latency,
    ]
