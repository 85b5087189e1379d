"""Machines to choose a target for, by the memory that they are sold with, and what fits there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crossspec_ros.models.footprint import Footprint
from crossspec_ros.models.placement import DTYPES, Only, Placement

SYSTEM_BYTES = 2_500_000_000
"""Beside the models on a machine whose GPU and CPU share their memory: the system, the nodes, Python."""

ON_A_GPU = tuple(Placement(dtype, "cuda:0") for dtype in DTYPES)


@dataclass(frozen=True)
class Machine:
    """A GPU with so many GB, or one that shares them with the CPU, as on a Jetson."""

    memory_gb: int
    shared: bool

    def holds(self, size: int) -> bool:
        """Whether so many bytes of models fit."""
        # A card's GB are 7 % more than these: room for the screen and the driver.
        return size <= self.memory_gb * 10**9 - SYSTEM_BYTES * self.shared


MACHINES = tuple(Machine(size, shared) for shared in (False, True) for size in (8, 16, 24, 64))


def fitting(machine: Machine, footprints: Sequence[Footprint], only: Only = "") -> list[str]:
    """The dtypes, the largest first, of the footprints on a GPU that fit; of both models or of one."""
    return [
        found.placement.dtype for found in footprints if machine.holds(sum(found.by_device(only).values()))
    ]
