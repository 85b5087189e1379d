"""`crossspec bench gpu`: what the 7B models take on a device, with random weights and told captions.

Times of passes against the device's copy bandwidth, how much of the draft is hidden, and latencies from a
window's close by replay of a recorded caption trace. `--tiny` does the same with small models on the CPU,
which says nothing about a GPU but runs all that a GPU runs.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from transformers.utils import logging

from crossspec_ros.bench.gpu_latency import OURS, figures, replay_windows
from crossspec_ros.bench.gpu_models import Dimensions, dimensions_of, random_pair, seven_b
from crossspec_ros.bench.gpu_passes import Passes, copy_bandwidth, pass_bytes
from crossspec_ros.bench.gpu_plot import draw
from crossspec_ros.bench.gpu_report import print_tables
from crossspec_ros.bench.harness import spread
from crossspec_ros.bench.trace import Response, read_trace
from crossspec_ros.captioning.model_loading import free_memory
from crossspec_ros.errors import InputError
from crossspec_ros.models.footprint import estimate, measured_bytes
from crossspec_ros.models.loading import ModelPair, load_pair
from crossspec_ros.models.placement import DEVICE, DEVICES, DTYPES, Placement, available
from crossspec_ros.paths import share_dir
from crossspec_ros.telemetry.chrome_trace import chrome_trace
from crossspec_ros.telemetry.memory import resident_mb
from crossspec_ros.telemetry.trace import Trace

TOLD = (
    "random weights; captions are told: the models compute as usual, but what is accepted follows the "
    "recorded tokens. Prompts are in the words of models/tiny's tokenizers."
)


@dataclass(frozen=True)
class _Scale:
    """What differs between the real run and the tiny one."""

    copy_bytes: int
    window_s: float


_FULL, _TINY = _Scale(4 << 30, 1.0), _Scale(16 << 20, 0.25)


def run(args: argparse.Namespace) -> int:
    """Measure, print tables, and write figures, plot and timeline if asked."""
    placements = _placements(args)
    logging.set_verbosity_error()
    like = load_pair(share_dir() / "models" / "tiny")
    dimensions = dimensions_of(like, "tiny") if args.tiny else seven_b()
    heard, responses = _responses(args, dimensions)
    scale = _TINY if args.tiny else _FULL
    device = torch.device(placements[0].device)
    copies = copy_bandwidth(device, scale.copy_bytes, args.repeats)
    free_memory()
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU",
        "torch": torch.__version__,
        "dimensions": dimensions.name,
        "told": TOLD,
        "trace": args.trace.name,
        "stride": args.stride,
        "heard": len(heard),
        "repeats": args.repeats,
        "rounds": args.rounds,
        "copy_gb_s": spread(np.array(copies) / 1e9),
        "dtypes": {},
    }
    timelines: dict[str, Sequence[Trace]] = {}
    for placement in placements:
        pair = random_pair(like, dimensions, placement)
        # As many as the recorded drafts have; the time of a token needs two.
        tokens = max(2, round(np.mean([len(response.draft) for response in responses])))
        peaks: dict[str, dict[str, int]] = {}
        measured: dict[str, Any] = {
            "placement": str(placement),
            "attention": pair.target.config._attn_implementation,
            "bytes": _bytes(pair, placement, dimensions) | {"peak": peaks},
        }
        with _peak("passes", placement, peaks):
            passes, both = _passes(pair, args.repeats, tokens, float(np.median(copies)))
        free_memory()
        with _peak("latency", placement, peaks):
            latency = replay_windows(pair, responses, args.rounds, heard, scale.window_s)
        result["dtypes"][placement.dtype] = measured | passes | {"latency": figures(latency)}
        for name, traces in (latency.traces | {"both at once": both}).items():
            timelines[f"{placement.dtype}: {name}"] = traces
        # Now, because the next dtype may take longer than there is time.
        _write(args, result, timelines, timelines[f"{placements[0].dtype}: {OURS}"][-1])
        # The next models come in the place of these.
        del pair
        free_memory()
    print_tables(result)
    return 0


def _write(
    args: argparse.Namespace, result: dict[str, Any], timelines: dict[str, Sequence[Trace]], shown: Trace
) -> None:
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    if args.timeline:
        args.timeline.write_text(json.dumps(chrome_trace(timelines)) + "\n")
    if args.plot:
        draw(result, shown).savefig(args.plot, dpi=100)


def _placements(args: argparse.Namespace) -> list[Placement]:
    dtypes = dict.fromkeys(args.dtypes.split(","))
    if unknown := [dtype for dtype in dtypes if dtype not in DTYPES]:
        raise InputError(f"--dtypes has '{unknown[0]}': give some of {','.join(DTYPES)}, with commas between")
    for name in (args.device, args.draft_device):
        if name not in ("auto", "") and not re.fullmatch(DEVICE, name):
            raise InputError(f"'{name}' is no device: give one of {', '.join(DEVICES)}")
    if args.tiny and (args.device != "auto" or args.draft_device):
        raise InputError("--tiny runs on the CPU: leave out --device and --draft-device")
    if not args.tiny and not torch.cuda.is_available():
        raise InputError(
            "bench gpu measures 7B models, but torch finds no CUDA device: run it where there is one, or try "
            "it on the CPU with --tiny"
        )
    devices = ("cpu", "") if args.tiny else (args.device, args.draft_device)
    return [available(dtype, *devices) for dtype in dtypes]


def _responses(
    args: argparse.Namespace, dimensions: Dimensions
) -> tuple[Sequence[Response], Sequence[Response]]:
    """The responses that the memory begins with, and those of the windows."""
    every = read_trace(args.trace)[:: args.stride]
    responses = every[args.heard : args.heard + args.windows]
    if not responses:
        raise InputError(
            f"the trace '{args.trace}' has {len(every)} responses at stride {args.stride}, and --heard "
            f"{args.heard} leaves none to measure: lower it"
        )
    largest = max(max((*response.target, *response.draft)) for response in every)
    words = dimensions.target.text_config.vocab_size
    if largest >= words:
        raise InputError(
            f"the trace '{args.trace}' has the token {largest}, but the {dimensions.name} target knows "
            f"{words}: give a trace of its own tokens"
        )
    return every[: args.heard], responses


def _passes(
    pair: ModelPair, repeats: int, tokens: int, copied: float
) -> tuple[dict[str, Any], Sequence[Trace]]:
    """Figures of single passes, `copied` being bytes per second, and timelines of both models at once."""
    with closing(Passes(pair, repeats)) as passes:
        verify, stages, overlap = passes.verify(), passes.stages(tokens), passes.overlap(tokens)
    read = pass_bytes(pair, passes.context)
    medians = {size: float(np.median(times)) for size, times in verify.items()}
    return {
        "verify_ms": {size: _ms(times) for size, times in verify.items()},
        "verify_32_to_1": medians[32] / medians[1],
        "pass_bytes": read,
        "bound_ms": read / copied * 1e3,
        "achieved_gb_s": read / medians[1] / 1e9,
        "bandwidth_share": read / medians[1] / copied,
        "stages_ms": {name: _ms(times) for name, times in stages.items()},
        "draft_tokens": tokens,
        "overlap": {
            "windows_read": overlap.windows,
            "draft_alone_ms": _ms(overlap.draft),
            "target_alone_ms": _ms(overlap.target),
            "together_ms": _ms(overlap.together),
            "hidden_share": spread(overlap.hidden),
            "hidden_share_by_telemetry": spread(overlap.telemetry),
            "target_slowdown": spread(overlap.slowdown),
        },
    }, overlap.traces


def _bytes(pair: ModelPair, placement: Placement, dimensions: Dimensions) -> dict[str, Any]:
    estimated = estimate(placement, dimensions.target, dimensions.draft, dimensions.vision)
    return {
        "weights": {"target": measured_bytes(pair.target), "draft": measured_bytes(pair.draft)},
        "estimated": {"target": asdict(estimated.target), "draft": asdict(estimated.draft)},
    }


def _ms(times: Sequence[float]) -> dict[str, float]:
    return spread(np.array(times) * 1e3)


@contextmanager
def _peak(phase: str, placement: Placement, peaks: dict[str, dict[str, int]]) -> Iterator[None]:
    """The most bytes that were allocated on each device; on the CPU, the process's size afterwards."""
    devices = {placement.device, placement.draft_on}
    for device in devices - {"cpu"}:
        torch.cuda.reset_peak_memory_stats(device)
    yield
    peaks[phase] = {
        device: int(resident_mb() * 1e6) if device == "cpu" else torch.cuda.max_memory_allocated(device)
        for device in sorted(devices)
    }
