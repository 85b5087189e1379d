"""Load target, fleet and tokens of a server from its settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from crossspec_ros.errors import InputError
from crossspec_ros.files import read_small
from crossspec_ros.models.placement import Placement, available
from crossspec_ros.settings import NO_DRAFT, ServeSettings

if TYPE_CHECKING:
    from crossspec_ros.models.base import VideoTarget
    from crossspec_ros.serving.fleet import Fleet


def server_placement(settings: ServeSettings) -> Placement:
    """Return the placement of the target. Raises InputError if this machine does not support it."""
    return available(
        settings.models_dtype, settings.models_device, engine=settings.models_engine, target=settings.target
    )


def load_target(settings: ServeSettings) -> VideoTarget:
    """Load the target. Raises InputError for a missing or damaged checkpoint, and without enough memory."""
    from crossspec_ros.captioning.load_decoder import enough_memory
    from crossspec_ros.models.loading import load_pair
    from crossspec_ros.paths import tiny_models

    placement = server_placement(settings)
    with enough_memory(placement):
        return load_pair(tiny_models(), settings.threads, placement, settings.target, NO_DRAFT).target


def load_fleet(settings: ServeSettings, target: VideoTarget) -> Fleet:
    """Return the warmed-up fleet of this target."""
    from crossspec_ros.captioning.load_decoder import placed_runner
    from crossspec_ros.models.hub import target_path
    from crossspec_ros.paths import tiny_models
    from crossspec_ros.serving.fleet import Fleet

    folder = target_path(tiny_models(), settings.target)
    runner = placed_runner(target, server_placement(settings), settings.threads, folder)
    fleet = Fleet(target, settings, runner)
    fleet.warm_up()
    return fleet


def read_tokens(file: Path) -> dict[str, str]:
    """Return the token of each robot, from lines `ROBOT TOKEN`. Raises InputError for an invalid file."""
    try:
        lines = read_small(file).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the tokens '{file}' cannot be read ({error}): name a text file") from None
    rows = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    if not rows or not all(len(row) == 2 and len(row[1]) >= 16 for row in rows):
        raise InputError(
            f"'{file}' is not a file of tokens: write a line per robot with its name and a token of at least "
            f"16 characters"
        )
    tokens = {row[0]: row[1] for row in rows}
    if len(tokens) < len(rows) or len(set(tokens.values())) < len(rows):
        raise InputError(f"'{file}' has a robot or a token twice: write one line and one token per robot")
    return tokens
