"""`crossspec bench lossless`: is the caption the target's own? The claims of docs/decoding.md, counted."""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from rich.progress import track
from transformers.utils import logging

from crossspec_ros.bench.baselines import (
    Baseline,
    FixedGamma,
    PublishedPrefillHiding,
    TransformersGenerate,
)
from crossspec_ros.bench.sampling_check import Check, check_sampling
from crossspec_ros.bench.windows import held_out_windows, stream
from crossspec_ros.captioning.assembly import speculative_decoder
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.caption_memory import CaptionMemory
from crossspec_ros.drafting.event_draft_proposer import EventDraftProposer
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.prompt_lookup import PromptLookup
from crossspec_ros.drafting.proposer import Context, Outcome, Proposer
from crossspec_ros.engine.session import TargetSession
from crossspec_ros.engine.target_model import TargetModel
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.errors import InputError
from crossspec_ros.models.loading import ModelPair, load_pair
from crossspec_ros.paths import share_dir
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.training.world.grammar import QUESTION
from crossspec_ros.windows.window import Window

QUESTIONS = (QUESTION, "Is there anybody on the road?", "Describe the traffic light.")

Mode = Callable[[Window, str, tuple[int, ...]], tuple[int, ...]]
"""From a window, a question and the target's own answer (for the adversary alone) to token ids."""


@dataclass
class Count:
    """Answers that were identical, and of the others the first token and its margin over the second best."""

    equal: int = 0
    total: int = 0
    divergences: list[tuple[int, float]] = field(default_factory=list)


class Adversary:
    """Trees of random shape, right and wrong tokens, duplicates and ends of sequence, around the answer."""

    name = "adversary"

    def __init__(self, vocabulary: int, eos_id: int) -> None:
        self.answer: tuple[int, ...] = ()
        self._random, self._vocabulary, self._eos = random.Random(0), vocabulary, eos_id

    def propose(self, context: Context, budget: int, worth: float) -> DraftTree:
        at, nodes = len(context.tokens), self._random.randrange(24)
        parents: list[int] = []
        tokens: list[int] = []
        depths: list[int] = []
        for i in range(nodes):
            parents.append(self._random.randrange(max(ROOT, i - 3), i))
            depths.append(1 if parents[i] == ROOT else depths[parents[i]] + 1)
            place = at + depths[i] - 1
            if place < len(self.answer) and self._random.random() < 0.8:
                tokens.append(self.answer[place])
            else:
                tokens.append(self._random.choice([self._eos, self._random.randrange(3, self._vocabulary)]))
        return DraftTree(tuple(tokens), tuple(parents), (0.5,) * nodes, ((self.name,),) * nodes)

    def observe(self, outcome: Outcome) -> None:
        """It learns nothing."""


