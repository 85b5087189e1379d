"""From a window's close to its caption by trace replay, ours and others, window by window in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.progress import track

from crossspec_ros.bench.gpu_passes import hidden_share, noise
from crossspec_ros.bench.gpu_told import ToldDecoder, ToldGenerate, ToldPrefillHiding
from crossspec_ros.bench.harness import spread
from crossspec_ros.bench.trace import Response, replay
from crossspec_ros.bench.windows import live
from crossspec_ros.captioning.assembly import default_proposers
from crossspec_ros.drafting.cost import VerifyCost
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.models.loading import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.training.world.grammar import QUESTION
from crossspec_ros.windows.window import Window

OURS, ALONE, HIDING, GENERATE = "ours", "autoregressive", "published prefill hiding", "generate, plain"
_IDLE_S = 0.1
"""Before a mode that begins at the close: ours too comes from idling."""

_WARM_UP = 2
"""Windows: a draft's buffers are kept until the next caption, so that the next draft needs others."""

Mode = Callable[[Window, Response, Trace], None]
"""Captions a window with the response; marks "closed" and "caption" in the trace."""


@dataclass
class Latency:
    """Every mode's traces, window by window in the same order, and the passes and tokens of ours.

    `cost` is what the policy began with: seconds of a pass by size, as it measured them itself.
    """

    traces: dict[str, list[Trace]] = field(default_factory=dict)
    passes: int = 0
    tokens: int = 0
    cost: dict[int, float] = field(default_factory=dict)

    def ms(self, mode: str, mark: str) -> np.ndarray:
        """Milliseconds from the close to a mark, by window; to the caption where there is no such mark."""
        marks = [trace.marks for trace in self.traces[mode]]
        return np.array([(m.get(mark, m["caption"]) - m["closed"]) / 1e6 for m in marks])

    def hidden(self) -> np.ndarray:
        """The hidden share of our draft's work, by window."""
        return np.array([hidden_share(trace) for trace in self.traces[OURS]])


def replay_windows(
    pair: ModelPair,
    responses: Sequence[Response],
    rounds: int,
    heard: Sequence[Response] = (),
    window_s: float = 1.0,
    is_static: bool | None = None,
) -> Latency:
    """Caption a window of noise for each response, `rounds` times, by all modes in turn.

    Ours begins each round with a memory that knows the captions `heard` and none of `responses`. A window
    lasts `window_s`, which ours lives through in real time.
    """
    result, rng, index = Latency(), np.random.default_rng(0), 0
    with _modes(pair, result, is_static) as (ours, modes):
        cost = VerifyCost(result.cost)
        for turn in range(rounds + 1):
            # In the first, which does not count, all that is slow the first time.
            told = responses if turn else responses[:_WARM_UP]
            ours.policy = Policy(default_proposers(), VerifyCost(cost.table()))
            if turn and heard:
                replay(heard, ours.policy, cost, "what the memory has heard")
            if turn == 1:
                result.traces, result.passes, result.tokens = {name: [] for name in modes}, 0, 0
            for response in track(told, f"captioning, round {turn} of {rounds}" if turn else "warming up"):
                window, index = _window(pair, index, window_s, rng), index + 1
                names = list(modes)
                for name in names[index % len(names) :] + names[: index % len(names)]:
                    trace = Trace()
                    modes[name](window, response, trace)
                    result.traces.setdefault(name, []).append(trace)
    return result


@contextmanager
def _modes(
    pair: ModelPair, result: Latency, is_static: bool | None
) -> Iterator[tuple[ToldDecoder, dict[str, Mode]]]:
    ours = ToldDecoder(pair, Policy((), None), is_static=is_static)
    alone = ToldDecoder(pair, Policy((), None), is_static=is_static)
    hiding, generate = ToldPrefillHiding(pair, is_static), ToldGenerate(pair)
    ours.warm_up()
    alone.warm_up_alone()
    result.cost = ours.measure().table()

    def caption_live(window: Window, response: Response, trace: Trace) -> None:
        ours.tell(response)
        caption = live(ours, window, trace, QUESTION)
        trace.mark("caption")
        _check(caption.token_ids, response)
        result.passes += caption.target_passes
        result.tokens += len(caption.token_ids)

    def caption_alone(window: Window, response: Response, trace: Trace) -> None:
        alone.tell(response)
        _close(trace)
        caption = alone.caption(window, QUESTION, trace)
        trace.mark("caption")
        _check(caption.token_ids, response)

    def caption_hiding(window: Window, response: Response, trace: Trace) -> None:
        hiding.tell(response)
        _close(trace)
        tokens = hiding(window, QUESTION, trace)
        trace.mark("caption")
        _check(tokens, response)

    def caption_generate(window: Window, response: Response, trace: Trace) -> None:
        _close(trace)
        generate(window, response, QUESTION, trace)
        trace.mark("caption")

    modes: dict[str, Mode] = {OURS: caption_live, ALONE: caption_alone}
    modes |= {HIDING: caption_hiding, GENERATE: caption_generate}
    try:
        yield ours, modes
    finally:
        ours.close()
        alone.close()
        hiding.close()


def _close(trace: Trace) -> None:
    time.sleep(_IDLE_S)
    trace.mark("closed")


def _check(said: tuple[int, ...], response: Response) -> None:
    if said != response.target:
        raise AssertionError(f"told {response.target}, but said {said}")


def _window(pair: ModelPair, index: int, window_s: float, rng: np.random.Generator) -> Window:
    length = round(window_s * 1e9)
    return Window(
        index,
        0,
        length,
        noise(rng, pair.event_images, pair.event_image_size),
        noise(rng, pair.frames, pair.frame_size),
        tuple(i * length // pair.frames for i in range(pair.frames)),
    )


def figures(latency: Latency) -> dict[str, Any]:
    """Medians and deciles, also of the ratios of times in the same window, ready for JSON."""
    modes: dict[str, Any] = {}
    for name in latency.traces:
        modes[name] = {"caption_ms": spread(latency.ms(name, "caption"))}
        if name != GENERATE:
            modes[name]["first_token_ms"] = spread(latency.ms(name, "first_token"))
    ratios = {
        f"{mark} {name}": spread(latency.ms(name, mark) / latency.ms(OURS, mark))
        for mark in ("caption", "first_token")
        for name in latency.traces
        if name != OURS and f"{mark}_ms" in modes[name]
    }
    return {
        "windows": len(latency.traces[OURS]),
        "modes": modes,
        "times_sooner": ratios,
        "tokens_per_pass": latency.tokens / latency.passes,
        "hidden_share": spread(latency.hidden()),
        "policy_cost_ms": {size: value * 1e3 for size, value in latency.cost.items()},
        "stages_ms": {
            name: {
                stage: float(np.median([trace.stages.get(stage, 0.0) for trace in traces]))
                for stage in {stage for trace in traces for stage in trace.stages}
            }
            for name, traces in latency.traces.items()
        },
    }
