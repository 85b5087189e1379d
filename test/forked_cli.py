"""The `crossspec` command in a fork of a process that has imported torch, which saves seconds per run."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

PRELOADED = ["torch", "transformers", "crossspec_ros.cli"]


class ForkedCli:
    """Runs commands one after another. The fork server ends with this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)

    def __call__(
        self,
        *arguments: object,
        env: Mapping[str, str] | None = None,
        startup: str = "",
        timeout_s: float = 110,
    ) -> CompletedProcess[str]:
        """Run one command after the code `startup`, with `env` in place of this process's variables."""
        words = [str(argument) for argument in arguments]
        outputs = [self._folder / name for name in ("stdout", "stderr")]
        variables = dict(os.environ if env is None else env)
        process = self._context.Process(target=run_command, args=(words, variables, startup, outputs))
        process.start()
        process.join(timeout_s)
        process.kill()
        process.join()
        return CompletedProcess(words, process.exitcode or 0, *(path.read_text() for path in outputs))


def run_command(words: list[str], variables: dict[str, str], startup: str, outputs: list[Path]) -> None:
    """Run one command in this process and exit with its code."""
    from crossspec_ros.cli import main

    for descriptor, path in enumerate(outputs, 1):
        with path.open("w") as file:
            os.dup2(file.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(variables)
    exec(startup, {})
    sys.exit(main(words))
