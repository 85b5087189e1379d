"""`crossspec caption`: caption every window of a recording as fast as the machine can."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from contextlib import closing
from typing import Any

from rich.console import Console
from rich.progress import Progress

from crossspec_ros.captioning.caption import RESTS_ON
from crossspec_ros.captioning.caption_bag import TopicMessage, window_topics, write_captions
from crossspec_ros.captioning.code_replay import Captioned, captions
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.load_decoder import load_decoder
from crossspec_ros.captioning.replay_setup import ReplaySetup
from crossspec_ros.captioning.wording import caption_line, warning
from crossspec_ros.errors import InputError, plain_text
from crossspec_ros.files import write_report
from crossspec_ros.recordings.bag import check_new
from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.telemetry.summary import Summary


def run(args: argparse.Namespace) -> None:
    """Print the caption of each window, and write them as JSON and as a bag if requested."""
    if args.with_inputs and not args.write_bag:
        raise InputError("--with-inputs adds to a bag: name the bag with --write-bag, or omit --with-inputs")
    if args.write_bag:
        check_new(args.write_bag)
    setup = ReplaySetup(args.path, args.config, vars(args))
    console = Console(highlight=False, soft_wrap=True)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    windows, counts, totals, models = [], Counter[str](), Summary(), dict[str, str]()
    topics: list[TopicMessage] = []

    def load(settings: CaptionerSettings) -> PrefillHiddenDecoder:
        decoder = load_decoder(settings)
        models.update(decoder.pair.model_ids)
        if text := warning(decoder.pair):
            print(f"crossspec: {text}", file=sys.stderr)
        return decoder

    with closing(setup), bar as progress:
        # The format includes the columns, unit and size that the reader found in a table.
        print(plain_text(f"crossspec: {setup.path} is {setup.recording.format}"), file=sys.stderr)
        task = progress.add_task("loading the models", total=None)
        if progress.disable:
            print("crossspec: loading the models may take a minute", file=sys.stderr)

        def tick(seconds: float) -> None:
            progress.update(task, description=f"captioning, {seconds:.1f} s")

        for captioned in captions(setup, load, tick, counts):
            window, caption, holds = captioned.window, captioned.caption, captioned.holds
            line = caption_line(window, setup.origin_ns, caption, captioned.faults, holds)
            lines = [line, *(answered.line(standing) for standing, answered in captioned.answers)]
            console.print("\n    ".join(lines), markup=False)
            windows.append(_row(captioned))
            if args.write_bag:
                topics += window_topics(captioned, setup.origin_ns, lines)
            totals.count(windows=1, tokens=len(caption.token_ids), target_passes=caption.target_passes)
            special = {"nothing_seen": caption.source == "none", "unchanged": holds is not None}
            totals.count(**{name: 1 for name, is_true in special.items() if is_true})
        if not windows:
            raise InputError(f"'{setup.path}' has no window to caption: give one with events or images")
        totals.count(**counts)
        console.print(totals.totals(), markup=False)
        if args.json:
            document: dict[str, Any] = {"recording": str(setup.path), "models": models}
            document |= {"settings": setup.shaping, "windows": windows}
            write_report(args.json, json.dumps(document | {"counts": counts}, indent=1) + "\n")
        if args.write_bag:
            progress.update(task, description="writing the bag")
            write_captions(args.write_bag, topics, setup.recording if args.with_inputs else None)
            print(plain_text(f"crossspec: {args.write_bag} has {len(windows)} windows"), file=sys.stderr)


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
        **({"holds_ns": captioned.holds.window.end_ns} if captioned.holds else {}),
        **({"answers": answers} if answers else {}),
        **{f"drafted/{proposer}": count for proposer, count in caption.drafted.items()},
        **{f"accepted/{proposer}": caption.accepted.get(proposer, 0) for proposer in caption.drafted},
    }
