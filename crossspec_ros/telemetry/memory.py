"""What memory a process has, on Linux."""

from __future__ import annotations

import os
from pathlib import Path


def resident_mb(pid: int | None = None) -> float:
    """Resident memory in MB, of this process where none is named; OSError where there is no such process."""
    pages = int(Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
