"""`crossspec train smol`: a real language model learns to caption the synthetic world.

The tower first learns what the frames show, as words of the language model (`shown_words.py`). Captions teach
a tower slowly, because most of their words need no image. It begins as the tower of the tiny target, which
knows this world (`copy_tiny_tower`). Then the language model reads, and both learn.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import torch

from crossspec_lab.train.smol_student import SmolStudent
from crossspec_lab.train.training import BETAS, Recipe, train_on_windows
from crossspec_ros.paths import share_dir

_TOWER = Recipe(8_000, 1_500, 64, 1e-3, weight_decay=0.01, held_out=64)
_CAPTIONS = replace(_TOWER, steps=300, batch=4)
_TOWER_SHARE = 0.2
"""Share of the learning rate that the tower has while the language model reads."""


def run(args: argparse.Namespace) -> int:
    """Train into `args.out`; `args.work` keeps windows and checkpoints, from which a run resumes."""
    torch.manual_seed(7)
    student = SmolStudent(share_dir() / "models" / "smol", args.device)
    student.begin_as_tiny_tower()
    train_on_windows(student, _TOWER.shrunk(args.shrink), args.work, "tower", device=args.device)
    student.is_reading = True
    recipe = _CAPTIONS.shrunk(args.shrink)
    groups: list[dict[str, Any]] = [
        {"params": student.tower_parameters(), "lr": _TOWER_SHARE * recipe.learning_rate},
        {"params": student.language_parameters()},
    ]
    optimizer = torch.optim.AdamW(
        groups, recipe.learning_rate, BETAS, weight_decay=recipe.weight_decay, fused=True
    )
    train_on_windows(student, recipe, args.work, "captions", device=args.device, optimizer=optimizer)
    student.save(args.out)
    print(f"trained: {args.out}")
    return 0
