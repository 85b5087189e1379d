"""Buffers that stay, for passes on any device, or none: for rehearsals on a CPU, and where graphs fail.

`python -m crossspec_lab.compare.gpu_static bench gpu ...` is the command line without buffers and graphs.
"""

from __future__ import annotations

import sys
from typing import Any

from crossspec_ros.engine.model_runner import ModelRunner


def make_static(is_static: bool) -> None:
    """Let every runner that is made from now on read like this, whatever its device."""
    made = ModelRunner.__init__

    def init(runner: ModelRunner, *args: Any, **options: Any) -> None:
        made(runner, *args, **options)
        runner.is_static = is_static

    setattr(ModelRunner, "__init__", init)  # noqa: B010


def graphs(runner: Any) -> int:
    """Passes of a runner that were captured as CUDA graphs."""
    passes = [*runner._single.values(), *runner._shared.values()]
    return sum(step._graph is not None for step in passes)


if __name__ == "__main__":
    from crossspec_ros.cli import main

    make_static(False)
    sys.exit(main(sys.argv[1:]))
