"""`crossspec train tiny`: train the tiny models from new weights, one after the other."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from transformers import TrainerCallback

from crossspec_lab.train.caption_students import CaptionStudent, DraftStudent, TargetStudent
from crossspec_lab.train.outputs import write_model
from crossspec_lab.train.training import Recipe, train
from crossspec_ros.paths import share_dir

_CHECKPOINTS = {
    "video_llava": "models/tiny/target",
    "qwen3_vl": "models/tiny_qwen3_vl",
    "draft": "models/tiny/draft",
}
"""Shipped checkpoints with the architecture and the tokenizer of each family's target and of the draft."""
_RECIPES = {
    "video_llava": Recipe(24_000, 9_000, 16, 8e-4, warmup_steps=200),
    "qwen3_vl": Recipe(16_000, 3_300, 16, 8e-4, warmup_steps=200),
    "draft": Recipe(9_000, 3_600, 32, 1e-3, warmup_steps=200),
}
_TOWER_STEPS = {"video_llava": 2_500, "qwen3_vl": 1_000, "draft": 0}
"""First steps, which train the vision tower on attributes alone."""


class _TowerFirst(TrainerCallback):
    """Let a student read captions after its first `steps`."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        more["model"].is_reading = state.global_step >= self._steps


def run(args: argparse.Namespace) -> int:
    """Train into `args.out`; `args.work` keeps windows and checkpoints, from which a run resumes."""
    is_pair = args.family == "video_llava"
    # One draft serves the targets of all families.
    names = (args.only,) if args.only else ("target", "draft") if is_pair else ("target",)
    for name in names:
        kind = args.family if name == "target" else name
        source = share_dir() / _CHECKPOINTS[kind]
        torch.manual_seed(7)
        student: CaptionStudent = (TargetStudent if name == "target" else DraftStudent)(source)
        tower_first = _TowerFirst(_TOWER_STEPS[kind] // args.shrink)
        recipe = _RECIPES[kind].shrunk(args.shrink)
        train(student, student.draw, recipe, args.work, kind, callbacks=(tower_first,))
        # The two models of the pair are stored side by side.
        write_model(student.module, source, args.out / (name if is_pair else args.family))
    print(f"trained: {args.out}")
    return 0
