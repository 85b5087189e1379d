"""A camera's software in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager


@contextmanager
def serving(program, *arguments):
    """The process of a Python program that says "up" once it serves; killed at the end."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "up\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
