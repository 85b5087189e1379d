"""Options of a server: the target, who may come, who drafts; for the command and for a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.errors import InputError
from crossspec_ros.files import read_small
from crossspec_ros.models.placement import DTYPES, ENGINES, TORCH, Placement, available

if TYPE_CHECKING:
    from crossspec_ros.models.base import VideoTarget
    from crossspec_ros.serving.fleet import Fleet


@dataclass(frozen=True)
class ServeOptions:
    """The options of `crossspec serve`, and the `args` of config/serve.yaml.

    `deployment` goes to Ray Serve as it is: num_replicas, autoscaling_config, ray_actor_options and the like.
    """

    target: str = ""
    dtype: str = DTYPES[0]
    engine: str = TORCH
    device: str = "auto"
    robots: int = 8
    proposers: str = "rehearsal,memory,event_draft"
    memories: str = ""
    fleet_memory: bool = True
    shared_passes: bool = True
    idle_s: float = 60.0
    tokens: str = ""
    threads: int = 1
    deployment: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> ServeOptions:
        """Raises InputError for a name that is none, or a value out of its range."""
        known = [each.name for each in fields(cls)]
        if wrong := [name for name in arguments if name not in known]:
            raise InputError(f"a server has no option '{wrong[0]}': it has {', '.join(known)}")
        # The command line needs neither this nor numpy.
        from crossspec_ros.drafting.proposer import REHEARSAL, USUAL

        options = cls(**arguments)
        names = options.proposer_names
        usable = [REHEARSAL, *USUAL]
        if wrong := [name for name in names if name not in usable]:
            raise InputError(
                f"'{wrong[0]}' drafts for no fleet: proposers are of {', '.join(usable)}, comma between"
            )
        if not 1 <= options.robots <= 64:
            raise InputError(f"room for {options.robots} robots is asked for: take 1 to 64 a replica")
        if options.engine not in ENGINES:
            raise InputError(f"engine is '{options.engine}': it must be one of {', '.join(ENGINES)}")
        if not options.idle_s > 0:
            raise InputError(f"idle_s is {options.idle_s}: give a number of seconds above 0")
        return options

    @property
    def proposer_names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.proposers.split(",") if name.strip())

    def load_target(self) -> VideoTarget:
        """The target; raises InputError for a checkpoint that is missing or does not fit."""
        from crossspec_ros.captioning.out_of_memory import enough_memory
        from crossspec_ros.models.loading import load_pair
        from crossspec_ros.models.placement import NO_DRAFT
        from crossspec_ros.paths import tiny_models

        placement = self.placement()
        with enough_memory(placement):
            return load_pair(tiny_models(), self.threads, placement, self.target, NO_DRAFT).target

    def fleet(self, target: VideoTarget) -> Fleet:
        """The fleet of this target, warm."""
        from crossspec_ros.captioning.assembly import placed_runner
        from crossspec_ros.models.hub import target_path
        from crossspec_ros.paths import tiny_models
        from crossspec_ros.serving.fleet import Fleet, FleetSettings

        settings = FleetSettings(
            self.robots,
            self.proposer_names,
            Path(self.memories) if self.memories else None,
            self.fleet_memory,
            self.shared_passes,
            self.idle_s,
        )
        folder = target_path(tiny_models(), self.target)
        runner = placed_runner(target, self.placement(), self.threads, [folder])
        fleet = Fleet(target, settings, runner)
        fleet.warm_up()
        return fleet

    def placement(self) -> Placement:
        """Placement of the target; raises InputError where this machine has none such."""
        return available(self.dtype, self.device, engine=self.engine, target=self.target)


def read_tokens(file: Path) -> dict[str, str]:
    """Each robot's token, of lines `ROBOT TOKEN`; raises InputError for a file that is not so."""
    try:
        lines = read_small(file).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the tokens '{file}' cannot be read ({error}): name a text file") from None
    rows = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    if not rows or not all(len(row) == 2 and len(row[1]) >= 16 for row in rows):
        raise InputError(
            f"'{file}' is no file of tokens: give each robot a line with its name and a token of at least 16 "
            f"characters"
        )
    tokens = {row[0]: row[1] for row in rows}
    if len(tokens) < len(rows) or len(set(tokens.values())) < len(rows):
        raise InputError(f"'{file}' has a robot or a token twice: give each robot one line and its own token")
    return tokens
