"""Measure what a rehearsed caption saves at 7B dimensions, with scripted captions of random-weight models.

`python -m crossspec_lab.bench.gpu_rehearsal OUT.json DEVICE TRACE.jsonl DTYPES [TARGET_FOLDER | tiny]`

A rehearsal is prescribed, because random weights write nothing: the recorded caption of half a second
earlier (pessimistic, since none of its frames is in the window) or the caption itself (optimistic). All
decoders take turns on the same windows. The figures are written after each dtype.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from transformers.utils import logging

from crossspec_lab.baselines.one_shot import Whole
from crossspec_lab.baselines.written import Written
from crossspec_lab.bench.gpu import noise_windows
from crossspec_lab.bench.trace import Response, read_trace, replay
from crossspec_lab.bench.random_pair import dimensions_of, random_pair
from crossspec_lab.bench.scripted_pair import Teller
from crossspec_lab.bench.harness import (
    Decoder,
    Run,
    compared,
    ratio,
    spread,
    take_turns,
    tokens_per_pass,
    waits,
)
from crossspec_lab.bench.held_out import timed
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.captioning.load_decoder import free_memory, speculative_decoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context, PassResult, Proposer, make_proposers
from crossspec_ros.drafting.proposers.chain import align
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import available
from crossspec_ros.paths import tiny_models
from crossspec_ros.settings import PROPOSERS
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

ALONE, WITHOUT = "target alone", "crossspec_ros, no rehearsal"
EARLIER, ITSELF = "rehearsal: caption of 0.5 s earlier", "rehearsal: the caption itself"
_HEARD, _WINDOWS, _WARM_UP, _BACK_TO_BACK = 100, 20, 3, 8
_PROB = 0.9


class PrescribedRehearsal(Proposer):
    """Propose from a prescribed draft of each caption; the next draft follows when a caption has ended."""

    name = "rehearsal"

    def __init__(self, drafts: Sequence[tuple[int, ...]]) -> None:
        self._drafts, self._index = drafts, 0

    def propose(self, context: Context, budget: int, worth: float) -> DraftTree:
        """Return what the draft says after the verified tokens."""
        draft = self._drafts[self._index]
        tokens = draft[align(context.tokens, draft) :][:budget]
        return DraftTree.chain(tokens, (_PROB,) * len(tokens), self.name)

    def observe(self, result: PassResult) -> None:
        """Move on to the next caption's draft at the end of a caption."""
        self._index += result.ended


def main() -> None:
    """Measure each dtype and write the figures."""
    out, device, trace, dtypes, *target = sys.argv[1:]
    is_tiny = target == ["tiny"]
    logging.set_verbosity_error()
    dimensions = dimensions_of(is_tiny, "" if is_tiny else "".join(target))
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU",
        "torch": torch.__version__,
        "dimensions": dimensions.name,
        "scripted": "random weights; accepted tokens follow the recorded captions",
        "trace": Path(trace).name,
        "dtypes": {},
    }
    responses = read_trace(Path(trace))
    for dtype in dtypes.split(","):
        pair = random_pair(load_pair(tiny_models()), dimensions, available(dtype, device))
        found["dtypes"][dtype] = _measure(pair, responses, is_tiny)
        print(json.dumps(found["dtypes"][dtype], indent=1), flush=True)
        Path(out).write_text(json.dumps(found, indent=1) + "\n")
        del pair
        free_memory()


