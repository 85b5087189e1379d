"""The window captioned last: its frames stay prefilled, so that it can be asked about again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from crossspec_ros.captioning.open_windows import OpenWindow
from crossspec_ros.errors import InputError


class LastWindow:
    """Holds at most one window; what the target holds of any other is given back."""

    def __init__(self) -> None:
        self._opened: OpenWindow | None = None

    def keep(self, opened: OpenWindow) -> None:
        """Hold this window from now on."""
        self._opened = opened

    def forget(self) -> None:
        """Give back what is held; nobody will ask about it."""
        last, self._opened = self._opened, None
        if last is not None:
            last.forget()

    def settle(self, opened: OpenWindow) -> None:
        """Give a window back unless it is kept."""
        if self._opened is not opened:
            opened.rest()
            opened.forget()

    @contextmanager
    def asked(self) -> Iterator[OpenWindow]:
        """Lend the window for a question. It goes back unless it is kept again, or the question was refused.

        Raises InputError where there is none.
        """
        opened, self._opened = self._opened, None
        if opened is None:
            raise InputError("there is no window to ask about: ask again once one has been captioned")
        try:
            yield opened
        except InputError:
            self.keep(opened)
            raise
        finally:
            self.settle(opened)
