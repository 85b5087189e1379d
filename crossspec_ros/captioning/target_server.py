"""Server of a target on another host: its address by the captioner's parameters, and what it takes."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from crossspec_ros.errors import InputError
from crossspec_ros.files import read_small
from crossspec_ros.models.base import InputSpec
from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.windows.grid import WindowGrid

if TYPE_CHECKING:
    from crossspec_ros.engine.remote import RemoteEngine

_CONNECT_S = 15.0
"""Within which the server must answer when the node starts."""


def is_remote(target: str) -> bool:
    """Whether a target is named by the address of its server."""
    return "://" in target


def connected_engine(settings: CaptionerSettings) -> RemoteEngine:
    """An engine that is connected to these parameters' server; raises InputError where that is not reached,
    for an address or files that are none, and without the packages for it."""
    try:
        from crossspec_ros.engine.link import Address
        from crossspec_ros.engine.remote import RemoteEngine
    except ImportError as error:
        raise InputError(f"a target on another host needs the package grpcio ({error}): install it") from None

    token = ""
    if settings.link_token_file:
        try:
            token = read_small(Path(settings.link_token_file)).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"the token '{settings.link_token_file}' cannot be read ({error}): name the file that has it"
            ) from None
    robot = settings.link_robot or socket.gethostname()
    phase_ns = WindowGrid.at(settings.window_phase_s).phase_ns
    address = Address(settings.target, robot, token, settings.link_ca_file, phase_ns=phase_ns)
    return RemoteEngine(address, settings.link_timeout_s, _CONNECT_S)


def remote_spec(settings: CaptionerSettings) -> InputSpec:
    """Spec of the target on its server; raises InputError where that is not reached."""
    from crossspec_ros.engine.remote import RemoteTarget

    engine = connected_engine(settings)
    try:
        return RemoteTarget(settings.target, engine.link.welcome).spec
    finally:
        engine.close()
