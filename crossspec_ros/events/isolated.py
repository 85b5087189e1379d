"""A generator run in a process of its own, for libraries that can hang or crash on what they read.

dv-processing loops for ever, deaf to Ctrl-C, on some damaged files and on servers that say nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any


class IsolationError(RuntimeError):
    """The process did not answer, or did not live to answer."""


def isolated(generator: Callable[..., Iterator[Any]], *arguments: object, timeout_s: float) -> Generator[Any]:
    """What `generator(*arguments)` yields, all of which can be pickled, and what it raises.

    Raises IsolationError when the process dies or yields nothing for `timeout_s`. Closing this iterator ends
    the process.
    """
    # Forked, it would inherit locks of this process's threads that nobody ever frees.
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(sender, generator, arguments), daemon=True)
    process.start()
    sender.close()
    try:
        while True:
            if not receiver.poll(timeout_s):
                raise IsolationError(f"no answer for {timeout_s:g} s")
            try:
                kind, value = receiver.recv()
            except EOFError:
                process.join()
                raise IsolationError(f"its reader crashed, exit code {process.exitcode}") from None
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value
    finally:
        process.kill()
        process.join()
        receiver.close()


def _run(sender: Connection, generator: Callable[..., Iterator[Any]], arguments: tuple[Any, ...]) -> None:
    # Terminals and service managers send these to all processes; the parent decides what ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        for value in generator(*arguments):
            sender.send(("value", value))
        sender.send(("end", None))
    except BrokenPipeError:
        # The parent is gone.
        return
    except Exception as error:
        sender.send(("error", error))
