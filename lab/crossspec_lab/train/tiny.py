"""`crossspec train tiny`: train the tiny models from scratch, one after the other."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_lab.train.outputs import new_files

if TYPE_CHECKING:
    from rich.progress import Progress
    from tokenizers import Tokenizer

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
    """Train into `args.out`; `args.work` keeps windows and checkpoints, from which a run resumes."""
    from rich.progress import TimeRemainingColumn

    from crossspec_lab.progress import progress_bars
    from crossspec_lab.train.tokenizer import train_tokenizers

    started = time.monotonic()
    # One draft serves the targets of all families.
    names = (args.only,) if args.only else ("target", "draft") if args.family == PAIR else ("target",)
    tokenizers = dict(zip(("target", "draft"), train_tokenizers(family=args.family), strict=False))
    with progress_bars(TimeRemainingColumn()) as progress:
        for name in names:
            _train(name, args, tokenizers[name], progress)
    print(f"trained in {(time.monotonic() - started) / 60:.0f} minutes: {args.out}")
    return 0


def _train(name: str, args: argparse.Namespace, tokenizer: Tokenizer, progress: Progress) -> None:
    import torch

    from crossspec_lab.train.drawn_windows import drawn_windows
    from crossspec_lab.train.fit import Labels, Recipe, fit
    from crossspec_lab.train.models import DraftStudent, Student, TargetStudent
    from crossspec_lab.world import dataset

    torch.manual_seed(7)
    kind, shrink = _kind(name, args.family), args.shrink
    windows, steps, held = _WINDOWS[kind] // shrink, _STEPS[kind] // shrink, max(_HELD_OUT // shrink, 8)
    draw = dataset.frame_window if name == "target" else dataset.event_window
    folder = args.work / kind
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    images, (held_images, test) = drawn_windows(folder, windows, held, progress, draw)
    student: Student = (
        TargetStudent(args.family, tokenizer, folder) if name == "target" else DraftStudent(tokenizer)
    )
    labels, held_labels = (
        Labels(seeds, tokenizer, student, name == "target") for seeds in (range(windows), test)
    )
    recipe = Recipe(_EYES_STEPS[kind] // shrink, steps, _BATCH[kind], _RATE[kind])
    task = progress.add_task(f"training {name}", total=steps)

    def report(step: int, loss: float) -> None:
        progress.update(task, completed=step, description=f"{name}: loss {loss:.3f}")

    fit(student, images, labels, (held_images, held_labels), recipe, folder, report)
    # The two models of the pair are stored side by side.
    _save(student.model, folder, args.out / (name if args.family == PAIR else args.family))


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
        config, tower = model.config.to_diff_dict(), model.config.vision_config.to_diff_dict()
        del config["vision_config"]
        config |= {
            "model_type": "EventChat_llama",
            "architectures": ["EventChatModel"],
            "mm_visual_tower": "clip",
            "event_feature_adaptor": True,
            "mm_use_im_start_end": True,
            "dtype": "bfloat16",
        }
        (out / "config.json").write_text(json.dumps(config, indent=1))
        (out / "clip").mkdir(exist_ok=True)
        (out / "clip" / "config.json").write_text(json.dumps(tower, indent=1))
    else:
        # Of other classes than its own, transformers would not write the layout in which it reads them.
        model.__class__ = next(c for c in type(model).__mro__ if c.__module__.startswith("transformers."))
        model.save_pretrained(out)
        for file in ("generation_config.json", "video_preprocessor_config.json"):
            if (folder / file).is_file():
                shutil.copy(folder / file, out)
    shutil.copy(folder / "tokenizer.json", out)
