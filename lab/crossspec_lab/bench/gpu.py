"""`crossspec bench gpu`: what the 7B models take on a device, with random weights and told captions.

Times of passes against the device's copy bandwidth, and latencies from a window's last frame by replay of a
recorded caption trace. `--tiny` does the same with small models, on the CPU as well, which says nothing
about a GPU but runs all that a GPU runs.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.progress import track
from transformers.utils import logging

from crossspec_lab.baselines.generate import TransformersGenerate
from crossspec_lab.baselines.one_shot import Whole
from crossspec_lab.baselines.prefill_hiding import PublishedPrefillHiding
from crossspec_lab.baselines.written import Written
from crossspec_lab.bench.decoders import ALONE, GENERATE, HIDING, OURS
from crossspec_lab.bench.latency import times
from crossspec_lab.bench.trace import Response, read_trace, replay
from crossspec_lab.bench.random_pair import Dimensions, dimensions_of, random_pair
from crossspec_lab.bench.gpu_passes import copy_bandwidth, pass_bytes, verify_seconds
from crossspec_lab.bench.scripted_pair import Teller
from crossspec_lab.bench.harness import (
    Decoder,
    Run,
    compared,
    ratio,
    spread,
    table,
    take_turns,
    tell,
    tokens_per_pass,
    waits,
)
from crossspec_lab.bench.held_out import event_shape, timed
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.captioning.load_decoder import free_memory, speculative_decoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import make_proposers
from crossspec_ros.errors import InputError
from crossspec_ros.models.footprint import measured_bytes
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import Placement, available
from crossspec_ros.paths import tiny_models
from crossspec_ros.settings import DTYPES, PROPOSERS
from crossspec_ros.telemetry.process_memory import resident_mb
from crossspec_ros.telemetry.trace import DRAFT_STAGES, Trace
from crossspec_ros.windows.window import Window

TOLD = (
    "random weights; captions are told: the models compute as usual, but what is accepted follows the "
    "recorded tokens. Prompts are in the words of models/tiny's tokenizers."
)
_COPY_BYTES, _TINY_COPY_BYTES = 4 << 30, 16 << 20
_WINDOW_S, _TINY_WINDOW_S = 1.0, 0.25
_WARM_UP = 2
"""Windows: a draft's buffers are kept until the next caption, so that the next draft needs others."""


class Case(NamedTuple):
    """A window of noise, and what will be said about it."""

    window: Window
    response: Response


def run(args: argparse.Namespace) -> int:
    """Measure, print tables, and write the figures if requested."""
    placements = _placements(args)
    logging.set_verbosity_error()
    like = load_pair(tiny_models())
    dimensions = dimensions_of(args.tiny, args.target)
    heard, responses = _responses(args, dimensions)
    device = torch.device(placements[0].device)
    copies = copy_bandwidth(device, _TINY_COPY_BYTES if args.tiny else _COPY_BYTES, args.repeats)
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
            runs, cost = replay_windows(pair, responses, args.rounds, heard, window_s)
        latency = latencies(runs) | {"policy_cost_ms": {n: 1e3 * s for n, s in cost.items()}}
        result["dtypes"][placement.dtype] = measured | passes | {"latency": latency}
        # Now, because the next dtype may take longer than there is time.
        tell(args, result)
        # The next models come in the place of these.
        del pair
        free_memory()
    print_tables(result)
    return 0


def _placements(args: argparse.Namespace) -> list[Placement]:
    dtypes = dict.fromkeys(args.dtypes.split(","))
    if unknown := [dtype for dtype in dtypes if dtype not in DTYPES]:
        raise InputError(f"--dtypes has '{unknown[0]}': give some of {','.join(DTYPES)}, with commas between")
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
    for name, model in (("target", dimensions.target), ("draft", dimensions.draft)):
        largest = max((token for response in every for token in getattr(response, name)), default=0)
        words = model.text.vocab_size
        if largest >= words:
            raise InputError(
                f"the trace '{args.trace}' has the token {largest} of the {name}, but the {name} of "
                f"{dimensions.name} knows {words}: give a trace of its own tokens"
            )
    return every[: args.heard], responses


def _passes(pair: ModelPair, repeats: int, copied: float) -> dict[str, Any]:
    """Figures of single passes, `copied` being bytes per second."""
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


