"""`crossspec bench structured`: latency and correctness of captions as JSON of a schema."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from contextlib import ExitStack
from typing import Any

from rich.progress import track

from crossspec_lab.baselines.generate import TransformersGenerate
from crossspec_lab.baselines.one_shot import Whole
from crossspec_lab.bench.decoders import ALONE, GENERATE, OURS
from crossspec_lab.bench.harness import (
    Decoder,
    check_windows,
    compared,
    take_turns,
    tell,
)
from crossspec_lab.bench.held_out import held_out_windows, measured_pair, timed
from crossspec_lab.bench.latency import times
from crossspec_lab.bench.tables import table
from crossspec_lab.world import questions
from crossspec_lab.world.phrases import QUESTION
from crossspec_lab.world.scene import Scene
from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.load_decoder import speculative_decoder
from crossspec_ros.windows.window import Window

MOST_TOKENS = 128
"""Tokens of an answer: the tiny target spells its keys in pieces."""


def run(args: argparse.Namespace) -> int:
    """Measure, print tables, and write the figures if asked."""
    check_windows(args.windows)
    pair, schema = measured_pair(args), json.dumps(questions.SCHEMA)
    cases = list(track(held_out_windows(pair, args.windows), "rendering windows", args.windows))
    with ExitStack() as stack:
        ours = speculative_decoder(pair)
        options = Options(QUESTION, MOST_TOKENS, grammar=ours.grammars.compiled(schema))
        decoders: dict[str, Decoder[Window]] = {
            OURS: timed(ours, stack, options),
            ALONE: timed(Whole(ours.alone(), options), stack),
            GENERATE: timed(TransformersGenerate(pair, "plain", schema, MOST_TOKENS), stack),
        }
        windows = [window for window, _ in cases]
        runs = take_turns(decoders, track(windows, "captioning"))
    texts = [pair.target.tokenizer.decode(one.written.tokens) for one in runs[OURS]]
    figures: dict[str, Any] = {
        "windows": len(cases),
        "modes": compared(runs, ALONE),
        "right": _right(texts, [scene for _, scene in cases]),
    }
    print(table(f"{len(cases)} windows, ms", times(figures["modes"])))
    print(table("share of answers that are right", figures["right"]))
    tell(args, figures)
    return 0


def _right(texts: list[str], scenes: list[Scene]) -> dict[str, dict[str, float]]:
    """Share of windows whose field, or whose whole answer, is the true one, and of the commonest truth."""
    pairs = [(json.loads(text), questions.truth(scene)) for text, scene in zip(texts, scenes, strict=True)]
    columns = {name: [(told[name], true[name]) for told, true in pairs] for name in pairs[0][1]}
    columns["all"] = [(json.dumps(told), json.dumps(true)) for told, true in pairs]
    return {name: _shares(column) for name, column in columns.items()}


def _shares(column: list[tuple[str, str]]) -> dict[str, float]:
    """Share of answers that are the true ones beside them, and that of the commonest of these."""
    right = sum(told == true for told, true in column)
    commonest = Counter(true for _, true in column).most_common(1)[0][1]
    return {"right": right / len(column), "commonest": commonest / len(column)}