def _measure(pair: ModelPair, responses: Sequence[Response], is_tiny: bool) -> dict[str, Any]:
    """Compare the decoders on windows in real time, then without a pause between windows."""
    heard_count, measured = (1, 3) if is_tiny else (_HEARD, _WINDOWS)
    # Windows are one second apart, lines of the trace half a second.
    lines = range(2, 2 * (heard_count + _WARM_UP + measured + _WARM_UP + _BACK_TO_BACK) + 1, 2)
    eos = pair.target.spec.eos_ids[0]
    captions = [responses[i % len(responses)] for i in lines]
    earlier = [(*responses[(i - 1) % len(responses)].target, eos) for i in lines]
    itself = [(*response.target, eos) for response in captions]
    heard, rest = captions[:heard_count], iter(captions[heard_count:])
    teller, windows = Teller(pair, QUESTION), noise_windows(pair, 0.25 if is_tiny else 1.0)
    with ExitStack() as stack:
        crossspec_ros = stack.enter_context(closing(speculative_decoder(teller.pair)))
        cost = crossspec_ros.policy.cost
        drafts = {
            WITHOUT: (),
            EARLIER: (PrescribedRehearsal(earlier),),
            ITSELF: (PrescribedRehearsal(itself),),
        }
        policies = {
            name: Policy((*extra, *make_proposers(PROPOSERS)), cost) for name, extra in drafts.items()
        }
        for name, policy in policies.items():
            replay(heard, policy, name)
        streamed = timed(crossspec_ros, stack)
        alone = timed(Whole(crossspec_ros.alone()), stack)

        def scripted(caption: Decoder[Window], policy: Policy | None) -> Decoder[tuple[Window, Response]]:
            def run(case: tuple[Window, Response], trace: Trace) -> Written:
                wanted = teller.tell(case[1])
                crossspec_ros.policy = policy or crossspec_ros.policy
                written = caption(case[0], trace)
                if written.tokens != wanted:
                    raise AssertionError(f"the script has {wanted}, but the decoder wrote {written.tokens}")
                return written

            return run

        decoders = {name: scripted(streamed, policy) for name, policy in policies.items()}
        decoders[ALONE] = scripted(alone, None)
        take_turns(decoders, zip(windows, islice(rest, _WARM_UP), strict=False))
        cases = zip(windows, track(list(islice(rest, measured)), "one window a second"), strict=False)
        runs = take_turns(decoders, cases)
        hurried = noise_windows(pair, 0.001, first_index=1000)
        take_turns(decoders, zip(hurried, islice(rest, _WARM_UP), strict=False))
        seconds = _back_to_back(decoders, list(zip(hurried, rest, strict=False)))
    modes = compared(runs, ALONE)
    for name, mine in runs.items():
        modes[name]["tokens_per_pass"] = tokens_per_pass(mine)
        modes[name]["last_frame_to_caption_ratio"] = ratio(waits(runs[ALONE]), waits(mine))
        modes[name]["no_pause_s_per_window"] = spread(seconds[name])
        modes[name]["engine_ms_per_window"] = _engine_ms(mine)
    assert cost is not None
    return {
        "windows": measured,
        "decoders": modes,
        "pass_cost_ms": {n: 1e3 * s for n, s in cost.table().items()},
    }


def _back_to_back(
    decoders: dict[str, Decoder[tuple[Window, Response]]], cases: Sequence[tuple[Window, Response]]
) -> dict[str, list[float]]:
    """Time windows whose images are all there when the window before has its caption."""
    seconds: dict[str, list[float]] = {name: [] for name in decoders}

    def clocked(
        name: str, caption: Decoder[tuple[Window, Response]]
    ) -> Callable[[tuple[Window, Response], Trace], Written]:
        def run(case: tuple[Window, Response], trace: Trace) -> Written:
            begun = time.perf_counter()
            written = caption(case, trace)
            marked = trace.marks.get("last_frame", 0) / 1e9
            # `timed` pauses before a decoder that gets its window at once; the pause does not count.
            seconds[name].append(time.perf_counter() - (max(begun, marked) if name == ALONE else begun))
            return written

        return run

    take_turns({name: clocked(name, caption) for name, caption in decoders.items()}, cases)
    return seconds


def _engine_ms(runs: Sequence[Run]) -> float:
    """Return the target's median milliseconds in passes and in its vision tower for each window."""
    stages = ("frame_encode", "target_prefill", "verify", "decode")
    return float(np.median([sum(run.trace.stages.get(stage, 0.0) for stage in stages) for run in runs]))


if __name__ == "__main__":
    main()
