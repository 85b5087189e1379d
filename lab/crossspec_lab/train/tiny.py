"""`crossspec train tiny`: the tiny models from nothing, one process each; they share the cores."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError
from crossspec_ros.files import new_files

# By the target's family, or for the draft.
_WINDOWS = {"video_llava": 24_000, "qwen3_vl": 16_000, "draft": 9_000}
_EYES_STEPS = {"video_llava": 2_500, "qwen3_vl": 1_000, "draft": 0}
_STEPS = {"video_llava": 9_000, "qwen3_vl": 3_300, "draft": 3_600}
_BATCH = {"video_llava": 16, "qwen3_vl": 16, "draft": 32}
_RATE = {"video_llava": 8e-4, "qwen3_vl": 8e-4, "draft": 1e-3}
_HELD_OUT = 192

PAIR = "video_llava"
"""The target's family in the tiny pair."""
FAMILIES = (PAIR, "qwen3_vl")
"""Families of which there is a tiny target (`models.WRITERS`)."""


def run(args: argparse.Namespace) -> int:
    """Train into `args.out`; `args.work` keeps windows and checkpoints, from which an interrupted run goes
    on."""
    from rich.progress import TimeRemainingColumn

    from crossspec_lab.progress import progress_bars
    from crossspec_lab.train.tokenizer import train_tokenizers

    # Or those that train would go on alone, and write into what the next run writes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if args.shrink < 1:
        raise InputError(f"--shrink {args.shrink} is no divisor: give 1 or more")
    started = time.monotonic()
    work, out = Path(args.work), Path(args.out)
    # One draft serves the targets of all families.
    names = (args.only,) if args.only else ("target", "draft") if args.family == PAIR else ("target",)
    tokenizers = dict(zip(("target", "draft"), train_tokenizers(family=args.family), strict=False))
    kinds = [_kind(name, args.family) for name in names]
    for name, kind in zip(names, kinds, strict=True):
        (work / kind).mkdir(parents=True, exist_ok=True)
        tokenizers[name].save(str(work / kind / "tokenizer.json"))
    context = multiprocessing.get_context("spawn")
    news: Queue[tuple[str, str, int, int, str]] = context.Queue()
    threads = max(1, (os.cpu_count() or 1) // len(names))
    workers = [
        context.Process(
            target=_work, args=(name, args.family, work, out, args.shrink, threads, news), daemon=True
        )
        for name in names
    ]
    with progress_bars(TimeRemainingColumn()) as progress:
        tasks = {name: progress.add_task(name) for name in names}
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers) or not news.empty():
            try:
                name, phase, done, total, note = news.get(timeout=1)
            except multiprocessing.queues.Empty:  # type: ignore[attr-defined]
                continue
            progress.update(tasks[name], description=f"{name}: {phase} {note}", completed=done, total=total)
    if any(worker.exitcode for worker in workers):
        raise InputError(
            f"training stopped: mend what the error above says and repeat the command; '{work}' is kept"
        )
    minutes = (time.monotonic() - started) / 60
    _plot(kinds, work, out)
    print(f"trained in {minutes:.0f} minutes: {out}")
    return 0


