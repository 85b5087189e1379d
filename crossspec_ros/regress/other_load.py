"""How busy the machine was with other things, because then latencies tell little about the program."""

from __future__ import annotations

import os

import psutil

_MUCH = 0.1
_IDLE = ("idle", "iowait")
_COUNTED_TWICE = ("guest", "guest_nice")
"""Linux has these in `user` and `nice` as well."""


class OtherLoad:
    """Measures from its creation on what this process and the children that it has waited for did not use."""

    def __init__(self) -> None:
        self._before = _read()

    def sentence(self) -> str:
        """What to tell, with a warning where it is much."""
        total, used, own = (now - then for now, then in zip(_read(), self._before, strict=True))
        share = max(0.0, used - own) / max(total, 1e-9)
        told = f"other programs used {share:.0%} of the machine"
        return f"{told}: run it again when it is idle, latencies are not reliable" if share > _MUCH else told


def _read() -> tuple[float, float, float]:
    """Seconds that all cores had, that they worked or were taken away, and that they worked for us."""
    spent = psutil.cpu_times()._asdict()
    total = sum(seconds for kind, seconds in spent.items() if kind not in _COUNTED_TWICE)
    idle = sum(spent.get(kind, 0.0) for kind in _IDLE)
    return total, total - idle, sum(os.times()[:4])