def replay_windows(
    pair: ModelPair,
    responses: Sequence[Response],
    rounds: int,
    heard: Sequence[Response] = (),
    window_s: float = 1.0,
) -> tuple[dict[str, list[Run]], dict[int, float]]:
    """Caption a window of noise for each response, `rounds` times, by all decoders in turn.

    Ours begins each round with a memory that knows the captions `heard` and none of `responses`. A window
    lasts `window_s`, which ours lives through in real time. Also returns the seconds that a pass takes, by
    its size, as ours measured them.
    """
    teller = Teller(pair, QUESTION)
    with ExitStack() as stack:

        def told(decoder: Any) -> Decoder[Case]:
            caption = timed(decoder, stack)

            def run(case: Case, trace: Trace) -> Written:
                wanted = teller.tell(case.response)
                written = caption(case.window, trace)
                if written.tokens != wanted:
                    raise AssertionError(f"told {wanted}, but said {written.tokens}")
                return written

            return run

        ours = speculative_decoder(teller.pair)
        decoders = {
            OURS: told(ours),
            ALONE: told(Whole(ours.alone())),
            HIDING: told(PublishedPrefillHiding(teller.pair)),
            GENERATE: told(TransformersGenerate(teller.pair, "plain")),
        }
        cost = ours.policy.cost
        assert cost is not None
        runs: dict[str, list[Run]] = {name: [] for name in decoders}
        windows = noise_windows(pair, window_s)
        for turn in range(rounds + 1):
            ours.policy = Policy(make_proposers(PROPOSERS), copy.deepcopy(cost))
            if turn and heard:
                replay(heard, ours.policy, "what the memory has heard")
            # The first does not count: all that is slow the first time.
            now = responses if turn else responses[:_WARM_UP]
            label = f"captioning, round {turn} of {rounds}" if turn else "warming up"
            cases = (Case(next(windows), response) for response in track(now, label))
            done = take_turns(decoders, cases)
            if turn:
                for name, mine in runs.items():
                    mine += done[name]
    return runs, cost.table()


def noise_windows(pair: ModelPair, window_s: float, first_index: int = 0) -> Iterator[Window]:
    """Yield windows of noise that last `window_s`."""
    rng, length, spec = np.random.default_rng(first_index), round(window_s * 1e9), pair.target.spec
    for index in count(first_index):
        event_images = noise(rng, *event_shape(pair))
        frames = noise(rng, spec.frames, spec.image_size)
        stamps = tuple(i * length // spec.frames for i in range(spec.frames))
        yield Window(index, 0, length, event_images, frames, stamps)


def noise(rng: np.random.Generator, images: int, size: int) -> np.ndarray:
    """(images, size, size, 3) uint8 that nobody has seen."""
    return rng.integers(0, 256, (images, size, size, 3), np.uint8)


def latencies(runs: Mapping[str, Sequence[Run]]) -> dict[str, Any]:
    """Times by decoder, tokens of ours a pass, and how much of our draft was hidden."""
    ours = runs[OURS]
    return {
        "windows": len(ours),
        "modes": compared(runs, ALONE),
        "times_sooner_than_generate": ratio(waits(runs[GENERATE]), waits(ours)),
        "tokens_per_pass": tokens_per_pass(ours),
        "hidden_share": spread([_hidden_share(run.trace) for run in ours]),
    }


def _hidden_share(trace: Trace) -> float:
    stages = trace.stages
    return trace.hidden / (sum(stages.get(stage, 0.0) for stage in DRAFT_STAGES) or 1.0)


@contextmanager
def _peak(phase: str, placement: Placement, sizes: dict[str, int]) -> Iterator[None]:
    """The most bytes that were allocated on each device; on the CPU, the process's size afterwards."""
    devices = {placement.device, placement.draft_on}
    for device in devices - {"cpu"}:
        torch.cuda.reset_peak_memory_stats(device)
    yield
    for device in devices:
        size = resident_mb() * 1e6 if device == "cpu" else torch.cuda.max_memory_allocated(device)
        sizes[f"{phase} on {device}"] = int(size)


def print_tables(figures: dict[str, Any]) -> None:
    """Everything, a row for each dtype."""
    runs, latency = figures["dtypes"], {d: run["latency"] for d, run in figures["dtypes"].items()}
    print(f"{figures['dimensions']} dimensions on {figures['device']}, torch {figures['torch']}; {TOLD}\n")
    print(table("T_verify(n), n tokens in one pass: ms", {d: run["verify_ms"] for d, run in runs.items()}))
    single = ("bound_ms", "achieved_gb_s", "bandwidth_share", "verify_32_to_1")
    copies = {"copy_gb_s": figures["copy_gb_s"]}
    print(table("one pass", {d: copies | {key: run[key] for key in single} for d, run in runs.items()}))
    sizes = {d: {name: size / 1e9 for name, size in run["bytes"].items()} for d, run in runs.items()}
    print(table("memory, at most after each phase, GB", sizes))
    for dtype, found in latency.items():
        print(table(f"{dtype}: {found['windows']} windows, ms", times(found["modes"])))
    ours = ("tokens_per_pass", "hidden_share", "times_sooner_than_generate")
    print(table(OURS, {d: {key: found[key] for key in ours} for d, found in latency.items()}))
