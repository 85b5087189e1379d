"""`crossspec bench captions`: accuracy of both models on unseen drives, and acceptance of the draft.

Each window is processed as on a robot: rendered events and frames pass the synchronizer, then go to
the target, and all but its last event image to the draft.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from math import log
from typing import Any

import numpy as np
import torch
from rich.progress import track

from crossspec_lab.baselines.generate_inputs import continued, generate_inputs
from crossspec_lab.baselines.speculative import shares_words
from crossspec_lab.bench.input_windows import held_out_windows
from crossspec_lab.bench.report import write_figures
from crossspec_lab.bench.setting import check_windows, measured_pair
from crossspec_lab.bench.tables import Table
from crossspec_lab.bench.trace import seen_before
from crossspec_lab.train.pairs import forced_states
from crossspec_lab.world import english, phrases
from crossspec_lab.world.phrases import COLOR_ATTRIBUTES, QUESTION, attributes
from crossspec_lab.world.questions import ANSWERS, answer
from crossspec_lab.world.scene import Scene
from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.draft_model import DraftModel
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.engine.accept import agreement
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


@dataclass
class Tally:
    """Counts over all windows."""

    right: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    values: dict[str, Counter[tuple[str, str]]] = field(default_factory=lambda: defaultdict(Counter))
    exact: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    captions: list[tuple[int, ...]] = field(default_factory=list)
    bits: list[float] = field(default_factory=list)
    leading: list[int] = field(default_factory=list)
    guesses: list[tuple[int, int]] = field(default_factory=list)


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, and write the figures to `args.json` if requested."""
    check_windows(args.windows)
    pair = measured_pair(args)
    assert pair.draft is not None and pair.translation is not None
    tally, drafts = Tally(), DraftModel(pair.draft, pair.translation)
    # A draft with another vocabulary cannot continue the target's text.
    forces = shares_words(pair)
    with closing(PrefillHiddenDecoder(pair, Policy((), None))) as decoder, closing(drafts):
        for window, scene in track(held_out_windows(pair, args.windows), "captioning", args.windows):
            _measure(decoder, drafts, window, scene, tally, forces)
            tally.bits += _bits(pair, window, tally.captions[-1])
    figures = _figures(tally)
    answers = {question: {"right": share} for question, share in figures["answers_right"].items()}
    totals = {
        name.replace("_", " "): {"": value} for name, value in figures.items() if isinstance(value, float)
    }
    tables = [
        Table(f"{args.windows} held-out windows: share of right attributes", figures["attributes"]),
        Table("share of the target's answers to standing questions that are right", answers),
        Table("all windows", totals),
    ]
    write_figures(args, figures, tables)
    return 0


def _measure(
    decoder: PrefillHiddenDecoder,
    drafts: DraftModel,
    window: Window,
    scene: Scene,
    tally: Tally,
    forces: bool,
) -> None:
    target = decoder.caption(window, Options(QUESTION), Trace())
    tally.captions.append(target.token_ids)
    for question in ANSWERS:
        text = decoder.ask(Options(question), Trace()).text
        tally.answers[question] += text.strip() == answer(question, scene)
    draft = drafts.draft(window.event_images[:-1], QUESTION, 64)
    drafts.submit(draft.run, Trace()).result()
    wanted = attributes(scene)
    for name, text in (("target", target.text), ("draft", draft.text)):
        tally.right[name].update(right_attributes(text, wanted))
        tally.exact[name] += text in (phrases.caption(scene), english.caption(scene))
    for key, value in wanted.items():
        tally.values[key][_visible_context(key, scene), value] += 1
    tally.leading.append(agreement(draft.tokens, target.token_ids))
    if forces:
        forced = forced_states(drafts.model, draft, target.token_ids)
        guesses = drafts.model.logits(forced).argmax(-1).tolist()
        tally.guesses += zip(target.token_ids, guesses, strict=True)


def right_attributes(text: str, wanted: Mapping[str, str]) -> list[str]:
    """Return the names of the attributes whose wanted values the caption claims."""
    claims = phrases.claimed(text)
    return [name for name, value in wanted.items() if claims.get(name) == value]


@torch.inference_mode()
def _bits(pair: ModelPair, window: Window, caption: tuple[int, ...]) -> list[float]:
    """Return the entropy of the target's own distribution at each token of its caption, in bits."""
    inputs = continued(generate_inputs(pair.target, window.frames, QUESTION), caption[:-1])
    logits = pair.target.module(**inputs, logits_to_keep=len(caption)).logits[0]
    entropy = torch.distributions.Categorical(logits=logits.float()).entropy()
    return (entropy / log(2)).tolist()


def _visible_context(attribute: str, scene: Scene) -> str:
    """Return the visible context that makes values of a hidden attribute likelier.

    Lamps light tunnels, and the car does not drive fast towards a red light.
    """
    return {"light": str(scene.tunnel), "signal color": scene.ego}.get(attribute, "")


def _chance(values: Counter[tuple[str, str]]) -> float:
    """Return the share of right guesses from the context alone."""
    best: dict[str, int] = {}
    for (context, _), count in values.items():
        best[context] = max(count, best.get(context, 0))
    return sum(best.values()) / values.total()


def _figures(tally: Tally) -> dict[str, Any]:
    # Words of every caption are the template; the others describe the scene.
    n, tokens = len(tally.leading), tally.guesses
    frequency = Counter(token for token, _ in tokens)
    attribute_words = [(token, guess) for token, guess in tokens if frequency[token] < n]
    accepted = {
        "draft_token_acceptance": tokens,
        "draft_token_acceptance_on_attribute_words": attribute_words,
    }
    counts = {key: values.total() for key, values in tally.values.items()}
    return {
        "windows": n,
        "attributes": {
            key: {name: tally.right[name][key] / counts[key] for name in ("target", "draft")}
            | {"chance": _chance(values), "needs_color": key in COLOR_ATTRIBUTES}
            for key, values in tally.values.items()
        },
        "target_attributes_right": sum(tally.right["target"].values()) / sum(counts.values()),
        "target_exact": tally.exact["target"] / n,
        "draft_attributes_right": sum(tally.right["draft"].values()) / sum(counts.values()),
        "draft_leading_tokens_accepted": float(np.mean(tally.leading)),
        **{name: float(np.mean([a == b for a, b in pairs])) for name, pairs in accepted.items() if pairs},
        "tokens": float(np.mean([len(tokens) for tokens in tally.captions])),
        "bits_a_token": float(np.mean(tally.bits)),
        "captions_seen_before": seen_before(tally.captions),
        "answers_right": {question: tally.answers[question] / n for question in ANSWERS},
    }
