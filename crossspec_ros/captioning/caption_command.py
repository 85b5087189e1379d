"""`crossspec caption`: every window of a recording, as fast as the machine captions them."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from rich.console import Console
from rich.progress import Progress

from crossspec_ros.captioning.assembly import load_decoder
from crossspec_ros.captioning.caption import RESTS_ON
from crossspec_ros.captioning.code_replay import Captioned, captions
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.setup import ReplaySetup
from crossspec_ros.captioning.wording import caption_line, warning
from crossspec_ros.errors import InputError
from crossspec_ros.files import write_report
from crossspec_ros.plain_text import plain_text
from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.telemetry.summary import Summary


def run(args: argparse.Namespace) -> None:
    """Print the caption of each window, and write them as JSON if requested."""
    setup = ReplaySetup.asked(args)
    console = Console(highlight=False, soft_wrap=True)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    with closing(setup), bar as progress:
        # Columns, unit and size of a text or an array were told by its values, which may mislead.
        print(plain_text(f"crossspec: {setup.bag} is {setup.recording.format}"), file=sys.stderr)
        windows, counts, totals, models = [], Counter[str](), Summary(), dict[str, str]()

        def load(settings: CaptionerSettings) -> PrefillHiddenDecoder:
            decoder = load_decoder(settings)
            models.update(decoder.pair.known_as)
            if told := warning(decoder.pair):
                print(f"crossspec: {told}", file=sys.stderr)
            return decoder

        for captioned in _captions(setup, load, progress, counts):
            caption = captioned.caption
            line = caption_line(
                captioned.window, setup.origin_ns, caption, captioned.faults, captioned.holds_ns
            )
            told = [f"    {answered.line(standing)}" for standing, answered in captioned.answers]
            console.print("\n".join([line, *told]), markup=False)
            windows.append(_row(captioned))
            totals.count(windows=1, tokens=len(caption.token_ids), target_passes=caption.target_passes)
            if caption.source == "none":
                totals.count(nothing_seen=1)
            if captioned.holds_ns is not None:
                totals.count(unchanged=1)
    if not windows:
        raise InputError(f"'{setup.bag}' has no window to caption: give a recording with events or images")
    totals.count(**counts)
    console.print(totals.totals(), markup=False)
    if args.json:
        document: dict[str, Any] = {"recording": str(setup.bag), "models": models}
        document |= {"settings": setup.settings, "windows": windows}
        write_report(args.json, json.dumps(document | {"counts": counts}, indent=1) + "\n")


def _captions(
    setup: ReplaySetup,
    load: Callable[[CaptionerSettings], PrefillHiddenDecoder],
    progress: Progress,
    counts: Counter[str],
) -> Iterator[Captioned]:
    """Yield the captions and show the progress."""
    task = progress.add_task("loading the models", total=None)
    if progress.disable:
        print(f"crossspec: captioning {setup.bag}; loading the models takes a few seconds", file=sys.stderr)

    def tick(seconds: float) -> None:
        progress.update(task, description=f"captioning, {seconds:.1f} s")

    yield from captions(setup, load, tick, counts)
    progress.remove_task(task)


def _row(captioned: Captioned) -> dict[str, Any]:
    window, caption = captioned.window, captioned.caption
    answers = {
        standing.question: {
            "answer": answered.caption.text,
            "probabilities": dict(zip(standing.choices, answered.probabilities, strict=True)),
        }
        for standing, answered in captioned.answers
    }
    return {
        "start_ns": window.start_ns,
        "end_ns": window.end_ns,
        "caption": caption.text,
        "degraded": list(captioned.faults),
        "covered_ms": window.covered_ms,
        "caption_source": caption.source,
        "rests_on": RESTS_ON[caption.source],
        "cut_by_deadline": caption.late,
        "tokens": len(caption.token_ids),
        "target_passes": caption.target_passes,
        "mean_acceptance_length": caption.mean_acceptance_length,
        **({} if captioned.holds_ns is None else {"holds_ns": captioned.holds_ns}),
        **({"answers": answers} if answers else {}),
        **{f"drafted/{proposer}": count for proposer, count in caption.drafted.items()},
        **{f"accepted/{proposer}": caption.accepted.get(proposer, 0) for proposer in caption.drafted},
    }
