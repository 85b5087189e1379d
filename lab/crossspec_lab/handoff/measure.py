"""`crossspec bench handoff`: how good aligned event features are, and who can tell, on unseen drives.

The event model sees all but the last event image, as it does before a window closes.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from rich.progress import track

from crossspec_lab.compare.harness import check_windows, spread, table, tell
from crossspec_lab.compare.held_out import held_out_windows
from crossspec_lab.handoff.network import FOLDER, THRESHOLDS, Handoff, likeness, load_handoff
from crossspec_lab.handoff.stand_in import FeatureHandoff
from crossspec_lab.world.phrases import QUESTION, attributes, claimed
from crossspec_lab.world.scene import Scene
from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.drafting.proposers.event_draft import EventDraftProposer
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import tiny_models
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

_BY_SCENE = "by scene"


class Told(EventDraftProposer):
    """Proposes a text as the event draft's is proposed: speculative prefill, for the answer that was made
    from aligned features is a draft like any other once the frames are there."""

    name = "told"
    needs = frozenset()

    def __init__(self) -> None:
        self.tokens: tuple[int, ...] = ()

    def propose(self, context: Context, budget: int, worth: float) -> DraftTree:
        told = replace(context, draft_tokens=self.tokens, draft_probs=(1.0,) * len(self.tokens))
        return super().propose(told, budget, worth)


@dataclass(frozen=True)
class Seen:
    """Figures of one window: cosines of the aligned features to the true ones, the threshold of its
    scene, how many of its `asked` attributes each way of captioning got right, and in how many `passes` the
    target wrote its own `tokens` with each text as a draft."""

    cosine: float
    mean_frame: float
    predicted: float
    probed: float
    threshold: float
    asked: int
    right: dict[str, int]
    tokens: int
    passes: dict[str, int]
    align_ms: float
    encode_ms: float


def run(args: argparse.Namespace) -> int:
    """Measure, print tables, and write the figures to `args.json` if asked."""
    check_windows(args.windows)
    models = args.models or tiny_models()
    pair = load_pair(models)
    handoff = load_handoff(args.handoff or models / FOLDER, pair.target, pair.draft)
    told = Told()
    with ExitStack() as stack:
        blind, first, alone = (
            stack.enter_context(closing(PrefillHiddenDecoder(pair, Policy(proposers, None), handoff=way)))
            for proposers, way in (
                ((), FeatureHandoff(handoff, "missing")),
                ((), FeatureHandoff(handoff, "probed")),
                ((told,), None),
            )
        )
        shown = track(held_out_windows(pair, args.windows), "captioning", args.windows)
        seen = [_seen(pair, handoff, (blind, first, alone), told, *each) for each in shown]
    figures = _figures(seen)
    print(table(f"{len(seen)} held-out windows: share of attributes right", figures["captions"]))
    print(table("cosine to the true features", figures["cosines"]))
    print(table("who tells whether the cosine is high enough", figures["acceptance"]))
    print(table("put to the target as a draft", figures["as_draft"]))
    tell(args, figures)
    return 0


def _seen(
    pair: ModelPair,
    handoff: Handoff,
    decoders: tuple[PrefillHiddenDecoder, PrefillHiddenDecoder, PrefillHiddenDecoder],
    told: Told,
    window: Window,
    scene: Scene,
) -> Seen:
    assert pair.draft is not None
    blind, first, alone = decoders
    early = replace(window, event_images=window.event_images[:-1])
    nothing = replace(early, frames=window.frames[:0], frame_stamps_ns=())
    with torch.inference_mode():
        events = pair.draft.encode(early.event_images)[None]
        begun = time.perf_counter()
        aligned, predicted = handoff(events)[0], float(handoff.predicted(events))
        aligned_at = time.perf_counter()
        true = torch.stack([pair.target.encode(frame[None])[0] for frame in window.frames])
        encoded_at = time.perf_counter()
        cosines = likeness(aligned[: len(true)], true)
        middle = float(likeness(handoff.middle.expand_as(true), true).mean())
        threshold = float(handoff.threshold(events))
    said = {
        "event draft": _caption(alone, nothing),
        "aligned features": _caption(blind, nothing),
        "probed": _caption(first, early),
    }
    foretold = _of_target(pair, said["event draft"]), said["aligned features"].token_ids
    own: tuple[int, ...] = ()
    passes: dict[str, int] = {}
    for name, told.tokens in zip(
        ("nothing", "event draft", "aligned features"), ((), *foretold), strict=True
    ):
        said["true frames"] = _caption(alone, window)
        passes[name] = said["true frames"].target_passes
        own = own or said["true frames"].token_ids
        assert said["true frames"].token_ids == own, "a draft changed the target's caption"
    said["predicted"] = said["aligned features" if predicted >= threshold else "true frames"]
    asked = attributes(scene)
    return Seen(
        float(cosines.mean()),
        middle,
        predicted,
        float(cosines[0]),
        threshold,
        len(asked),
        {name: _right(caption.text, asked) for name, caption in said.items()},
        len(own),
        passes,
        1e3 * (aligned_at - begun),
        1e3 * (encoded_at - aligned_at),
    )


def _caption(decoder: PrefillHiddenDecoder, window: Window) -> Caption:
    return decoder.caption(window, QUESTION, Trace())


def _of_target(pair: ModelPair, caption: Caption) -> tuple[int, ...]:
    """The tokens of an event draft in the target's."""
    assert pair.translation is not None
    return pair.translation(list(caption.token_ids), [1.0] * len(caption.token_ids))[0]


