"""`crossspec bench captions`: what the models get right on unseen drives, and what the draft foresees.

Each window goes the way it goes on a robot: rendered events and frames through the synchronizer, then to
the target, and all but its last event image to the draft.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from crossspec_ros.captioning.assembly import autoregressive_decoder
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.event_draft import EventDraft
from crossspec_ros.engine.accept import agreement
from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.models.loading import ModelPair, load_pair
from crossspec_ros.paths import share_dir
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.training.dataset import HELD_OUT
from crossspec_ros.training.world.camera import FRAME_PERIOD_S, events, frame
from crossspec_ros.training.world.grammar import COLOR_ATTRIBUTES, QUESTION, attributes, claimed
from crossspec_ros.training.world.grammar import caption as true_caption
from crossspec_ros.training.world.scene import Scene, drive
from crossspec_ros.windows.assembler import WindowAssembler
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.resize import resize_shortest
from crossspec_ros.windows.slices import TimeSlices
from crossspec_ros.windows.synchronizer import EventImageReady, FrameReady, Synchronizer
from crossspec_ros.windows.window import Window

_FIRST_SEED = HELD_OUT + 500_000
_WINDOWS_PER_DRIVE = 4


@dataclass
class Tally:
    """Counts over all windows."""

    right: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    asked: Counter[str] = field(default_factory=Counter)
    values: dict[str, Counter[tuple[str, str]]] = field(default_factory=lambda: defaultdict(Counter))
    exact: Counter[str] = field(default_factory=Counter)
    windows: int = 0
    leading: list[int] = field(default_factory=list)
    guesses: list[tuple[int, int]] = field(default_factory=list)


def run(args: argparse.Namespace) -> int:
    """Measure, print a table, and write the figures to `args.json` if asked."""
    if args.windows < 1:
        raise InputError(f"--windows {args.windows} measures nothing: ask for at least 1")
    pair = load_pair(args.models or share_dir() / "models" / "tiny")
    decoder = autoregressive_decoder(pair)
    tally = Tally()
    for window, scene in track(
        held_out_windows(pair, args.windows), description="captioning", total=args.windows
    ):
        _measure(pair, decoder, window, scene, tally)
    decoder.close()
    figures = _figures(tally)
    print(_table(figures))
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=1) + "\n")
    return 0


def held_out_windows(pair: ModelPair, count: int) -> Iterator[tuple[Window, Scene]]:
    """Windows of drives that training never saw, at the sizes the synchronizer would send them."""
    for i in range(count):
        seed, second = _FIRST_SEED + i // _WINDOWS_PER_DRIVE, i % _WINDOWS_PER_DRIVE
        scenes = drive(seed, _WINDOWS_PER_DRIVE + 1)
        yield window_of(pair, scenes, seed, second), scenes[second]


def window_of(pair: ModelPair, scenes: list[Scene], seed: int, second: int) -> Window:
    """One second of a drive as the captioner would get it from the synchronizer."""
    grid = WindowGrid(slots=pair.frames)
    synchronizer = Synchronizer(grid, pair.event_images, slicing=TimeSlices)
    assembler = WindowAssembler(grid)
    batch = EventBatch.concat(list(events(scenes, seed, second, second + 1)))
    in_ros_time = EventBatch(batch.t * 1000, batch.x, batch.y, batch.p, batch.width, batch.height)
    updates = list(synchronizer.add_events(in_ros_time))
    for tick in range(round(1 / FRAME_PERIOD_S)):
        t = second + tick * FRAME_PERIOD_S
        updates += synchronizer.add_frame(round(t * SECOND), partial(frame, scenes, seed, t))
    for update in [*updates, *synchronizer.restart()]:
        if isinstance(update, FrameReady):
            assembler.add_frame(update.stamp_ns, resize_shortest(update.image, pair.frame_size))
        elif isinstance(update, EventImageReady):
            assembler.add_event_image(update.stamp_ns, resize_shortest(update.image, pair.event_image_size))
        else:
            return next(iter(assembler.close(update.end_ns, update.frames, update.event_images)))
    raise AssertionError("a window with data closes")


def _measure(
    pair: ModelPair, decoder: PrefillHiddenDecoder, window: Window, scene: Scene, tally: Tally
) -> None:
    target = decoder.caption(window, QUESTION, Trace())
    draft = EventDraft(pair, window.event_images[:-1], QUESTION, 64)
    draft.run(Trace())
    wanted = attributes(scene)
    for name, text in (("target", target.text), ("draft", draft.text)):
        said = claimed(text)
        tally.right[name].update(key for key, value in wanted.items() if said.get(key) == value)
        tally.exact[name] += text == true_caption(scene)
    for key, value in wanted.items():
        tally.values[key][_visible_context(key, scene), value] += 1
    tally.asked.update(wanted.keys())
    tally.windows += 1
    tally.leading.append(agreement(draft.tokens, target.token_ids))
    tally.guesses += zip(target.token_ids, draft.guesses(target.token_ids), strict=True)


def _visible_context(attribute: str, scene: Scene) -> str:
    """What events show that narrows down an attribute which they do not show: tunnels are lit by lamps, and
    nobody drives fast towards a red light."""
    return {"light": str(scene.tunnel), "signal color": scene.ego}.get(attribute, "")


def _chance(values: Counter[tuple[str, str]]) -> float:
    """Share right of the best guess that knows the context alone."""
    best: dict[str, int] = {}
    for (context, _), count in values.items():
        best[context] = max(count, best.get(context, 0))
    return sum(best.values()) / values.total()


def _figures(tally: Tally) -> dict[str, object]:
    # The words that every caption has are the template; the others say something about the scene.
    n, tokens = tally.windows, tally.guesses
    frequency = Counter(token for token, _ in tokens)
    telling = [(token, guess) for token, guess in tokens if frequency[token] < n]
    per_attribute = {
        key: {
            "target": tally.right["target"][key] / asked,
            "draft": tally.right["draft"][key] / asked,
            "chance": _chance(tally.values[key]),
            "needs_color": key in COLOR_ATTRIBUTES,
        }
        for key, asked in tally.asked.items()
    }
    total = sum(tally.asked.values())
    return {
        "windows": n,
        "attributes": per_attribute,
        "target_attributes_right": sum(tally.right["target"].values()) / total,
        "target_exact": tally.exact["target"] / n,
        "draft_attributes_right": sum(tally.right["draft"].values()) / total,
        "draft_leading_tokens_accepted": float(np.mean(tally.leading)),
        "draft_token_acceptance": float(np.mean([a == b for a, b in tokens])),
        "draft_token_acceptance_on_attribute_words": float(np.mean([a == b for a, b in telling])),
        "tokens": len(tokens) / n,
    }


def _table(figures: dict[str, Any]) -> str:
    lines = [
        f"{figures['windows']} held-out windows",
        "",
        f"{'attribute':<16} target  draft  chance (best guess unseen)",
    ]
    for key, row in sorted(figures["attributes"].items(), key=lambda item: (item[1]["needs_color"], item[0])):
        note = "  needs colour" if row["needs_color"] else ""
        lines.append(f"{key:<16} {row['target']:6.1%} {row['draft']:6.1%}  {row['chance']:6.1%}{note}")
    lines += [
        f"{'all attributes':<16} {figures['target_attributes_right']:6.1%} "
        f"{figures['draft_attributes_right']:6.1%}",
        "",
    ]
    for key, value in figures.items():
        if isinstance(value, float) and not key.endswith("attributes_right"):
            lines.append(f"{key.replace('_', ' '):<46} {value:.3f}")
    return "\n".join(lines)
