"""Steps of a training that may be interrupted: it resumes from its checkpoint to the same result."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crossspec_ros.errors import InputError
from crossspec_ros.files import replacing

CURVE, CHECKPOINT = "curve.jsonl", "checkpoint.pt"
"""Files in the folder of a training."""


class Loop:
    """AdamW on the parameters of a module that learn, with a learning rate by step.

    `groups` names some parameters and the share of the `rate` that each has by step. `known` tells this
    training from others of the same folder.
    """

    def __init__(
        self,
        module: nn.Module,
        folder: Path,
        known: dict[str, Any],
        rate: float,
        *groups: tuple[list[nn.Parameter], Callable[[int], float]],
        betas: tuple[float, float] = (0.9, 0.98),
        decay: float = 0.02,
    ) -> None:
        self._module, self._folder, self._known = module, folder, known
        parameters = [{"params": chosen} for chosen, _ in groups]
        self._optimizer = torch.optim.AdamW(parameters, rate, betas, weight_decay=decay, fused=True)
        self._schedule = torch.optim.lr_scheduler.LambdaLR(self._optimizer, [share for _, share in groups])

    def resume(self, device: torch.device | str = "cpu") -> dict[str, Any]:
        """Go on from the checkpoint; return what was saved with it, and nothing where there is none."""
        checkpoint = self._folder / CHECKPOINT
        if not checkpoint.exists():
            return {}
        # No code in the file runs.
        saved = torch.load(checkpoint, weights_only=True, map_location=device)
        if saved["known"] != self._known:
            raise InputError(
                f"'{checkpoint}' is of another recipe or other windows: remove it, or name another --work "
                f"folder"
            )
        self._module.load_state_dict(saved["module"])
        self._optimizer.load_state_dict(saved["optimizer"])
        self._schedule.load_state_dict(saved["schedule"])
        torch.set_rng_state(saved["random"].cpu())
        more: dict[str, Any] = saved["more"]
        return more

    def step(self, loss: Tensor) -> None:
        """Learn from a loss."""
        loss.backward()
        nn.utils.clip_grad_norm_(self._module.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._schedule.step()

    def point(self, step: int, **values: Any) -> None:
        """Append a point to the learning curve."""
        with (self._folder / CURVE).open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")

    def save(self, **more: Any) -> None:
        """Write the checkpoint."""
        state = {
            "known": self._known,
            "module": self._module.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "schedule": self._schedule.state_dict(),
            "random": torch.get_rng_state(),
            "more": more,
        }
        with replacing(self._folder / CHECKPOINT) as scratch:
            torch.save(state, scratch)


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
