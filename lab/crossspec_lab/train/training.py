"""One training for every recipe: `transformers.Trainer` schedules, evaluates, logs and resumes it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file, save_model
from torch import nn
from transformers import EarlyStoppingCallback, PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from crossspec_lab.identity import check_same
from crossspec_lab.world.dataset import HELD_OUT, DrawnWindows
from crossspec_ros.models.eventgpt import TOWER, EventGPTModule

BETAS = (0.9, 0.98)
_SHARE = 0.05
"""Share of the steps between checkpoints, and between evaluations."""


@dataclass(frozen=True)
class Recipe:
    """Sizes and rates of a training; the `held_out` windows are evaluated only.

    With `patience` the training ends after this number of evaluations in a row without a better loss. The
    student then has the weights of the best one.
    """

    windows: int
    steps: int
    batch: int
    learning_rate: float
    warmup_steps: int = 50
    weight_decay: float = 0.02
    held_out: int = 192
    patience: int = 0
    seed: int = 7

    def shrunk(self, divisor: int) -> Recipe:
        """Return the recipe with data and steps divided, to try a command."""
        return replace(
            self,
            windows=max(self.windows // divisor, self.batch),
            steps=max(self.steps // divisor, 1),
            warmup_steps=self.warmup_steps // divisor,
            held_out=max(self.held_out // divisor, 8),
        )


class _Trainer(Trainer):
    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the weights. The library's own saving refuses tied ones of modules that are not its own."""
        assert output_dir is not None and isinstance(self.model, nn.Module)
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        save_model(self.model, f"{output_dir}/model.safetensors")


class _OnStep(TrainerCallback):
    def __init__(self, on_step: Callable[[int], None]) -> None:
        self._on_step = on_step

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._on_step(state.global_step)


def train(
    student: Any,
    data: tuple[Any, Any],
    recipe: Recipe,
    folder: Path,
    device: str = "cpu",
    optimizer: torch.optim.Optimizer | None = None,
    collate: Callable[[list[Any]], dict[str, Any]] | None = None,
    on_step: Callable[[int], None] = lambda step: None,
    has_bar: bool = True,
) -> None:
    """Train a student. An interrupted training continues from its last checkpoint in `folder`.

    Raises InputError for a checkpoint of another recipe.

    Args:
        student: a module that is called with a batch and returns its `loss`.
        data: the learned windows, and the held-out ones.
        optimizer: one in place of AdamW with the recipe's rate on all parameters.
        collate: returns a batch of the data's items, under `pairs`; the default batches windows.
        on_step: gets the number of steps so far before each.
        has_bar: show a progress bar.
    """
    check_same(folder, asdict(recipe))
    is_on_cpu = device == "cpu"
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=recipe.steps,
        per_device_train_batch_size=recipe.batch,
        per_device_eval_batch_size=recipe.batch,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr_rate": 0.02},
        warmup_steps=recipe.warmup_steps,
        weight_decay=recipe.weight_decay,
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        seed=recipe.seed,
        use_cpu=is_on_cpu,
        bf16=not is_on_cpu,
        dataloader_num_workers=os.cpu_count() or 1,
        dataloader_persistent_workers=True,
        dataloader_pin_memory=not is_on_cpu,
        remove_unused_columns=False,
        label_names=["pairs" if collate else "seeds"],
        prediction_loss_only=True,
        logging_steps=_SHARE / 5,
        eval_strategy="steps",
        eval_steps=_SHARE,
        save_steps=_SHARE,
        save_total_limit=1,
        load_best_model_at_end=recipe.patience > 0,
        metric_for_best_model="loss",
        disable_tqdm=not has_bar,
    )
    stop = [EarlyStoppingCallback(recipe.patience)] if recipe.patience else []
    trainer = _Trainer(
        student,
        arguments,
        data_collator=collate,
        train_dataset=data[0],
        eval_dataset=data[1],
        optimizers=(optimizer, None),
        callbacks=[_OnStep(on_step), *stop],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)))


def train_on_windows(student: Any, recipe: Recipe, work: Path, name: str, **options: Any) -> None:
    """Train on the windows that `student.draw` draws; `work` keeps them, and checkpoints in `name`.

    The student gets their `images` and `seeds`. Other options are those of `train`.
    """
    learned, held_out = (
        DrawnWindows(work / "windows", student.draw, seeds)
        for seeds in (range(recipe.windows), range(HELD_OUT, HELD_OUT + recipe.held_out))
    )
    train(student, (learned, held_out), recipe, work / name, **options)


def window_rng(seed: int, is_training: bool) -> np.random.Generator:
    """Return the random numbers of a window: others at each step of training, equal at each evaluation."""
    return np.random.default_rng([seed, int(torch.randint(1 << 62, ())) if is_training else 0])


def write_model(module: Any, source: Path, out: Path) -> None:
    """Write a checkpoint in bfloat16: the weights, and the JSON files of the checkpoint in `source`."""
    module = module.bfloat16()
    out.mkdir(parents=True, exist_ok=True)
    if isinstance(module, EventGPTModule):
        state = {
            name.replace(TOWER, f"{TOWER}vision_model."): tensor.contiguous()
            for name, tensor in module.state_dict().items()
        }
        save_file(state, out / "model.safetensors", metadata={"format": "pt"})
    else:
        # transformers writes the layout that it reads for its own classes only.
        kinds = type(module).__mro__
        module.__class__ = next(kind for kind in kinds if kind.__module__.startswith("transformers."))
        module.save_pretrained(out)
    for file in source.rglob("*.json"):
        copy = out / file.relative_to(source)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(file, copy)
