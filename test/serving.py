"""A camera server in its own process."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager


@contextmanager
def serving(program, *arguments):
    """Yield the process of a Python program, once it prints "up", and kill it at the end."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "up\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