def _right(text: str, asked: dict[str, str]) -> int:
    said = claimed(text)
    return sum(said.get(name) == value for name, value in asked.items())


def _figures(seen: list[Seen]) -> dict[str, Any]:
    true, predicted, probed, middle = (
        np.array([getattr(one, name) for one in seen])
        for name in ("cosine", "predicted", "probed", "mean_frame")
    )
    by_scene = np.array([one.threshold for one in seen])

    def right(way: str, where: np.ndarray) -> float | None:
        kept = [one for one, is_kept in zip(seen, where, strict=True) if is_kept]
        return sum(one.right[way] for one in kept) / sum(one.asked for one in kept) if kept else None

    everywhere = np.ones(len(seen), bool)
    thresholds = {f"{value:.2f}": np.full(len(seen), value) for value in THRESHOLDS} | {_BY_SCENE: by_scene}
    acceptance = {}
    for name, least in thresholds.items():
        wanted = true >= least
        acceptance[name] = {
            "true cosine accepts": float(wanted.mean()),
            "right where accepted": right("aligned features", wanted),
            "right where refused": right("aligned features", ~wanted),
        }
        for way, guess in (("predictor", predicted), ("probe", probed)):
            acceptance[name] |= {
                f"{way} accepts": float((guess >= least).mean()),
                f"{way} agrees": float(((guess >= least) == wanted).mean()),
                f"{way} AUC": auc(guess, wanted),
            }
    return {
        "windows": len(seen),
        "captions": {way: {"right": right(way, everywhere)} for way in seen[0].right},
        "cosines": {
            "aligned features": spread(true),
            "the mean frame of training": spread(middle),
            "predicted": spread(predicted),
            "of the first frame": spread(probed),
        },
        "cosine_against_right": _correlation(
            true, np.array([o.right["aligned features"] / o.asked for o in seen])
        ),
        "predictor_error": float(np.abs(predicted - true).mean()),
        "probe_error": float(np.abs(probed - true).mean()),
        "acceptance": acceptance,
        "as_draft": {
            name: {"tokens a pass": sum(one.tokens for one in seen) / sum(one.passes[name] for one in seen)}
            for name in seen[0].passes
        },
        "align_ms": spread([one.align_ms for one in seen]),
        "encode_ms": spread([one.encode_ms for one in seen]),
    }


def auc(guess: np.ndarray, wanted: np.ndarray) -> float | None:
    """Share of pairs in which a guess is higher where it is wanted than where it is not, ties as half; None
    where there is only one kind."""
    if wanted.all() or not wanted.any():
        return None
    above = guess[wanted][:, None] - guess[~wanted]
    return float((above > 0).mean() + (above == 0).mean() / 2)


def _correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    return float(np.corrcoef(a, b)[0, 1]) if a.std() and b.std() else None
