"""The one exception that means "the input is bad", and what to make of those that mean something else."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from crossspec_ros.plain_text import plain_text

_T = TypeVar("_T")
ENDS = (KeyboardInterrupt, SystemExit)
"""Errors that are for the whole process; any other fails one piece of work."""
_LONGEST = 2000
_LONGEST_TRACEBACK = 100_000


class InputError(ValueError):
    """Bad input; the message is one sentence that names the input, the problem and the remedy.

    It may quote the input, so it is made harmless for logs and terminals.
    """

    def __str__(self) -> str:
        """The sentence; where it quotes megabytes of input, their middle is left out."""
        # Made harmless, a character can become ten.
        return _cut(plain_text(_cut(super().__str__())))


def _cut(text: str, most: int = _LONGEST) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} [...] {text[-most // 2 :]}"


class LinkError(InputError):
    """The target's server gave no answer, for the link to it is slow or lost, or it refused."""


class NonFiniteError(InputError):
    """A pass of the target gave logits that are NaN or infinite, so that its tokens mean nothing."""

    def __init__(self) -> None:
        super().__init__(
            "the target's logits are not finite numbers: choose another dtype, or copy the checkpoint again"
        )


def described(error: BaseException) -> str:
    """For a log: the sentence about a bad input, of all else where it was raised.

    All lines but the first are indented, so that none that the error brings looks like one of the log. Of a
    message of megabytes, the middle is left out.
    """
    if isinstance(error, InputError):
        return str(error)
    parts = [_cut(part.rstrip("\n")) for part in traceback.format_exception(error)]
    return _cut(plain_text("\n".join(parts), keep="\n"), _LONGEST_TRACEBACK).replace("\n", "\n  ")


def one_line(error: BaseException) -> str:
    """An error's message in one line, to stand in brackets; its type where it says nothing."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def first_line(error: BaseException) -> str:
    """The first line of what an error of a library says that writes pages; its type where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def forget_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error that was told.

    Their frames hold all that it came through, pixels and caches, and that often holds the error: the memory
    would wait for Python to look for cycles.
    """
    for link in chain(error):
        link.__traceback__ = None


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """This, what it was raised from, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def as_exception(error: BaseException) -> Exception:
    """The error as an `Exception`: a panic of a library written in Rust comes as a bare BaseException."""
    if isinstance(error, Exception):
        return error
    wrapped = RuntimeError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def tried(work: Callable[[], _T]) -> _T | Exception:
    """Result of a piece of work, or why it failed."""
    try:
        return work()
    except ENDS:
        raise
    except BaseException as error:
        return as_exception(error)


@contextmanager
def failures_logged(log: logging.Logger, level: int, complaint: str) -> Iterator[None]:
    """Log a failure of what is done here, and go on behind it."""
    try:
        yield
    except ENDS:
        raise
    except BaseException as error:
        log.log(level, "%s: %s", complaint, described(error))
        forget_frames(error)
