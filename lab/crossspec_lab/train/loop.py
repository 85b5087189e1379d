"""Steps of a training that may be interrupted: from its checkpoint it goes on to the same result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crossspec_lab.train.resume_file import load_checkpoint, save_checkpoint
from crossspec_ros.errors import InputError


@dataclass
class Loop:
    """Model that learns, and how; `known` tells this training from others of the same folder."""

    module: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    checkpoint: Path
    known: dict[str, Any]

    def resume(self, device: torch.device | str = "cpu") -> dict[str, Any]:
        """Go on from the checkpoint; what was saved with it, and nothing where there is none."""
        if not self.checkpoint.exists():
            return {}
        saved = load_checkpoint(self.checkpoint, device)
        if saved["known"] != self.known:
            raise InputError(
                f"'{self.checkpoint}' is of another recipe or other windows: name another --work folder or "
                f"remove it"
            )
        self.module.load_state_dict(saved["module"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.schedule.load_state_dict(saved["schedule"])
        torch.set_rng_state(saved["random"].cpu())
        more: dict[str, Any] = saved["more"]
        return more

    def step(self, loss: Tensor) -> None:
        """Learn from a loss."""
        loss.backward()
        nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()

    def save(self, **more: Any) -> None:
        """Write the checkpoint."""
        state = {
            "known": self.known,
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "random": torch.get_rng_state(),
            "more": more,
        }
        save_checkpoint(state, self.checkpoint)


def warmed_cosine(step: int, steps: int, warm: int) -> float:
    """Share of the learning rate: up over `warm` steps, then along a cosine to a fiftieth."""
    share = 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))
    return min(1.0, (step + 1) / warm) * share


def rows_of_step(step: int, batch: int, total: int, seed: int) -> NDArray[np.int64]:
    """Rows of a batch; they follow from the step's number alone, so that a resumed run sees the same."""
    per_epoch = total // batch
    order = np.random.default_rng([step // per_epoch, seed]).permutation(total)
    at = step % per_epoch * batch
    return np.sort(order[at : at + batch])
