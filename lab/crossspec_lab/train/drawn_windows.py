"""Windows of frames that a training draws first: those that it learns from, and those that it never sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from crossspec_lab.world import dataset


def drawn_windows(
    work: Path,
    windows: int,
    held_out: int,
    progress: Progress,
    draw: dataset.Draw = dataset.frame_window,
) -> tuple[NDArray[np.uint8], tuple[NDArray[np.uint8], range]]:
    """Windows of the seeds from 0 on; held-out windows and their seeds. All are kept in `work`."""
    task = progress.add_task("drawing windows", total=windows)
    unseen_seeds = range(dataset.HELD_OUT, dataset.HELD_OUT + held_out)
    unseen = dataset.build(work / "held_out.npy", draw, unseen_seeds, lambda _: None)
    images = dataset.build(
        work / "windows.npy",
        draw,
        range(windows),
        lambda count: progress.update(task, completed=count),
    )
    progress.update(task, completed=windows)
    return images, (unseen, unseen_seeds)
