"""`crossspec bench structured`: captions as JSON of a schema and yes/no questions: how soon, how right, what
they cost."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from rich.progress import track

from crossspec_lab.baselines.generate import TransformersGenerate
from crossspec_lab.baselines.one_shot import Whole
from crossspec_lab.baselines.written import Written
from crossspec_lab.compare.bench_latency import ALONE, GENERATE, OURS, times
from crossspec_lab.compare.harness import (
    Decoder,
    Run,
    check_windows,
    compared,
    spread,
    table,
    take_turns,
    tell,
    tokens_per_pass,
    waits,
)
from crossspec_lab.compare.held_out import held_out_windows, lived, measured_pair, timed
from crossspec_lab.world import structured
from crossspec_lab.world.scene import Scene
from crossspec_lab.world.standing_questions import YES_OR_NO, yes_or_no
from crossspec_ros.captioning.assembly import speculative_decoder
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.standing import Standing
from crossspec_ros.engine.accept import Verifier
from crossspec_ros.engine.json_grammar import GrammarState
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

MOST_TOKENS = 128
"""Tokens of an answer: the tiny target spells its keys in pieces."""
_PASSES = ("verify", "decode")


def run(args: argparse.Namespace) -> int:
    """Measure, print tables, and write the figures if asked."""
    check_windows(args.windows)
    pair, schema = measured_pair(args), json.dumps(structured.SCHEMA)
    cases = list(track(held_out_windows(pair, args.windows), "rendering windows", args.windows))
    masks_s: list[float] = []
    with ExitStack() as stack:
        ours = speculative_decoder(pair, MOST_TOKENS)
        alone = ours.alone()
        for decoder in (ours, alone):
            decoder.grammar = decoder.grammars.compiled(schema)
        decoders: dict[str, Decoder[Window]] = {
            OURS: _masked(timed(ours, stack), masks_s),
            ALONE: timed(Whole(alone), stack),
            GENERATE: timed(TransformersGenerate(pair, "plain", schema, MOST_TOKENS), stack),
        }
        windows = [window for window, _ in cases]
        runs = take_turns(decoders, track(windows, "captioning"))
        ours.grammar = None
        asked = _Questioned(ours)
        waits_ms = waits(take_turns({OURS: asked}, track(windows, "asking"))[OURS])
    mine = runs[OURS]
    texts = [pair.target.tokenizer.decode(one.written.tokens) for one in mine]
    figures: dict[str, Any] = {
        "windows": len(cases),
        "modes": compared(runs, ALONE),
        "tokens_per_pass": tokens_per_pass(mine),
        "mask_share_of_passes": _share(mine, masks_s),
        "right": _right(texts, [scene for _, scene in cases]),
        "questions": {
            "asked": len(YES_OR_NO),
            "ms": spread(asked.took_ms),
            "of_caption": spread(np.array(asked.took_ms) / waits_ms),
            "right": asked.right([scene for _, scene in cases]),
        },
    }
    print(table(f"{len(cases)} windows, ms", times(figures["modes"])))
    ours_alone = ("tokens_per_pass", "mask_share_of_passes")
    print(table("ours", {"": {name: figures[name] for name in ours_alone}}))
    print(table("share of answers that are right", figures["right"]))
    questions = figures["questions"]
    print(table("questions", {"": {name: questions[name] for name in ("asked", "ms", "of_caption")}}))
    print(table("share of answers that are right", questions["right"]))
    tell(args, figures)
    return 0


class _Questioned:
    """Captions of live windows, each followed by yes/no questions: the milliseconds that these took."""

    def __init__(self, decoder: PrefillHiddenDecoder) -> None:
        self._decoder, self._captions = decoder, lived(decoder)
        self._passes = decoder.standing([Standing(question, ("yes", "no")) for question in YES_OR_NO]).later
        self.took_ms: list[float] = []
        self._told: list[list[str]] = []

    def __call__(self, window: Window, trace: Trace) -> Written:
        written, begun = self._captions(window, trace), time.perf_counter()
        answers = [one for choices in self._passes for one in self._decoder.choose(choices, Trace())]
        self.took_ms.append(1e3 * (time.perf_counter() - begun))
        self._told.append([one.caption.text for one in answers])
        return written

    def right(self, scenes: list[Scene]) -> dict[str, dict[str, float]]:
        """Shares of each question's answers, see `_shares`."""
        told = zip(YES_OR_NO, zip(*self._told, strict=True), strict=True)
        return {
            question: _shares(
                [(a, yes_or_no(question, scene)) for a, scene in zip(said, scenes, strict=True)]
            )
            for question, said in told
        }


def _masked(decoder: Decoder[Window], masks_s: list[float]) -> Decoder[Window]:
    """The decoder, with the time that each of its captions spends on masks."""

    def caption(window: Window, trace: Any) -> Any:
        with _clocked(masks_s):
            return decoder(window, trace)

    return caption


@contextmanager
def _clocked(masks_s: list[float]) -> Iterator[None]:
    """Add the seconds that pruning trees and accepting by masks take meanwhile."""
    spent = [0.0]

    def clocked(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            begun = time.perf_counter()
            try:
                return method(*args)
            finally:
                spent[0] += time.perf_counter() - begun

        return call

    parts = ((GrammarState, "pruned"), (Verifier, "accept_allowed"))
    before = [getattr(kind, name) for kind, name in parts]
    for (kind, name), method in zip(parts, before, strict=True):
        setattr(kind, name, clocked(method))
    try:
        yield
    finally:
        for (kind, name), method in zip(parts, before, strict=True):
            setattr(kind, name, method)
        masks_s.append(spent[0])


def _share(runs: list[Run], masks_s: list[float]) -> dict[str, float]:
    """Seconds of a pass's masks by those of a pass without them, caption by caption; the first pass, whose
    frames would make the share smaller, counts for its masks alone."""
    shares = []
    for one, spent in zip(runs, masks_s, strict=True):
        spans = [span for span in one.trace.spans if span.stage in _PASSES]
        if spans:
            masks = spent / (1 + len(spans))
            shares.append(
                masks / (sum(span.end_ns - span.start_ns for span in spans) / 1e9 / len(spans) - masks)
            )
    return spread(np.array(shares))


def _right(texts: list[str], scenes: list[Scene]) -> dict[str, dict[str, float]]:
    """Share of windows whose field, or whose whole answer, is the true one, and of the commonest truth."""
    pairs = [(json.loads(text), structured.truth(scene)) for text, scene in zip(texts, scenes, strict=True)]
    columns = {name: [(told[name], true[name]) for told, true in pairs] for name in pairs[0][1]}
    columns["all"] = [(json.dumps(told), json.dumps(true)) for told, true in pairs]
    return {name: _shares(column) for name, column in columns.items()}


def _shares(column: list[tuple[str, str]]) -> dict[str, float]:
    """Share of answers that are the true ones beside them, and that of the commonest of these."""
    right = sum(told == true for told, true in column)
    commonest = Counter(true for _, true in column).most_common(1)[0][1]
    return {"right": right / len(column), "commonest": commonest / len(column)}
