"""Progress bars of commands with several long tasks."""

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
    """Return progress bars with a description, a count and the elapsed time."""
    description = TextColumn("{task.description:40}")
    return Progress(description, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), *more)
