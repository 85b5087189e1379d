"""Shared passes of a target of real dimensions: T(sequences, tokens), what graphs gain, and kernels.

`python -m crossspec_lab.compare.gpu_shared_passes OUT.json DTYPE ROBOTS DEVICE [FOLDER OF A TARGET]`; without
a folder the target is the 7B one. What was measured is written after each step.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from crossspec_lab.compare.gpu_models import dimensions_of, random_pair, tiny
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.placement import available
from crossspec_ros.paths import tiny_models

_KERNELS = 8
"""Kernels of a pass that are named, those that take longest."""


def main() -> None:
    """Measure, and write what there is after each step."""
    out, dtype, robots, device, *target = sys.argv[1:]
    logging.set_verbosity_error()
    dimensions = dimensions_of(False, *target)
    begun_s = time.perf_counter()
    # The draft is not measured, and a tiny one takes no room.
    pair = random_pair(
        load_pair(tiny_models()),
        dimensions._replace(draft=tiny().draft),
        available(dtype, device),
    )
    found: dict[str, Any] = {"target": dimensions.name, "dtype": dtype, "torch": torch.__version__}

    def keep(**figures: Any) -> None:
        found.update(figures)
        Path(out).write_text(json.dumps(found, indent=1) + "\n")

    keep(built_s=time.perf_counter() - begun_s)
    with closing(LocalEngine(pair.target, is_static=False)) as engine:
        engine.warm_up(1)
        keep(**{"without graphs, ms": milliseconds(engine.measure(False).table())})
    with closing(LocalEngine(pair.target, robots=int(robots))) as engine:
        begun_s = time.perf_counter()
        engine.warm_up(1)
        keep(warm_s=time.perf_counter() - begun_s)
        cost = engine.measure()
        tables = {1: cost.table(), **cost.shared()}
        keep(ms={rows: milliseconds(table) for rows, table in tables.items()})
        if device != "cpu":
            most, reserved = torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved()
            keep(GB={"most": most / 1e9, "reserved": reserved / 1e9})
            engine.batcher.cost = None
            keep(**{f"kernels of {size}": _kernels(engine, size) for size in (1, 32)})
    print(json.dumps(found))


def milliseconds(table: dict[int, float]) -> dict[int, float]:
    """A table of seconds by tokens of a pass, in milliseconds."""
    return {size: round(1e3 * seconds, 3) for size, seconds in table.items()}


def _kernels(engine: LocalEngine, size: int) -> dict[str, tuple[int, float]]:
    """Kernels of a pass over `size` tokens: how often each, and its milliseconds."""
    from torch.profiler import ProfilerActivity, profile

    session = engine.scheduler.submit(lambda: engine._noise(1)[0]).result()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        engine.scheduler.submit(lambda: session.step(DraftTree.filler(size - 1), None)).result()
        torch.cuda.synchronize()
    engine.scheduler.submit(session.close).result()
    rows = sorted(profiled.key_averages(), key=lambda row: -row.self_device_time_total)[:_KERNELS]
    return {row.key[:100]: (row.count, round(row.self_device_time_total / 1e3, 3)) for row in rows}


if __name__ == "__main__":
    main()
