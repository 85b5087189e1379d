"""`crossspec bench fleet`: many robots and one target over Ray Serve and gRPC, against other ways to serve.

Robots are processes with recorded drives and recorded event drafts. The link is emulated in the robots: half
a round trip each way, and what is lost is sent again as TCP would.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.progress import Progress

from crossspec_lab.compare.fleet_robot import APART, ENCODERS, OURS, STEPWISE, UNSHARED, WAYS, Job, write
from crossspec_lab.compare.harness import spread, table, tell
from crossspec_lab.compare.held_out import WINDOWS_PER_DRIVE, held_out_windows
from crossspec_lab.compare.plots import bare
from crossspec_lab.trials.processes import Child
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.drafting.draft_model import DraftModel
from crossspec_ros.errors import InputError
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import tiny_models
from crossspec_ros.serving.options import ServeOptions
from crossspec_ros.serving.serve_command import free_port, served
from crossspec_ros.telemetry.trace import Trace

_APPLICATIONS = {OURS: "shared", UNSHARED: "unshared", STEPWISE: "shared", APART: "", ENCODERS: "encoders"}
TOGETHER = "ours, all windows end together"
_WAIT_S, _START_S = 240.0, 1.0
LINKS_MS = (1, 20, 80)
_LOSS = 0.02


def run(args: argparse.Namespace) -> int:
    """Measure and tell; raises InputError for numbers that are none."""
    robots = read_numbers(args.robots)
    most = max(robots)
    pair = load_pair(tiny_models())
    with tempfile.TemporaryDirectory(prefix="crossspec_fleet_") as name, Progress() as progress:
        folder = Path(name)
        wanted = record(pair, folder / "drives.npz", args.drives)
        links = [] if args.no_links else [(ms, way) for ms in LINKS_MS for way in (OURS, STEPWISE)]
        rounds = (args.repeats * len(WAYS) + 3) * len(robots) + len(links)
        task = progress.add_task("captioning", total=rounds)
        base = ServeOptions(robots=most, threads=args.threads, fleet_memory=False)
        options = {
            "shared": base,
            "unshared": replace(base, shared_passes=False),
            "encoders": replace(base, encoders=1),
        }
        port = free_port()
        with served(port, options):
            bench = Bench(folder, f"grpc://127.0.0.1:{port}", wanted)
            flat_out: dict[str, dict[int, list[dict[str, Any]]]] = {}
            for turn in range(args.repeats):
                for count in robots:
                    first = turn % len(WAYS)
                    for way in WAYS[first:] + WAYS[:first]:
                        rows = bench.run(way, count, args.windows, 0.0)
                        flat_out.setdefault(way, {}).setdefault(count, []).append(rows)
                        progress.advance(task)
            paced: dict[str, dict[int, dict[str, Any]]] = {}
            for count in robots:
                for name, way in ((OURS, OURS), (UNSHARED, UNSHARED), (TOGETHER, OURS)):
                    rows = bench.run(way, count, args.windows, 1.0, together=name == TOGETHER)
                    paced.setdefault(name, {})[count] = rows
                    progress.advance(task)
            over_link: dict[str, dict[int, dict[str, Any]]] = {}
            for ms, way in links:
                over_link.setdefault(way, {})[ms] = bench.run(
                    way, min(8, most), args.windows, 1.0, ms / 1e3, _LOSS if ms > 1 else 0.0
                )
                progress.advance(task)
    figures = {
        "robots": robots,
        "windows": args.windows,
        "repeats": args.repeats,
        "threads": args.threads,
        "windows_per_s": {
            way: {n: spread([row["windows_per_s"] for row in rows]) for n, rows in by.items()}
            for way, by in flat_out.items()
        },
        "ratio_to_unshared": {
            n: spread(
                [
                    a["windows_per_s"] / b["windows_per_s"]
                    for a, b in zip(flat_out[OURS][n], flat_out[UNSHARED][n], strict=True)
                ]
            )
            for n in robots
        },
        "flat_out": {way: {n: rows[-1] for n, rows in by.items()} for way, by in flat_out.items()},
        "real_time": paced,
        "links": over_link,
        "wrong_captions": bench.wrong,
        "captions": bench.captions,
    }
    print(text(figures))
    tell(args, figures, lambda: draw(figures))
    return 1 if bench.wrong else 0


class Bench:
    """Robots of a way at a time, and whether their captions are the target's own."""

    def __init__(self, folder: Path, url: str, wanted: Sequence[Sequence[int]]) -> None:
        self._folder, self._url, self._wanted = folder, url, [list(one) for one in wanted]
        self.wrong = self.captions = 0

    def run(
        self,
        way: str,
        count: int,
        windows: int,
        period_s: float,
        round_trip_s: float = 0.0,
        loss: float = 0.0,
        together: bool = False,
    ) -> dict[str, Any]:
        """`windows` of each of `count` robots, which end evenly spread over the period, or `together`."""
        jobs = [
            Job(
                way,
                f"robot{i}",
                self._url,
                _APPLICATIONS[way],
                str(self._folder / "drives.npz"),
                windows,
                i * WINDOWS_PER_DRIVE,
                period_s,
                0.0 if together else period_s * i / count,
                round_trip_s,
                loss,
            )
            for i in range(count)
        ]
        with _started(self._folder, jobs) as robots:
            rows = [_rows(robot) for robot in robots]
        began, ended = min(at for at, _, _ in rows), max(at for _, at, _ in rows)
        done = [row for _, _, robot in rows for row in robot if "tokens" in row]
        skipped = sum("skipped" in row for _, _, robot in rows for row in robot)
        self.captions += len(done)
        self.wrong += sum(row["tokens"] != self._wanted[row["window"]] for row in done)
        # The first quarter of each robot's windows is for its memory to begin with.
        each = [[row for row in robot if "tokens" in row] for _, _, robot in rows]
        kept = [row for robot in each for row in robot[len(robot) // 4 :]]
        result: dict[str, Any] = {
            "windows_per_s": len(done) / (ended - began),
            "captions": len(done),
            "skipped": skipped,
            "from_last_frame_ms": spread([row["last_ms"] for row in kept]),
            "passes": float(np.mean([row["passes"] for row in kept])),
        }
        if way != APART:
            result["bytes_up"] = float(np.median([row["bytes"][0] for row in kept]))
            result["bytes_down"] = float(np.median([row["bytes"][1] for row in kept]))
        if period_s:
            result["from_close_ms"] = spread([row["close_ms"] for row in kept])
        return result


def record(pair: ModelPair, file: Path, drives: int) -> list[tuple[int, ...]]:
    """Frames, stamps and event drafts of drives that training never saw; the target's own captions."""
    from crossspec_ros.captioning.assembly import autoregressive_decoder

    assert pair.draft is not None and pair.translation is not None
    drafts, arrays, wanted = DraftModel(pair.draft, pair.translation), {}, []
    decoder = autoregressive_decoder(pair)
    windows = [window for window, _ in held_out_windows(pair, drives * WINDOWS_PER_DRIVE)]
    try:
        for j, window in enumerate(windows):
            draft = drafts.draft(window.event_images, QUESTION, 64)
            drafts.finish(draft, Trace(), lambda: False)
            arrays[f"tokens_{j}"], arrays[f"probs_{j}"] = map(np.array, draft.proposal())
            wanted.append(decoder.caption(window, QUESTION, Trace()).token_ids)
    finally:
        decoder.close()
        drafts.close()
    frames = np.stack([window.frames for window in windows])
    stamps = np.array([window.frame_stamps_ns for window in windows])
    arrays |= {"frames": frames, "stamps": stamps, "question": np.array(QUESTION)}
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return wanted


@contextmanager
def _started(folder: Path, jobs: Sequence[Job]) -> Iterator[list[Child]]:
    """All robots, which begin at the same time once all are ready."""
    with ExitStack() as stack:
        robots: list[Child] = []
        for job in jobs:
            file = folder / f"{job.name}.json"
            write(job, file)
            robots.append(Child(["-m", "crossspec_lab.compare.fleet_robot", str(file)]))
            stack.callback(robots[-1].kill)
        for robot in robots:
            robot.wait(lambda robot=robot: robot.lines, "a robot did not start")  # type: ignore[misc]
        start_s = time.time() + _START_S
        for robot in robots:
            robot.tell(str(start_s))
        yield robots


def _rows(robot: Child) -> tuple[float, float, list[dict[str, Any]]]:
    """Times at which the robot began and ended, and its record of each window."""
    _, *rows = robot.heard(_WAIT_S)
    if robot.process.wait(_WAIT_S) or not rows or "began" not in rows[-1]:
        raise RuntimeError(f"a robot failed with {robot.process.returncode}")
    end = rows.pop()
    return end["began"], end["ended"], rows


def read_numbers(said: str) -> list[int]:
    """Numbers of robots, from text with commas between; raises InputError for other text."""
    try:
        numbers = [int(one) for one in said.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(1 <= one <= 64 for one in numbers):
        raise InputError(f"--robots is '{said}': give numbers from 1 to 64, comma between")
    return numbers


def text(figures: Mapping[str, Any]) -> str:
    """The figures as tables."""
    parts = [
        table(
            "windows per second, as many as can be; robots:",
            {way: dict(by) for way, by in figures["windows_per_s"].items()},
        ),
        table("ratio of ours to passes not shared; robots:", {"ratio": dict(figures["ratio_to_unshared"])}),
    ]
    for title, found in (
        ("in real time, a window a second; robots:", figures["real_time"]),
        (
            f"{min(8, max(figures['robots']))} robots in real time over a link; round trip, ms:",
            figures["links"],
        ),
    ):
        rows = {
            f"{way}, {what}": {n: row[key] for n, row in by.items()}
            for way, by in found.items()
            for what, key in (
                ("ms from the last frame", "from_last_frame_ms"),
                ("ms from the close", "from_close_ms"),
                ("skipped", "skipped"),
                ("bytes up", "bytes_up"),
            )
        }
        if rows:
            parts.append(table(title, rows))
    parts.append(
        f"{figures['captions']} captions, of which {figures['wrong_captions']} are not the target's own"
    )
    return "\n".join(parts)


def draw(figures: Mapping[str, Any]) -> Figure:
    """Windows a second by robots, and what a link costs."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for way, by in figures["windows_per_s"].items():
        left.plot(list(by), [row["median"] for row in by.values()], marker="o", label=way)
    left.set_xlabel("robots")
    left.set_ylabel("windows a second, as many as can be")
    left.set_xscale("log", base=2)
    left.set_ylim(bottom=0)
    left.legend(fontsize=8)
    for way, by in figures["links"].items():
        right.plot(list(by), [row["from_close_ms"]["median"] for row in by.values()], marker="o", label=way)
    right.set_xlabel("round trip of the link, ms")
    right.set_ylabel("ms from the close to the caption")
    if figures["links"]:
        right.legend(fontsize=8)
    bare(left, right)
    return figure
