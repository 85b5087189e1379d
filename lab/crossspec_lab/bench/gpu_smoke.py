"""Smoke test of a CUDA device with the trained tiny models: every caption must be the target's own.

`python -m crossspec_lab.bench.gpu_smoke DEVICE OUT.json [WINDOWS]` takes every path that only a GPU takes:
graphs, streams, quantised layers, a draft on another device, passes that several robots share. Its exit code
is 1 where anything is wrong. On `cpu` it rehearses without graphs.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers.utils import logging

from crossspec_lab.baselines.generate import TransformersGenerate
from crossspec_lab.baselines.one_shot import Alone, GuessedAnswer, Whole
from crossspec_lab.baselines.prefill_hiding import PublishedPrefillHiding
from crossspec_lab.bench.harness import take_turns, waits
from crossspec_lab.bench.held_out import held_out_windows, timed
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.captioning.load_decoder import free_memory, speculative_decoder
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import available
from crossspec_ros.paths import share_dir
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

MODELS = share_dir() / "models"
ROBOTS = 4


class Job(NamedTuple):
    """Which models, in which numbers, and where."""

    dtype: str
    target: str = ""
    draft_device: str = ""

    @property
    def name(self) -> str:
        target = Path(self.target).name or "tiny"
        return f"{self.dtype} {target}" + (f", draft on {self.draft_device}" if self.draft_device else "")


class Smoke:
    """Checks of one device; `found` has the figures of each, `wrong` the names of those that failed."""

    def __init__(self, device: str, out: Path, windows: int) -> None:
        self._device, self._out, self._count = device, out, windows
        self.found: dict[str, Any] = {"torch": torch.__version__, "device": device}
        self.wrong: list[str] = []

    def run(self, job: Job) -> None:
        """Check a pair, and in float32 robots that share its target; what fails is noted."""
        try:
            pair, windows, wanted = self._check(job)
            if job.dtype == "float32" and not job.draft_device:
                self._fleet(f"four robots, {job.name}", pair, windows, wanted)
            del pair
            free_memory()
        except Exception as error:  # the next job may tell more
            traceback.print_exc()
            self.wrong.append(f"{job.name}: {error!r:.300}")
        self._out.write_text(json.dumps(self.found | {"wrong": self.wrong}, indent=1) + "\n")

    def _check(self, job: Job) -> tuple[ModelPair, list[Window], list[tuple[int, ...]]]:
        """Caption by several decoders; the captions of the target alone are the measure of all others."""
        pair = load_pair(
            MODELS / "tiny", 1, available(job.dtype, self._device, job.draft_device), target=job.target
        )
        windows = [window for window, _ in held_out_windows(pair, self._count)]
        with closing(Alone(load_pair(MODELS / "tiny", 1, target=job.target))) as host:
            by_host = [host(window, QUESTION, Trace()).tokens for window in windows]
        with ExitStack() as stack:
            ours = speculative_decoder(pair)
            decoders = {
                "ours": timed(ours, stack),
                "alone": timed(Whole(ours.alone()), stack),
                "hiding": timed(PublishedPrefillHiding(pair), stack),
                "generate": timed(TransformersGenerate(pair, "plain"), stack),
            }
            captured = graphs(ours.engine.runner), graphs(ours._drafts.runner)  # type: ignore[union-attr]
            take_turns(decoders, windows[:1])
            runs = take_turns(decoders, windows)
            before_mb = self._gpu_mb()
            take_turns({"ours": decoders["ours"]}, windows[:1] * 2)
            more_mb = self._gpu_mb() - before_mb
        said = {name: [run.written.tokens for run in mine] for name, mine in runs.items()}
        equal = {name: _equal(tokens, said["alone"]) for name, tokens in said.items()}
        self._keep(
            job.name,
            {
                "graphs of target, draft": captured,
                "equal to the target alone": equal,
                "equal to the CPU in float32": _equal(by_host, said["alone"]),
                "ms": {name: round(float(waits(mine).mean()), 1) for name, mine in runs.items()},
                "MB more after 2 captions": round(more_mb, 2),
            },
        )
        if job.dtype == "float32" and set(equal.values()) != {self._count}:
            self.wrong.append(job.name)
        if self._device != "cpu" and 0 in captured and not job.draft_device:
            self.wrong.append(f"{job.name}: no graphs")
        return pair, windows, said["alone"]

    def _fleet(
        self, name: str, pair: ModelPair, windows: list[Window], wanted: Sequence[tuple[int, ...]]
    ) -> None:
        """Let robots share a target's passes, of unlike lengths."""
        shown = [windows[robot % len(windows)] for robot in range(ROBOTS)]
        with closing(LocalEngine(pair.target, robots=ROBOTS)) as engine:
            engine.warm_up(1)
            # Passes are shared only where that was measured.
            engine.measure()

            def ask(robot: int, window: Window) -> GuessedAnswer:
                tree = DraftTree.chain([0] * (2 * robot), [1.0] * (2 * robot), "")
                answer = GuessedAnswer(QUESTION, Trace(), lambda tokens: tree)
                handle = engine.open(0, Trace(), f"robot{robot}")
                engine.ask(handle, answer, (list(window.frames), list(window.frame_stamps_ns)))
                return answer

            answers = [ask(robot, window) for robot, window in enumerate(shown)]
            for answer in answers:
                answer.future.result()
            equal = sum(answer.tokens == wanted[robot % len(windows)] for robot, answer in enumerate(answers))
            rows = max(row for answer in answers for row in answer.rows)
            self._keep(name, {"graphs": graphs(engine.runner), "equal": equal, "rows of a pass": rows})
        if equal != ROBOTS:
            self.wrong.append(name)

    def _keep(self, name: str, row: dict[str, Any]) -> None:
        self.found[name] = row
        print(name, json.dumps(row), flush=True)

    def _gpu_mb(self) -> float:
        return torch.cuda.memory_allocated() / 1e6 if self._device != "cpu" else 0.0


def graphs(runner: Any) -> int:
    """Return the number of the runner's passes that were captured as CUDA graphs."""
    return sum(step.graph is not None for step in runner.static)


def _equal(some: Sequence[tuple[int, ...]], others: Sequence[tuple[int, ...]]) -> int:
    return sum(a == b for a, b in zip(some, others, strict=True))


def main() -> int:
    """Run all jobs; the exit code is 1 where anything is wrong."""
    device, out, *count = sys.argv[1:]
    logging.set_verbosity_error()
    smoke = Smoke(device, Path(out), int(count[0]) if count else 2)
    jobs = [Job("float32"), Job("bf16"), Job("float32", str(MODELS / "tiny_qwen3_vl")), Job("nf4")]
    if device != "cpu":
        jobs.append(Job("float32", draft_device="cpu"))
    for job in jobs:
        smoke.run(job)
    print("WRONG:" if smoke.wrong else "all as it must be", smoke.wrong)
    return int(bool(smoke.wrong))


if __name__ == "__main__":
    sys.exit(main())
