"""Buffers that stay, for passes on any device, or none: for rehearsals on a CPU, and where graphs fail.

`python -m crossspec_lab.compare.gpu_static bench gpu ...` is the command line without buffers and graphs.
"""

from __future__ import annotations

import sys
from typing import Any

from crossspec_ros.engine.runner_pool import RunnerPool


def make_static(is_static: bool) -> None:
    """Let every pool that is made from now on read like this, whatever its device."""
    made = RunnerPool.__init__

    def init(pool: RunnerPool, *args: Any, **options: Any) -> None:
        made(pool, *args, **options)
        pool.is_static = is_static

    setattr(RunnerPool, "__init__", init)  # noqa: B010


def graphs(pool: RunnerPool) -> int:
    """Passes of a pool that were captured as CUDA graphs."""
    passes = [step for runner in pool._free for step in runner._steps.values()]
    return sum(step._graph is not None for step in [*passes, *pool._steps.values()])


if __name__ == "__main__":
    from crossspec_ros.cli import main

    make_static(False)
    sys.exit(main(sys.argv[1:]))
