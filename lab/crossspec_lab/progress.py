"""Progress bars of commands that do several things for minutes."""

from __future__ import annotations

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)


def progress_bars(*more: ProgressColumn) -> Progress:
    """A row for each thing: what it is, a bar, how many of how many, and for how long."""
    description = TextColumn("{task.description:40}")
    return Progress(description, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), *more)
