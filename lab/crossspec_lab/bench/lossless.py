"""`crossspec bench lossless`: count the answers that are the target's own, as docs/decoding.md claims."""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import torch
from rich.progress import track
from transformers.utils import logging

from crossspec_lab.baselines.generate import TransformersGenerate
from crossspec_lab.baselines.generate_inputs import continued, generate_inputs
from crossspec_lab.baselines.llama import has_llama_model
from crossspec_lab.baselines.one_shot import Written
from crossspec_lab.baselines.prompt_lookup import PromptLookup
from crossspec_lab.bench.decoders import GENERATE, OTHERS, Models, makers
from crossspec_lab.bench.input_windows import held_out_windows
from crossspec_lab.bench.live import Decoder, stream, take_turns
from crossspec_lab.bench.report import write_figures
from crossspec_lab.bench.setting import check_windows, measured_pair
from crossspec_lab.bench.statistics import spread
from crossspec_lab.bench.tables import Table
from crossspec_lab.heads.decoder import head_decoder
from crossspec_lab.heads.head import Head
from crossspec_lab.heads.head_files import fitting_heads
from crossspec_lab.world import questions
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context, Proposer, make_proposers
from crossspec_ros.engine.llama_cpp import llama_runner
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.protocols import Engine
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import LLAMA_KINDS
from crossspec_ros.paths import tiny_models
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

QUESTIONS = (QUESTION, "Is there anybody on the road?", "Describe the traffic light.")
SCHEMAS = (
    json.dumps(questions.SCHEMA),
    '{"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]}',
)
"""Schemas of a closed world, and of free text without a maximum length."""
_MAX_DECODERS = 9
"""Highest number of decoders that share an engine."""
_MIN_WINDOWS = 8
"""Lowest number of windows for a rate in bfloat16."""


class Case(NamedTuple):
    """A question about a window, and the target's own answer."""

    window: Window
    question: str
    wanted: tuple[int, ...]
    schema: str = ""


class Answers(NamedTuple):
    """Number of a decoder's answers, and the ones that differ from the target's own, with their cases."""

    total: int
    wrong: list[tuple[Case, tuple[int, ...]]]

    def counts(self) -> dict[str, int]:
        """Return the number of equal answers, and that of all."""
        return {"equal": self.total - len(self.wrong), "total": self.total}

    def differences(self, pair: ModelPair) -> dict[str, Any]:
        """Return also where each wrong answer first differs, and the target's own margin there."""
        places = [_first_difference(case.wanted, got) for case, got in self.wrong]
        margins = [_margin(pair, case, at) for (case, _), at in zip(self.wrong, places, strict=True)]
        return {
            "identical": self.total - len(self.wrong),
            "answers": self.total,
            "first_divergence": places,
            "margin": margins,
        }


class Adversary(Proposer):
    """Trees of random shape, right and wrong tokens, duplicates and ends of sequence, around the answer."""

    name = "adversary"

    def __init__(self, vocabulary: int, eos_id: int) -> None:
        self.answer: tuple[int, ...] = ()
        self._random, self._vocabulary, self._eos = random.Random(0), vocabulary, eos_id

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
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


