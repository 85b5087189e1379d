"""The environment of a run: transport, allocator and, where asked for, a ROS domain of its own."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Mapping

from crossspec_ros.errors import InputError
from crossspec_ros.paths import share_dir

DOMAINS = range(1, 102)
"""Domain ids whose ports lie below the ephemeral ones on every platform, without the default domain 0."""

SEGMENT_BYTES = 64 << 20
"""Shared memory of one participant, as in config/fastdds.xml and config/fastdds_isolated.xml."""
PARTICIPANTS = 4
"""Participants of a run: its three nodes and one that listens."""

_claims: list[socket.socket] = []


def ros_environment(isolated: bool = False) -> dict[str, str]:
    """A copy of this process's environment with all that `transport_variables` and `isolation` add.

    Python looks for no modules in the working folder then, from 3.11 on: it may be that of a recording.
    """
    added = {"PYTHONSAFEPATH": "1"} | transport_variables() | (isolation() if isolated else {})
    return os.environ | added


def transport_variables() -> dict[str, str]:
    """Variables under which large messages travel fast and log lines have a time.

    What the user has set already is not among them.
    """
    now = "time" if _is_humble() else "date_time_with_ms"
    variables = {
        # Megabyte messages otherwise cost a page fault for each of their pages, each time.
        "MALLOC_MMAP_THRESHOLD_": str(256 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
        # Two models side by side on two cores: more threads a model only get in each other's way.
        "OMP_NUM_THREADS": "1",
        "RCUTILS_CONSOLE_OUTPUT_FORMAT": f"[{{severity}}] [{{{now}}}] {{name}}: {{message}}",
    }
    # Containers often have 64 MB in all; Fast DDS would then fail where its small default works.
    if _has_shared_memory() and _profiles_variable() not in os.environ:
        variables |= _profiles("fastdds.xml")
    return {name: value for name, value in variables.items() if name not in os.environ}


def isolation() -> dict[str, str]:
    """Variables that keep a run to this host and to a domain of its own, whatever the user has set."""
    variables = {"ROS_DOMAIN_ID": str(claim_domain()), "ROS_STATIC_PEERS": ""}
    if not _is_fast_dds(os.environ):
        return variables | {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    variables |= dict.fromkeys(_OPENING, "") | {"SKIP_DEFAULT_XML_FILE": "1"}
    name = "fastdds_isolated.xml" if _has_shared_memory() else "fastdds_isolated_small.xml"
    variables |= _profiles(name)
    # Told to keep to the host, rmw_fastrtps opens sockets on all interfaces beside those of the profile.
    variables["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "SYSTEM_DEFAULT"
    variables["ROS_LOCALHOST_ONLY"] = "1" if _is_humble() else "0"
    return variables


_FAST_DDS = "rmw_fastrtps"
_OPENING = (
    "FASTRTPS_DEFAULT_PROFILES_FILE",
    "FASTDDS_DEFAULT_PROFILES_FILE",
    "FASTDDS_ENVIRONMENT_FILE",
    "ROS_DISCOVERY_SERVER",
    "ROS2_EASY_MODE",
)
"""Set by the user, each of these can make participants open more than our profile says; empty, none does."""


def _is_fast_dds(environment: Mapping[str, str]) -> bool:
    return environment.get("RMW_IMPLEMENTATION", _FAST_DDS).startswith(_FAST_DDS)


def _is_humble() -> bool:
    return os.environ.get("ROS_DISTRO") == "humble"


def _profiles(name: str) -> dict[str, str]:
    """With the variable without which rmw_fastrtps takes how queues keep memory from nowhere but itself."""
    file = str(share_dir() / "config" / name)
    return {_profiles_variable(): file, "RMW_FASTRTPS_USE_QOS_FROM_XML": "1"}


def _profiles_variable() -> str:
    return "FASTRTPS_DEFAULT_PROFILES_FILE" if _is_humble() else "FASTDDS_DEFAULT_PROFILES_FILE"


def _has_shared_memory() -> bool:
    return _free_shared_memory() >= PARTICIPANTS * SEGMENT_BYTES


def claim_domain() -> int:
    """A ROS domain id in which nothing runs on this host; no other caller gets it while this process lives.

    The claim is an abstract Unix socket: the kernel drops it with the process, however that ends, and
    containers that share the host's network, and so its domains, share it too; a lock file they would not.
    Raises InputError when every domain is taken.
    """
    for domain in _candidates():
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0crossspec_ros/domain/{domain}")
        except OSError:
            claim.close()
            continue
        if _unused(domain):
            _claims.append(claim)
            return domain
        claim.close()
    raise InputError(
        f"all ROS domains {DOMAINS[0]} to {DOMAINS[-1]} are in use: end another run on this host"
    )


def _candidates() -> Iterator[int]:
    """Every domain once; runs that follow each other start apart and meet no stragglers of the last one."""
    start = os.getpid() % len(DOMAINS)
    yield from DOMAINS[start:]
    yield from DOMAINS[:start]


def _unused(domain: int) -> bool:
    """Whether no DDS participant of this host listens in the domain.

    Its ports (RTPS 2.5, 9.6.2.3): 7400 + 250 * domain for discovery by multicast, which a participant that
    keeps to this host lacks, and 10 + 2 * id above that for the participant of that id, which each has.
    """
    first = 7400 + 250 * domain
    for port in (first, *range(first + 10, first + 30, 2)):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True


def _free_shared_memory() -> int:
    """Bytes; plenty where it is not a file system of its own."""
    return shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else SEGMENT_BYTES * PARTICIPANTS
