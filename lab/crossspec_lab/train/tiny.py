"""`crossspec train tiny`: train the tiny models from new weights, one after the other."""

from __future__ import annotations

import argparse

import torch

from crossspec_lab.train.caption_students import CaptionStudent, DraftStudent, TargetStudent
from crossspec_lab.train.training import Recipe, train_on_windows, write_model
from crossspec_ros.paths import share_dir

_RECIPES = {
    "video_llava": ("models/tiny/target", Recipe(24_000, 9_000, 16, 8e-4, warmup_steps=200), 2_500),
    "qwen3_vl": ("models/tiny_qwen3_vl", Recipe(16_000, 3_300, 16, 8e-4, warmup_steps=200), 1_000),
    "draft": ("models/tiny/draft", Recipe(9_000, 3_600, 32, 1e-3, warmup_steps=200), 0),
}
"""Each family's target and the draft: the shipped checkpoint with its architecture and tokenizer, its recipe,
and the number of first steps that train the vision tower on attributes alone."""


def run(args: argparse.Namespace) -> int:
    """Train into `args.out`; `args.work` keeps windows and checkpoints, from which a run resumes."""
    is_pair = args.family == "video_llava"
    # One draft serves the targets of all families.
    names = (args.only,) if args.only else ("target", "draft") if is_pair else ("target",)
    for name in names:
        kind = args.family if name == "target" else name
        folder, recipe, tower_steps = _RECIPES[kind]
        source = share_dir() / folder
        torch.manual_seed(7)
        student: CaptionStudent = (TargetStudent if name == "target" else DraftStudent)(source)

        def begin_step(step: int, student: CaptionStudent = student, first: int = tower_steps) -> None:
            student.is_reading = step >= first // args.shrink

        train_on_windows(student, recipe.shrunk(args.shrink), args.work, kind, on_step=begin_step)
        # The two models of the pair are stored side by side.
        write_model(student.module, source, args.out / (name if is_pair else args.family))
    print(f"trained: {args.out}")
    return 0