def run(args: argparse.Namespace) -> int:
    """Compare on `args.windows` held-out windows, print tables, and write the figures if requested."""
    check_windows(args.windows)
    logging.set_verbosity_error()
    models = args.models or tiny_models()
    pair = measured_pair(args)
    rendered = track(held_out_windows(pair, args.windows), "rendering windows", args.windows)
    windows = [window for window, _ in rendered]
    heads = fitting_heads(models, args.target, pair.target, pair.draft)
    # Other projects' decoders are compared for the usual pair only.
    has_others = not args.target
    exact = _counts(with_generate(pair, windows, "float32", heads, has_others))
    in_json = _counts(with_generate(pair, windows, "float32, JSON", heads, schemas=SCHEMAS))
    by_llama = {
        kind: _counts(with_llama(pair, windows, heads, dtype))
        for dtype, kind in LLAMA_KINDS.items()
        if has_llama_model(pair) and dtype != "float32"
    }
    pair.target.module.to(torch.bfloat16)
    heads = fitting_heads(models, args.target, pair.target, pair.draft)
    fewer = windows[: max(_MIN_WINDOWS, len(windows) // 4)]
    answers = with_generate(pair, fewer, "bfloat16", heads, has_others)
    reduced = {name: one.differences(pair) for name, one in answers.items()}
    tables = [
        Table("float32: answers identical to transformers' generate(do_sample=False)", exact, "decoder"),
        Table("float32, JSON of a schema: identical to generate with the library's mask", in_json, "decoder"),
        Table(
            "bfloat16: identical answers, and where the others first differ: token, and by how many logits "
            "the target alone prefers its own there",
            {name: {key: _median(value) for key, value in row.items()} for name, row in reduced.items()},
            "decoder",
        ),
        *(
            Table(f"llama.cpp, {kind}: answers identical to its own, a token a pass", rows, "decoder")
            for kind, rows in by_llama.items()
        ),
    ]
    parts = {"JSON": in_json, "bfloat16": reduced, **({"llama.cpp": by_llama} if by_llama else {})}
    write_figures(args, exact | parts, tables)
    is_exact = all(
        row["equal"] == row["total"] for rows in (exact, in_json, *by_llama.values()) for row in rows.values()
    )
    return 0 if is_exact else 1


def _counts(answers: Mapping[str, Answers]) -> dict[str, Any]:
    return {name: one.counts() for name, one in answers.items()}


def _median(value: Any) -> Any:
    return (spread(value) if value else None) if isinstance(value, list) else value


def with_generate(
    pair: ModelPair,
    windows: list[Window],
    label: str,
    heads: Sequence[Head],
    has_others: bool = False,
    schemas: Sequence[str] = ("",),
) -> dict[str, Answers]:
    """Compare answers to `QUESTIONS`, or in each of the `schemas`, with transformers' greedy `generate`."""
    plain = {schema: TransformersGenerate(pair, "plain", schema) for schema in schemas}
    cases = [
        Case(window, question, plain[schema](window, question, Trace()).tokens, schema)
        for window in track(windows, f"asking in {label}")
        for schema in schemas
        for question in (QUESTIONS[:1] if schema else QUESTIONS)
    ]
    with ExitStack() as stack:
        decoders = _ours(pair, stack, heads) | (_others(pair, stack) if has_others else {})
        return _answers(decoders, cases, label)


def with_llama(
    pair: ModelPair, windows: list[Window], heads: Sequence[Head], dtype: str
) -> dict[str, Answers]:
    """Compare answers by llama.cpp in this dtype with its own greedy ones to prompts read at once."""
    label = f"llama.cpp, {dtype}"
    with ExitStack() as stack:
        engine = _llama_engine(pair, dtype)
        decoders = _decoders(pair, stack, heads, _adversary(pair), engine)
        plain = stack.enter_context(closing(_unlimited(pair, engine=engine)))
        cases = [
            Case(window, question, plain.caption(window, Options(question), Trace()).token_ids)
            for window in track(windows, f"asking in {label}")
            for question in QUESTIONS
        ]
        return _answers(decoders, cases, label)


def _answers(decoders: Mapping[str, Decoder[Case]], cases: list[Case], label: str) -> dict[str, Answers]:
    found = {name: Answers(len(cases), []) for name in decoders}
    for one in take_turns(decoders, track(cases, f"comparing in {label}")):
        case = cases[one.window]
        if one.tokens != case.wanted:
            found[one.decoder].wrong.append((case, one.tokens))
    return found


def _adversary(pair: ModelPair) -> Adversary:
    return Adversary(pair.target.tokenizer.get_vocab_size(), pair.target.spec.eos_ids[0])


def _unlimited(pair: ModelPair, *proposers: Proposer, engine: Engine | None = None) -> PrefillHiddenDecoder:
    return PrefillHiddenDecoder(pair, Policy(proposers, None), engine=engine)


def _streamed(decoder: PrefillHiddenDecoder, stack: ExitStack, adversary: Adversary) -> Decoder[Case]:
    stack.enter_context(closing(decoder))

    def answer(case: Case, trace: Trace) -> Written:
        adversary.answer = case.wanted
        options = Options(case.question, grammar=decoder.grammar(case.schema))
        stream(decoder, case.window, options)
        return Written(decoder.caption(case.window, options, Trace()).token_ids)

    return answer


def _decoders(
    pair: ModelPair,
    stack: ExitStack,
    heads: Sequence[Head],
    adversary: Adversary,
    engine: Engine | None = None,
) -> dict[str, Decoder[Case]]:
    """Return our decoders by name; an `engine` that they share is closed with the first of them."""
    named: dict[str, Sequence[Proposer]] = {
        "target alone, streamed": (),
        "caption memory": make_proposers(["memory"]),
        "event draft": make_proposers(["event_draft"]),
        "prompt lookup": (PromptLookup(pair.target),),
        "grammar": make_proposers(["grammar"]),
        "adversary": (adversary,),
    }
    if heads:
        named["draft heads"] = heads
    # The first to be entered is the last to be closed, and closes the engine.
    complete = _streamed(head_decoder(pair, heads, engine=engine), stack, adversary)
    found = {
        name: _streamed(_unlimited(pair, *proposers, engine=engine), stack, adversary)
        for name, proposers in named.items()
    }
    return found | {"all, measured policy": complete}


def _llama_engine(pair: ModelPair, dtype: str) -> Engine:
    engine = LocalEngine(pair.target, runner=llama_runner(pair.target, dtype, torch.get_num_threads()))
    # Each decoder keeps its last window and the one in work.
    engine.warm_up(2 * _MAX_DECODERS)
    return engine


def _ours(pair: ModelPair, stack: ExitStack, heads: Sequence[Head]) -> dict[str, Decoder[Case]]:
    adversary = _adversary(pair)
    one_shot = stack.enter_context(closing(_unlimited(pair, *make_proposers(["memory", "event_draft"]))))

    def asking(case: Case, trace: Trace) -> Written:
        options = Options(case.question, grammar=one_shot.grammar(case.schema))
        if case.question == QUESTIONS[0] and case.schema in ("", SCHEMAS[0]):
            return Written(one_shot.caption(case.window, options, Trace()).token_ids)
        return Written(one_shot.ask(options, Trace()).token_ids)

    found = {**_decoders(pair, stack, heads, adversary), "one-shot, further questions": asking}
    if pair.target.dtype == torch.float32 and has_llama_model(pair):
        in_llama = _decoders(pair, stack, heads, adversary, _llama_engine(pair, "float32"))
        found |= {f"llama.cpp, {name}": decoder for name, decoder in in_llama.items()}
    return found


def _others(pair: ModelPair, stack: ExitStack) -> dict[str, Decoder[Case]]:
    def other(make: Callable[[], Any]) -> Decoder[Case]:
        decoder = make()
        if hasattr(decoder, "close"):
            stack.enter_context(closing(decoder))
        return lambda case, trace: decoder(case.window, case.question, Trace())

    # `generate` is what all are compared with.
    names = [name for name in OTHERS if name != GENERATE]
    return {name: other(make) for name, make in makers(Models(pair), names).items()}


def _first_difference(wanted: tuple[int, ...], got: tuple[int, ...]) -> int:
    return next((i for i, (a, b) in enumerate(zip(wanted, got, strict=False)) if a != b), len(got))


@torch.inference_mode()
def _margin(pair: ModelPair, case: Case, at: int) -> float:
    """Return by how many logits the target alone prefers its own token at this place to the second best.

    A margin of the size of rounding errors is a tie. A large margin shows an error in the decoder.
    """
    inputs = generate_inputs(pair.target, case.window.frames, case.question)
    inputs = continued(inputs, case.wanted[:at])
    best = pair.target.module(**inputs, logits_to_keep=1).logits[0, -1].float().topk(2).values
    return float(best[0] - best[1])