def run(args: argparse.Namespace) -> int:
    """Count on `args.windows` held-out windows, print tables, and write the figures if asked."""
    if args.windows < 1:
        raise InputError(f"--windows {args.windows} compares nothing: ask for at least 1")
    logging.set_verbosity_error()
    models = args.models or share_dir() / "models" / "tiny"
    pair = load_pair(models)
    rendered = track(held_out_windows(pair, args.windows), "rendering windows", args.windows)
    windows = [window for window, _ in rendered]
    exact = count_equal(pair, windows, "float32")
    pair.target.to(torch.bfloat16)
    # For a rate a quarter of them will do.
    reduced = count_equal(pair, windows[: -(-len(windows) // 4)], "bfloat16")
    figures = _figures(exact, reduced, check_sampling(args.samples))
    print(_table(figures))
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    checks = figures["sampling"].items()
    right = all(count.equal == count.total for count in exact.values())
    return 0 if right and all(row["passed"] != name.startswith("control") for name, row in checks) else 1


def count_equal(pair: ModelPair, windows: list[Window], label: str) -> dict[str, Count]:
    """Each mode's answers to `QUESTIONS` compared with transformers' greedy `generate`."""
    counts: dict[str, Count] = {}
    plain = TransformersGenerate(pair, "plain")
    with _modes(pair) as modes:
        for window in track(windows, description=f"comparing in {label}"):
            for question in QUESTIONS:
                wanted = plain(window, question, Trace())
                for name, mode in modes.items():
                    got = mode(window, question, wanted)
                    count = counts.setdefault(name, Count())
                    count.total += 1
                    count.equal += got == wanted
                    if got != wanted:
                        count.divergences.append(_divergence(pair, window, question, wanted, got))
    return counts


@contextmanager
def _modes(pair: ModelPair) -> Iterator[dict[str, Mode]]:
    adversary = Adversary(pair.shared_ids, pair.eos_id)
    unlimited: dict[str, tuple[Proposer, ...]] = {
        "target alone, streamed": (),
        "caption memory": (CaptionMemory(),),
        "event draft": (EventDraftProposer(),),
        "prompt lookup": (PromptLookup(),),
        "adversary": (adversary,),
    }
    decoders = {name: PrefillHiddenDecoder(pair, Policy(ps, None)) for name, ps in unlimited.items()}
    decoders["all, measured policy"] = speculative_decoder(pair)
    one_shot = PrefillHiddenDecoder(pair, Policy((CaptionMemory(), EventDraftProposer()), None))
    hiding = PublishedPrefillHiding(pair)
    baselines: dict[str, Baseline] = {
        "generate, prompt lookup": TransformersGenerate(pair, "lookup"),
        "generate, assisted": TransformersGenerate(pair, "assisted"),
        "fixed gamma 4": FixedGamma(pair, 4),
        "published prefill hiding": hiding,
    }

    def streaming(decoder: PrefillHiddenDecoder) -> Mode:
        def answer(window: Window, question: str, wanted: tuple[int, ...]) -> tuple[int, ...]:
            adversary.answer = wanted
            stream(decoder, window, question)
            return decoder.caption(window, question, Trace()).token_ids

        return answer

    def asking(window: Window, question: str, wanted: tuple[int, ...]) -> tuple[int, ...]:
        if question == QUESTIONS[0]:
            return one_shot.caption(window, question, Trace()).token_ids
        return one_shot.ask(question, Trace()).token_ids

    def other(baseline: Baseline) -> Mode:
        return lambda window, question, wanted: baseline(window, question, Trace())

    modes: dict[str, Mode] = {name: streaming(decoder) for name, decoder in decoders.items()}
    modes["one-shot, further questions"] = asking
    modes |= {name: other(baseline) for name, baseline in baselines.items()}
    try:
        yield modes
    finally:
        for decoder in (*decoders.values(), one_shot):
            decoder.close()
        hiding.close()


@torch.inference_mode()
def _divergence(
    pair: ModelPair, window: Window, question: str, wanted: tuple[int, ...], got: tuple[int, ...]
) -> tuple[int, float]:
    """The first token that differs, and by how much the target alone prefers its own there (logits).

    Where numerics alone decide, that margin is of the size of the arithmetic's rounding; where it is large,
    the decoder is wrong.
    """
    at = next((i for i, (a, b) in enumerate(zip(wanted, got, strict=False)) if a != b), len(got))
    session = TargetSession(TargetModel(pair), Trace())
    for frame in window.frames:
        session.append_frame(frame)
    session.append_prompt(question)
    logits = session.verify(DraftTree.chain(wanted[:at], [1.0] * at, ""))[-1].float()
    best = logits.topk(2).values
    return at, float(best[0] - best[1])


def _figures(exact: dict[str, Count], reduced: dict[str, Count], checks: dict[str, Check]) -> dict[str, Any]:
    return {
        **{name: {"equal": count.equal, "total": count.total} for name, count in exact.items()},
        "bfloat16": {
            name: {
                "identical": count.equal,
                "answers": count.total,
                "first_divergence": [at for at, _ in count.divergences],
                "margin": [margin for _, margin in count.divergences],
            }
            for name, count in reduced.items()
        },
        "sampling": {
            name: {"passed": check.passed, **dataclasses.asdict(check)} for name, check in checks.items()
        },
    }


def _table(figures: dict[str, Any]) -> str:
    lines = ["1. float32, greedy: answers identical to transformers' generate(do_sample=False)", ""]
    lines += [
        f"  {name:<34}{row['equal']:>7} of {row['total']}" for name, row in figures.items() if "equal" in row
    ]
    lines += [
        "",
        "2. bfloat16, greedy: identical answers; where the others first differ and by how many logits the",
        "   target alone prefers its own token there (median, largest)",
        "",
    ]
    for name, row in figures["bfloat16"].items():
        line = f"  {name:<34}{row['identical']:>7} of {row['answers']}"
        if margins := row["margin"]:
            first = float(np.median(row["first_divergence"]))
            line += f"   token {first:.0f}, margin {np.median(margins):.3f}, {max(margins):.3f}"
        lines.append(line)
    lines += ["", "3. sampling: chi-square against the target's distribution at the 1e-3 level", ""]
    for name, row in figures["sampling"].items():
        verdict = "passes" if row["passed"] else "fails"
        lines.append(
            f"  {name:<50}{verdict:>7}   {row['statistic']:.0f} (critical {row['critical']:.0f}, "
            f"{row['samples']} samples)"
        )
    return "\n".join(lines)
