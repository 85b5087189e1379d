"""How busy the machine was with other things, because then latencies tell little about the program."""

from __future__ import annotations

import os
from pathlib import Path

_STAT = Path("/proc/stat")
_MUCH = 0.1


class OtherLoad:
    """Measures from its creation on what this process and the children that it has waited for did not use."""

    def __init__(self) -> None:
        self._before = _read()

    def sentence(self) -> str:
        """What to tell, with a warning where it is much; empty where the system is not Linux."""
        if not _STAT.exists():
            return ""
        total, used, own = (now - then for now, then in zip(_read(), self._before, strict=True))
        share = max(0.0, used - own) / max(total, 1e-9)
        told = f"other programs used {share:.0%} of the machine"
        return f"{told}: run it again when it is idle, latencies are not reliable" if share > _MUCH else told


def _read() -> tuple[float, float, float]:
    """Seconds that all cores had, that they worked or were taken away, and that they worked for us."""
    if not _STAT.exists():
        return 0.0, 0.0, 0.0
    ticks = [int(field) for field in _STAT.read_text().splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    second = os.sysconf("SC_CLK_TCK")
    return sum(ticks) / second, (sum(ticks) - idle) / second, sum(os.times()[:4])
