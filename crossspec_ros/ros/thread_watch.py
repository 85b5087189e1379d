"""Watches the threads of a node: one that is dead or stuck is an error, and then the end of the node.

A node that is up but mute helps nobody; one that ends is started again by launch or systemd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from crossspec_ros.ros.run import ThreadError
from crossspec_ros.telemetry.pulse import Pulse

PATIENCE_S = 60
"""How long a thread may be busy without a step; the captioner adds to it what its models need."""
FAREWELL_S = 3
"""How long the error stands in the diagnostics before the node ends."""


class ThreadWatch:
    """Looks at the pulses that `pulses` gives at the time, once a second.

    Looks are counted and not time, so that a process that was stopped for an hour is not taken for stuck.
    """

    def __init__(self, pulses: Callable[[], Iterable[Pulse]]) -> None:
        self._pulses = pulses
        self.patience_s = PATIENCE_S
        self._silent: dict[Pulse, tuple[int, int]] = {}
        self._faulty = 0

    def look(self) -> tuple[str, dict[str, str]]:
        """What is wrong, if anything, and for each thread what it does.

        Raises:
            ThreadError: something has been wrong for `FAREWELL_S` looks.
        """
        silent, faults, values = {}, [], {}
        for pulse in self._pulses():
            beats, looks = self._silent.get(pulse, (-1, 0))
            looks = looks + 1 if pulse.is_busy and beats == pulse.beats else 0
            silent[pulse] = pulse.beats, looks
            values[pulse.name] = "busy" if pulse.is_busy else "waiting"
            if pulse.death:
                values[pulse.name] = "dead"
                faults.append(f"the thread of the {pulse.name} has ended ({pulse.death})")
            elif looks >= self.patience_s:
                values[pulse.name] = "stuck"
                faults.append(f"the thread of the {pulse.name} has been stuck for {looks} s")
        self._silent = silent
        self._faulty = self._faulty + 1 if faults else 0
        fault = "; ".join(faults)
        if self._faulty > FAREWELL_S:
            raise ThreadError(f"{fault}: start the node again, and report it if it comes back")
        return fault, values