def _work(
    name: str,
    family: str,
    work: Path,
    out: Path,
    shrink: int,
    threads: int,
    news: Queue[tuple[str, str, int, int, str]],
) -> None:
    import torch
    from tokenizers import Tokenizer

    from crossspec_lab.train.fit import Labels, Recipe, fit
    from crossspec_lab.train.models import DraftStudent, Student, TargetStudent
    from crossspec_lab.world import dataset

    torch.set_num_threads(threads)
    torch.manual_seed(7)
    kind = _kind(name, family)
    windows, steps, held = _WINDOWS[kind] // shrink, _STEPS[kind] // shrink, max(_HELD_OUT // shrink, 8)
    draw = dataset.frame_window if name == "target" else dataset.event_window
    train, test = range(windows), range(dataset.HELD_OUT, dataset.HELD_OUT + held)
    folder = work / kind
    held_images = dataset.build(folder / "held_out.npy", draw, test, lambda _: None)
    images = dataset.build(
        folder / "windows.npy", draw, train, lambda n: news.put((name, "drawing windows", n, windows, ""))
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    with_color = name == "target"
    student: Student = (
        TargetStudent(family, tokenizer, folder) if name == "target" else DraftStudent(tokenizer)
    )
    labels, held_labels = (Labels(seeds, tokenizer, student, with_color) for seeds in (train, test))
    recipe = Recipe(_EYES_STEPS[kind] // shrink, steps, _BATCH[kind], _RATE[kind])

    def report(step: int, loss: float) -> None:
        news.put((name, "training", step, steps, f"loss {loss:.3f}"))

    fit(student, images, labels, (held_images, held_labels), recipe, folder, report)
    # The pair's own stand side by side.
    _save(student.model, folder, out / (name if family == PAIR else family))


def _kind(name: str, family: str) -> str:
    """Name, for the recipes and the work folder, of the `target` of a family, or of the `draft`."""
    return family if name == "target" else name


def _save(model: Any, folder: Path, out: Path) -> None:
    """Write the model, its config and its tokenizer; what is there is replaced once all is written."""
    with new_files(out) as scratch:
        write_model(model, folder, scratch)


def write_model(model: Any, folder: Path, out: Path) -> None:
    """Write a model in bfloat16, its config, and the files that `folder` has beside it."""
    from safetensors.torch import save_file

    from crossspec_ros.models.eventgpt import TOWER, EventGPTModule

    model = model.bfloat16()
    if isinstance(model, EventGPTModule):
        state = {
            name.replace(TOWER, f"{TOWER}vision_model."): tensor.contiguous()
            for name, tensor in model.state_dict().items()
        }
        save_file(state, out / "model.safetensors", metadata={"format": "pt"})
        config = model.config.to_diff_dict() | {
            "model_type": "EventChat_llama",
            "architectures": ["EventChatModel"],
            "mm_visual_tower": "clip",
            "event_feature_adaptor": True,
            "mm_use_im_start_end": True,
            "dtype": "bfloat16",
        }
        (out / "config.json").write_text(json.dumps(config, indent=1))
        (out / "clip").mkdir(exist_ok=True)
        (out / "clip" / "config.json").write_text(json.dumps(model.vision_config.to_diff_dict(), indent=1))
    else:
        # Of other classes than its own, transformers would not write the layout in which it reads them.
        model.__class__ = next(c for c in type(model).__mro__ if c.__module__.startswith("transformers."))
        model.save_pretrained(out)
        for file in ("generation_config.json", "video_preprocessor_config.json"):
            if (folder / file).is_file():
                shutil.copy(folder / file, out)
    shutil.copy(folder / "tokenizer.json", out)


def _plot(names: Sequence[str], work: Path, out: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    for name in names:
        points = [json.loads(line) for line in (work / name / "curve.jsonl").read_text().splitlines()]
        points = [point for point in points if "loss" in point]
        steps = [point["step"] for point in points]
        axes[0].plot(steps, [p["loss"] for p in points], alpha=0.4, label=f"{name}, training")
        axes[0].plot(steps, [p["held_out_loss"] for p in points], label=f"{name}, held out")
        axes[1].plot(steps, [100 * p["held_out_exact"] for p in points], label=f"{name}, captions exact")
        axes[1].plot(steps, [100 * p["held_out_tokens"] for p in points], "--", label=f"{name}, tokens")
    axes[0].set(xlabel="step", ylabel="cross entropy (nats a token)", yscale="log")
    axes[1].set(xlabel="step", ylabel="held out, right (%)")
    for axis in axes:
        axis.legend()
        axis.grid(alpha=0.3)
    figure.savefig(out / "learning_curves.png", dpi=110)
