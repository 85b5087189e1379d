"""Environment variables of the nodes: transport, allocator, and a separate ROS domain if isolated."""

from __future__ import annotations

import os
import random
import shutil
import socket

from crossspec_ros.errors import InputError
from crossspec_ros.paths import share_dir

DOMAINS = range(1, 101)
"""Domains whose ports lie below the ephemeral ports on every platform, without the default domain 0."""
SEGMENT_BYTES = 64 << 20
"""Shared memory of one participant, as in config/fastdds.xml and config/fastdds_isolated.xml."""
PARTICIPANTS = 4
"""Participants of a run: its three nodes and one listener."""
_USER_PROFILES = (
    "FASTRTPS_DEFAULT_PROFILES_FILE",
    "FASTDDS_DEFAULT_PROFILES_FILE",
    "FASTDDS_ENVIRONMENT_FILE",
    "ROS_DISCOVERY_SERVER",
    "ROS2_EASY_MODE",
)
"""Variables that could open more than the profile of an isolated run allows."""
_claims: list[socket.socket] = []


def ros_environment(isolated: bool = False) -> dict[str, str]:
    """Return the environment of this process with the variables that nodes need.

    PYTHONSAFEPATH keeps Python 3.11 and newer from importing modules out of the working folder.
    """
    return os.environ | {"PYTHONSAFEPATH": "1"} | transport_variables() | (isolation() if isolated else {})


def transport_variables() -> dict[str, str]:
    """Return variables for fast large messages and time stamps in logs. The user's own values stay."""
    now = "time" if _is_humble() else "date_time_with_ms"
    variables = {
        # By default, each message of a megabyte causes a page fault per page.
        "MALLOC_MMAP_THRESHOLD_": str(256 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
        # Two models run side by side on two cores; more threads per model only compete.
        "OMP_NUM_THREADS": "1",
        "RCUTILS_CONSOLE_OUTPUT_FORMAT": f"[{{severity}}] [{{{now}}}] {{name}}: {{message}}",
    }
    # Containers often have 64 MB of shared memory. Fast DDS fails with large segments there.
    if _has_shared_memory() and _profile_variable() not in os.environ:
        variables |= _profile("fastdds.xml")
    return {name: value for name, value in variables.items() if name not in os.environ}


def isolation() -> dict[str, str]:
    """Return variables that keep a run to this host and to a separate ROS domain."""
    variables = {"ROS_DOMAIN_ID": str(claim_domain()), "ROS_STATIC_PEERS": ""}
    if not os.environ.get("RMW_IMPLEMENTATION", "rmw_fastrtps").startswith("rmw_fastrtps"):
        return variables | {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    name = "fastdds_isolated.xml" if _has_shared_memory() else "fastdds_isolated_small.xml"
    variables |= dict.fromkeys(_USER_PROFILES, "") | {"SKIP_DEFAULT_XML_FILE": "1"} | _profile(name)
    # With LOCALHOST, rmw_fastrtps also opens sockets on all interfaces.
    variables["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "SYSTEM_DEFAULT"
    return variables | {"ROS_LOCALHOST_ONLY": "1" if _is_humble() else "0"}


def _is_humble() -> bool:
    return os.environ.get("ROS_DISTRO") == "humble"


def _profile_variable() -> str:
    return "FASTRTPS_DEFAULT_PROFILES_FILE" if _is_humble() else "FASTDDS_DEFAULT_PROFILES_FILE"


def _profile(name: str) -> dict[str, str]:
    file = str(share_dir() / "config" / name)
    # Without the second variable, rmw_fastrtps ignores the history memory policy of the profile.
    return {_profile_variable(): file, "RMW_FASTRTPS_USE_QOS_FROM_XML": "1"}


def _has_shared_memory() -> bool:
    return _free_shared_memory() >= PARTICIPANTS * SEGMENT_BYTES


def _free_shared_memory() -> int:
    """Return the free bytes of /dev/shm, or enough bytes on a system without it."""
    return shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else PARTICIPANTS * SEGMENT_BYTES


def claim_domain() -> int:
    """Return a ROS domain that no process on this host uses. The claim ends with this process.

    The ports of a domain (RTPS 2.5, 9.6.2.3) begin at 7400 + 250 * domain. The first one serves multicast
    discovery. Participants use the ports from the tenth on. The claim binds the last one, which no
    participant uses. Raises InputError if every domain is in use.
    """
    for domain in random.sample(DOMAINS, len(DOMAINS)):
        first = 7400 + 250 * domain
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            claim.bind(("127.0.0.1", first + 249))
            for port in (first, *range(first + 10, first + 30, 2)):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                    probe.bind(("", port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return domain
    raise InputError(
        f"all ROS domains {DOMAINS[0]} to {DOMAINS[-1]} are in use: end another run on this host"
    )
