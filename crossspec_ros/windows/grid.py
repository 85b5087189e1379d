"""The fixed grid of windows and slots in ROS time, so that a stamp alone assigns a message."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000_000


@dataclass(frozen=True)
class WindowGrid:
    """Windows of `window_ns` of ROS time in ns, each cut into `slots` equal slots.

    They end `phase_ns` (0 .. window_ns - 1) after the multiples of their length. Indices count from 0.
    """

    window_ns: int = SECOND
    slots: int = 8
    phase_ns: int = 0

    @classmethod
    def at(cls, phase_s: float, slots: int = 8) -> WindowGrid:
        """Return windows of a second that end `phase_s` after each full second."""
        return cls(slots=slots, phase_ns=round(phase_s * SECOND))

    @property
    def _origin_ns(self) -> int:
        """The start of window 0; not above 0, so that no stamp has an index below 0."""
        return self.phase_ns - self.window_ns if self.phase_ns else 0

    def index(self, stamp_ns: int) -> int:
        """Window of a stamp; an event image's stamp is the end of its slice, so pass that stamp - 1."""
        return (stamp_ns - self._origin_ns) // self.window_ns

    def slot(self, stamp_ns: int) -> int:
        """Slot of a stamp within its window, 0 .. slots - 1."""
        return (stamp_ns - self._origin_ns) % self.window_ns * self.slots // self.window_ns

    def closing(self, stamp_ns: int, lateness_ns: int) -> int:
        """Return a stamp at which the window of `stamp_ns` has closed for any stream."""
        return self.end(self.index(stamp_ns)) + lateness_ns + SECOND // 20

    def start(self, index: int) -> int:
        """First ns of a window."""
        return index * self.window_ns + self._origin_ns

    def end(self, index: int) -> int:
        """First ns after a window."""
        return self.start(index + 1)
