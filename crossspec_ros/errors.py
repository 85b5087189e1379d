"""Errors about bad input, safe texts for logs and terminals, and helpers that catch errors."""

from __future__ import annotations

import logging
import traceback
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

_T = TypeVar("_T")
FATAL_EXCEPTIONS = (KeyboardInterrupt, SystemExit)
"""Exceptions that end the process. Any other one fails a single task."""
_CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of escape sequences, direction marks, surrogates and line breaks."""
_JOINERS = "\u200c\u200d"
"""Zero-width joiners, which some scripts need between letters."""
_MAX_TEXT = 2000
_MAX_TRACEBACK = 100_000


def plain_text(text: str, keep: str = "") -> str:
    r"""Return the text with control characters written out, as in \x1b; those in `keep` stay."""
    if text.isprintable():
        return text
    return "".join(
        character
        if unicodedata.category(character) not in _CONTROL_CATEGORIES or character in _JOINERS + keep
        else character.encode("unicode_escape").decode()
        for character in text
    )


class InputError(ValueError):
    """Bad input. The message is one sentence that names the input, the problem and a remedy."""

    def __str__(self) -> str:
        """Return the sentence as plain text. The middle of a long text is cut."""
        # `plain_text` can replace one character by ten.
        return _cut(plain_text(_cut(super().__str__())))


class LinkError(InputError):
    """The target's server did not answer: the link is slow or broken, or the server refused."""


class NonFiniteError(InputError):
    """A forward pass of the target returned NaN or infinite logits."""

    def __init__(self) -> None:
        super().__init__(
            "the target's logits are not finite numbers: choose another dtype, or copy the checkpoint again"
        )


def described(error: BaseException) -> str:
    """Return an error's text for a log: the sentence of an InputError, or else the traceback.

    All lines but the first are indented, so that they do not look like separate log lines.
    """
    if isinstance(error, InputError):
        return str(error)
    parts = [_cut(part.rstrip("\n")) for part in traceback.format_exception(error)]
    return _cut(plain_text("\n".join(parts), keep="\n"), _MAX_TRACEBACK).replace("\n", "\n  ")


def one_line(error: BaseException) -> str:
    """Return an error's message in one line, or its type if it has none."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def forget_frames(error: BaseException) -> None:
    """Drop the tracebacks of a handled error, whose frames hold pixels and caches."""
    for link in chain(error):
        link.__traceback__ = None


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of that, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def as_exception(error: BaseException) -> Exception:
    """Return an error as an `Exception`. Panics of Rust libraries derive from BaseException only."""
    if isinstance(error, Exception):
        return error
    wrapped = RuntimeError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def tried(work: Callable[[], _T]) -> _T | Exception:
    """Return the result of `work`, or its exception."""
    try:
        return work()
    except FATAL_EXCEPTIONS:
        raise
    except BaseException as error:
        return as_exception(error)


@contextmanager
def failures_logged(log: logging.Logger, level: int, complaint: str) -> Iterator[None]:
    """Log an exception of the block, and continue after it."""
    try:
        yield
    except FATAL_EXCEPTIONS:
        raise
    except BaseException as error:
        log.log(level, "%s: %s", complaint, described(error))
        forget_frames(error)


def _cut(text: str, most: int = _MAX_TEXT) -> str:
    return text if len(text) <= most else f"{text[: most // 2]} [...] {text[-most // 2 :]}"
