"""`crossspec bench structured`: captions as JSON of a schema and yes/no questions: how soon, how right, what
they cost."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

import numpy as np
from rich.progress import track

from crossspec_lab.baselines.generate import TransformersGenerate
from crossspec_lab.baselines.one_shot import Whole
from crossspec_lab.baselines.written import Written
from crossspec_lab.compare.bench_latency import ALONE, GENERATE, OURS, times
from crossspec_lab.compare.harness import (
    Decoder,
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
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

MOST_TOKENS = 128
"""Tokens of an answer: the tiny target spells its keys in pieces."""


def run(args: argparse.Namespace) -> int:
    """Measure, print tables, and write the figures if asked."""
    check_windows(args.windows)
    pair, schema = measured_pair(args), json.dumps(structured.SCHEMA)
    cases = list(track(held_out_windows(pair, args.windows), "rendering windows", args.windows))
    with ExitStack() as stack:
        ours = speculative_decoder(pair, MOST_TOKENS)
        alone = ours.alone()
        for decoder in (ours, alone):
            decoder.grammar = decoder.grammars.compiled(schema)
        decoders: dict[str, Decoder[Window]] = {
            OURS: timed(ours, stack),
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
        "right": _right(texts, [scene for _, scene in cases]),
        "questions": {
            "asked": len(YES_OR_NO),
            "ms": spread(asked.took_ms),
            "of_caption": spread(np.array(asked.took_ms) / waits_ms),
            "right": asked.right([scene for _, scene in cases]),
        },
    }
    print(table(f"{len(cases)} windows, ms", times(figures["modes"])))
    print(table("ours", {"": {"tokens_per_pass": figures["tokens_per_pass"]}}))
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
