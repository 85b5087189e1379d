"""What memory a process has."""

from __future__ import annotations

import psutil


def resident_mb(pid: int | None = None) -> float:
    """Resident memory in MB, of this process where none is named; psutil.Error where there is no such one."""
    return psutil.Process(pid).memory_info().rss / 1e6
