"""Watches the threads of a process: one that is dead or stuck is a fault, and then the end of the process.

A process that is up but mute helps nobody; one that ends is started again by launch, systemd or Ray Serve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from crossspec_ros.telemetry.pulse import Pulse

PATIENCE_S = 60
"""How long a thread may be busy without a step; whoever loads models adds to it what these need."""
FAREWELL_S = 3
"""How long a fault is told before it is the end."""


class ThreadWatch:
    """Looks at the pulses that `pulses` gives at the time, once a second.

    Looks are counted and not time, so that a process that was stopped for an hour is not taken for stuck.
    """

    def __init__(self, pulses: Callable[[], Iterable[Pulse]]) -> None:
        self._pulses = pulses
        self.patience_s = PATIENCE_S
        self.fault = ""
        """What was wrong at the last look, if anything."""
        self.values: dict[str, str] = {}
        """What each thread did then."""
        self._silent: dict[Pulse, tuple[int, int]] = {}
        self._faulty = 0

    def look(self) -> str:
        """What is wrong, if anything."""
        silent, faults, values = {}, [], {}
        for pulse in self._pulses():
            beats, looks = self._silent.get(pulse, (-1, 0))
            looks = looks + 1 if pulse.is_busy and beats == pulse.beats else 0
            silent[pulse] = pulse.beats, looks
            values[pulse.name] = "busy" if pulse.is_busy else "waiting"
            if death := pulse.death:
                values[pulse.name] = "dead"
                faults.append(f"the thread of the {pulse.name} has ended ({death})")
            elif looks >= self.patience_s:
                values[pulse.name] = "stuck"
                faults.append(f"the thread of the {pulse.name} has been stuck for {looks} s")
        self._silent, self.values = silent, values
        self._faulty = self._faulty + 1 if faults else 0
        self.fault = "; ".join(faults)
        return self.fault

    @property
    def is_final(self) -> bool:
        """Whether something has been wrong for more than `FAREWELL_S` looks."""
        return self._faulty > FAREWELL_S
