"""`crossspec bench handoff`: captions from aligned event features, and from the frames, on unseen drives.

The event model sees all but the last event image, as it does before a window closes.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from rich.progress import track

from crossspec_lab.compare.harness import check_windows, spread, table, tell
from crossspec_lab.compare.held_out import held_out_windows
from crossspec_lab.handoff.network import FOLDER, Handoff, likeness, load_handoff
from crossspec_lab.handoff.stand_in import FeatureHandoff
from crossspec_lab.world.phrases import QUESTION, attributes, claimed
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import tiny_models
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

TRUE, ALIGNED, EVENTS = "true frames", "aligned features", "event draft"


def run(args: argparse.Namespace) -> int:
    """Measure, print tables, and write the figures to `args.json`."""
    check_windows(args.windows)
    models = args.models or tiny_models()
    pair = load_pair(models)
    handoff = load_handoff(args.handoff or models / FOLDER, pair.target, pair.draft)
    asked, right, cosines = 0, dict[str, int](), []
    with ExitStack() as stack:

        def decoder(mode: str = "") -> PrefillHiddenDecoder:
            stand_in = FeatureHandoff(handoff, pair.target, mode) if mode else None
            return stack.enter_context(
                closing(PrefillHiddenDecoder(pair, Policy((), None), handoff=stand_in))
            )

        decoders = {
            TRUE: decoder(),
            EVENTS: decoder(),
            ALIGNED: decoder("missing"),
            "predicted": decoder("predicted"),
            "probed": decoder("probed"),
        }
        for window, scene in track(held_out_windows(pair, args.windows), "captioning", args.windows):
            truth = attributes(scene)
            asked += len(truth)
            early = replace(window, event_images=window.event_images[:-1])
            blind = replace(early, frames=window.frames[:0], frame_stamps_ns=())
            for name, one in decoders.items():
                seen = blind if name in (EVENTS, ALIGNED) else early
                claims = claimed(one.caption(seen, QUESTION, Trace()).text)
                right[name] = right.get(name, 0) + sum(claims.get(k) == v for k, v in truth.items())
            cosines.append(_cosines(pair, handoff, early))
    figures: dict[str, Any] = {
        "windows": args.windows,
        "captions": {name: {"right": count / asked} for name, count in right.items()},
        "cosines": {
            name: spread(values)
            for name, values in zip(
                (ALIGNED, "predicted", "of the first frame"),
                np.array(cosines).T,
                strict=True,
            )
        },
    }
    print(table(f"{args.windows} held-out windows: share of attributes right", figures["captions"]))
    print(table("cosine to the true features", figures["cosines"]))
    tell(args, figures)
    return 0


@torch.inference_mode()
def _cosines(pair: ModelPair, handoff: Handoff, window: Window) -> tuple[float, float, float]:
    """Return the cosines of aligned features: mean, expected, and of the first frame."""
    assert pair.draft is not None
    events = pair.draft.encode(window.event_images)[None]
    true = torch.stack([pair.target.encode(frame[None])[0] for frame in window.frames])
    cosines = likeness(handoff(events)[0][: len(true)], true)
    return float(cosines.mean()), float(handoff.expected(events)), float(cosines[0])
