"""Training of a head on its own loss, with early stopping on held-out windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from transformers import EarlyStoppingCallback, PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from crossspec_lab.heads.head import IGNORED, TargetReader
from crossspec_lab.identity import check_same
from crossspec_lab.train.pairs import PairShards
from crossspec_ros.errors import InputError

_BATCH = 32
_HELD_OUT = 256
_CHECK_STEPS = 100
"""Steps between evaluations, with a checkpoint at each."""
_PATIENCE = 5
"""Evaluations in a row without a better loss that end the training."""


class _HeadTrainer(Trainer):
    """Train on `head.loss`, and evaluate by `held_out_figures`."""

    def __init__(self, evaluated: Callable[[], dict[str, float]], **options: Any) -> None:
        super().__init__(**options)
        self._evaluated = evaluated
        self.remove_callback(PrinterCallback)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **options: Any) -> Any:
        return model.loss(inputs["pairs"])

    def evaluate(self, *args: Any, **options: Any) -> dict[str, float]:
        figures = {f"eval_{name}": value for name, value in self._evaluated().items()}
        self.log(figures)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, figures)
        return figures


class _Report(TrainerCallback):
    def __init__(self, report: Callable[[int], None]) -> None:
        self._report = report

    def on_step_end(self, args: Any, state: Any, control: Any, **options: Any) -> None:
        self._report(state.global_step)


def fit_head(
    head: TargetReader,
    pairs: PairShards,
    steps: int,
    folder: Path,
    report: Callable[[int], None],
    seed: int = 7,
) -> dict[str, float]:
    """Train a head for at most `steps`; it ends with the best held-out loss, whose figures are returned.

    The last windows of `pairs`, at most a fifth, are held out. An interrupted training continues from the
    last checkpoint in `folder`. Raises InputError for one of other windows or another seed.
    """
    usable = pairs.rows_with(head.learns_from)
    held = min(_HELD_OUT, len(usable) // 5)
    if not held:
        raise InputError(f"'{pairs.folder}' has {len(usable)} windows, too few to learn from: make more")
    learned, held_out = usable[:-held], usable[-held:]
    check_same(folder, {"seed": seed, "windows": len(usable)})
    device = head.device
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=min(_BATCH, len(learned)),
        learning_rate=1e-3,
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr_rate": 0.02},
        warmup_steps=100,
        weight_decay=0.01,
        adam_beta2=0.95,
        seed=seed,
        use_cpu=device.type == "cpu",
        dataloader_drop_last=True,
        remove_unused_columns=False,
        eval_strategy="steps",
        eval_steps=min(_CHECK_STEPS, steps),
        save_steps=min(_CHECK_STEPS, steps),
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="loss",
        disable_tqdm=True,
        report_to="none",
    )
    trainer = _HeadTrainer(
        lambda: held_out_figures(head, pairs, held_out),
        model=head,
        args=arguments,
        train_dataset=cast(Any, learned),
        eval_dataset=cast(Any, held_out),
        data_collator=lambda rows: {"pairs": pairs.batch(rows, device)},
        callbacks=[EarlyStoppingCallback(_PATIENCE), _Report(report)],
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)) if folder.is_dir() else None)
    return held_out_figures(head, pairs, held_out)


@torch.no_grad()
def held_out_figures(head: TargetReader, pairs: PairShards, rows: Sequence[int]) -> dict[str, float]:
    """Return the loss on these windows, and the share of the tokens whose likeliest guess is right."""
    head.eval()
    losses: list[float] = []
    right = total = 0
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for at in range(0, len(rows), _BATCH):
            batch = pairs.batch(rows[at : at + _BATCH], head.device)
            losses.append(float(head.loss(batch)))
            hits = (head.logits(batch).argmax(-1) == batch.tokens) & (batch.tokens != IGNORED)
            right, total = right + int(hits.sum()), total + int(batch.is_token.sum())
    return {"loss": float(np.mean(losses)), "tokens_right": right / total}
