"""A run's environment: nobody hears it, it hears nobody, and the user's own settings stay."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from xml.etree import ElementTree

import pytest

from crossspec_ros import environment
from crossspec_ros.errors import InputError
from crossspec_ros.paths import share_dir

TALKER = """
import rclpy
from std_msgs.msg import String
rclpy.init()
node = rclpy.create_node("talker")
publisher = node.create_publisher(String, "isolation_test", 10)
timer = node.create_timer(0.05, lambda: publisher.publish(String(data="heard")))
print("up", flush=True)
try:
    rclpy.spin(node)
except KeyboardInterrupt:
    rclpy.try_shutdown()
"""

LISTENER = """
import time
import rclpy
from std_msgs.msg import String
rclpy.init()
node = rclpy.create_node("listener")
heard = []
node.create_subscription(String, "isolation_test", heard.append, 10)
end = time.monotonic() + float({seconds})
while not heard and time.monotonic() < end:
    rclpy.spin_once(node, timeout_sec=0.1)
print(len(heard))
"""


@contextmanager
def talking(ros):
    """A process with a node that talks in this environment, and the environment."""
    with subprocess.Popen(
        [sys.executable, "-c", TALKER], env=ros, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "up\n"
            yield process, ros
        finally:
            # Not killed: a participant that cannot end leaves its shared memory behind.
            process.send_signal(signal.SIGINT)


@pytest.fixture
def talker():
    """The environment of a node that talks, for as long as the test runs."""
    with talking(environment.ros_environment(isolated=True)) as (_, ros):
        yield ros


def listen(ros, seconds):
    command = [sys.executable, "-c", LISTENER.format(seconds=seconds)]
    return subprocess.run(command, env=ros, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def test_only_the_same_run_hears_a_node(talker):
    other = environment.ros_environment(isolated=True)
    assert other["ROS_DOMAIN_ID"] != talker["ROS_DOMAIN_ID"]
    assert listen(talker, seconds=20) == "1"
    assert listen(other, seconds=1) == "0"


def bound(pid):
    """(protocol, address) of every internet socket of a process that is bound."""
    own = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            own.add(os.readlink(descriptor))
    found = []
    for protocol in ("udp", "udp6", "tcp", "tcp6"):
        table = Path(f"/proc/{pid}/net/{protocol}")
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            words = line.split()
            if f"socket:[{words[9]}]" in own:
                # Words of 32 bits, as this machine has them in memory.
                raw = bytes.fromhex(words[1].partition(":")[0])
                words32 = struct.unpack(f">{len(raw) // 4}I", raw)
                found.append((protocol, ip_address(struct.pack(f"={len(words32)}I", *words32))))
    return found


OPEN = """<?xml version="1.0" encoding="UTF-8"?>
<profiles xmlns="http://www.eprosima.com">
  <participant profile_name="mine" is_default_profile="true">
    <rtps><useBuiltinTransports>true</useBuiltinTransports></rtps>
  </participant>
</profiles>
"""


@pytest.mark.parametrize(
    ("room", "before"),
    [
        (True, {}),
        (False, {"ROS_STATIC_PEERS": "192.0.2.1", "ROS_DISCOVERY_SERVER": "TCPv4:[192.0.2.1]:42100"}),
        # rmw_fastrtps still reads the old name.
        (True, {"FASTRTPS_DEFAULT_PROFILES_FILE": str(share_dir() / "config" / "fastdds.xml")}),
    ],
    ids=["profiles in the folder", "little room, peers and a server", "the user's profiles"],
)
def test_an_isolated_run_listens_to_this_host_alone(monkeypatch, tmp_path, room, before):
    if not before:
        (tmp_path / "DEFAULT_FASTDDS_PROFILES.xml").write_text(OPEN)
    monkeypatch.chdir(tmp_path)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    free = environment.PARTICIPANTS * environment.SEGMENT_BYTES if room else 1 << 26
    monkeypatch.setattr(environment, "_free_shared_memory", lambda: free)
    with talking(environment.ros_environment(isolated=True)) as (process, ros):
        sockets = bound(process.pid)
        assert sockets and [found for found in sockets if not found[1].is_loopback] == []
        assert listen(ros, seconds=20) == "1"


def test_sockets_of_a_run_that_is_not_isolated_are_seen(monkeypatch):
    """Or the test above could not fail."""
    for name in ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE", "ROS_LOCALHOST_ONLY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    with talking(environment.ros_environment()) as (process, _):
        assert ("udp", ip_address("0.0.0.0")) in bound(process.pid)


def test_the_profiles_are_the_same_but_for_what_isolation_needs():
    open_, isolated, small = (
        {
            (element.tag.partition("}")[2], (element.text or "").strip())
            for element in ElementTree.parse(share_dir() / "config" / f"{name}.xml").iter()
        }
        for name in ("fastdds", "fastdds_isolated", "fastdds_isolated_small")
    )
    assert open_ < isolated and isolated - small == {("segment_size", str(environment.SEGMENT_BYTES))}
    assert small < isolated and ("address", "127.0.0.1") in small


def test_a_domain_with_a_foreign_node_is_not_taken(talker, monkeypatch):
    domain = int(talker["ROS_DOMAIN_ID"])
    assert not environment._unused(domain)
    monkeypatch.setattr(environment, "DOMAINS", range(domain, domain + 1))
    with pytest.raises(InputError, match=f"all ROS domains {domain} to {domain} are in use"):
        environment.claim_domain()


def test_a_domain_is_claimed_once_on_this_host_and_freed_with_its_process(monkeypatch):
    code = "from crossspec_ros.environment import claim_domain; print(claim_domain(), flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        domain = int(process.stdout.readline())
        monkeypatch.setattr(environment, "DOMAINS", range(domain, domain + 1))
        with pytest.raises(InputError, match="in use"):
            environment.claim_domain()
        process.kill()
    assert environment.claim_domain() == domain


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("FASTDDS_DEFAULT_PROFILES_FILE", "/mine.xml")
    ros = environment.ros_environment()
    assert (ros["OMP_NUM_THREADS"], ros["FASTDDS_DEFAULT_PROFILES_FILE"]) == ("7", "/mine.xml")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 always looks in the working folder")
def test_no_module_comes_from_the_working_folder(tmp_path):
    (tmp_path / "yaml.py").write_text("raise SystemExit('of a stranger')")
    command = [sys.executable, "-m", "crossspec_ros.yaml_files"]
    subprocess.run(command, cwd=tmp_path, env=environment.ros_environment(), check=True)


def test_a_domain_set_by_the_user_gives_way_to_isolation_only(monkeypatch):
    monkeypatch.setenv("ROS_DOMAIN_ID", "0")
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")
    assert environment.ros_environment()["ROS_DOMAIN_ID"] == "0"
    ros = environment.ros_environment(isolated=True)
    assert int(ros["ROS_DOMAIN_ID"]) in environment.DOMAINS
    assert ros["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "SYSTEM_DEFAULT"
    monkeypatch.setenv("RMW_IMPLEMENTATION", "rmw_cyclonedds_cpp")
    ros = environment.ros_environment(isolated=True)
    assert ros["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "LOCALHOST"


@pytest.mark.parametrize(
    ("distribution", "profile", "local"),
    [("humble", "FASTRTPS_DEFAULT_PROFILES_FILE", "1"), ("jazzy", "FASTDDS_DEFAULT_PROFILES_FILE", "0")],
)
def test_each_distribution_gets_its_own_variables(monkeypatch, distribution, profile, local):
    for name in ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE", "ROS_LOCALHOST_ONLY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROS_DISTRO", distribution)
    ros = environment.ros_environment(isolated=True)
    assert [name for name in ros if name.endswith("_DEFAULT_PROFILES_FILE") and ros[name]] == [profile]
    assert ros.get("ROS_LOCALHOST_ONLY") == local


def test_the_profile_has_the_segment_that_is_looked_for_and_small_containers_go_without(monkeypatch):
    monkeypatch.delenv("FASTDDS_DEFAULT_PROFILES_FILE", raising=False)
    needed = environment.PARTICIPANTS * environment.SEGMENT_BYTES
    monkeypatch.setattr(environment, "_free_shared_memory", lambda: needed)
    profile = environment.transport_variables()["FASTDDS_DEFAULT_PROFILES_FILE"]
    assert ElementTree.parse(profile).findtext(".//{*}segment_size") == str(environment.SEGMENT_BYTES)
    monkeypatch.setattr(environment, "_free_shared_memory", lambda: needed - 1)
    assert "FASTDDS_DEFAULT_PROFILES_FILE" not in environment.transport_variables()


def other_python(folder):
    """A ROS of another Python, in the folders in which one is installed."""
    packages = folder / "lib" / "python3.8" / "site-packages"
    (packages / "rclpy").mkdir(parents=True)
    return packages


SHELLS = {
    "an RMW that is not installed": (
        "RMW_IMPLEMENTATION",
        lambda folder: "rmw_zenoh_cpp",
        "unset it to take",
    ),
    "another Python's ROS": ("PYTHONPATH", other_python, "names a ROS of Python 3.8"),
    "a home that is none": ("HOME", lambda folder: "/proc/nohome", "set ROS_LOG_DIR to a folder"),
    "a domain without ports": ("ROS_DOMAIN_ID", lambda folder: "300", "set a number from 0 to 232"),
    "a domain that is no number": ("ROS_DOMAIN_ID", lambda folder: "robot", "set a number from 0 to 232"),
    "no discovery": ("ROS_AUTOMATIC_DISCOVERY_RANGE", lambda folder: "OFF", "set it to LOCALHOST or SUBNET"),
}


@pytest.mark.parametrize(("name", "value", "sentence"), SHELLS.values(), ids=SHELLS)
def test_a_variable_that_keeps_ros_from_starting_is_named_with_a_remedy(tmp_path, name, value, sentence):
    shell = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    assert list(environment.ros_faults(shell)) == []
    shell[name] = str(value(tmp_path))
    (fault,) = environment.ros_faults(shell)
    assert (name in fault or name == "HOME") and sentence in fault and "\n" not in fault


def test_a_node_names_the_variable_before_rclpy_ends_its_process(tmp_path):
    shell = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "RMW_IMPLEMENTATION": "rmw_zenoh_cpp"}
    command = [sys.executable, "-m", "crossspec_ros.ros.synchronizer"]
    told = subprocess.run(command, env=shell, capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (2, f"crossspec: error: {next(environment.ros_faults(shell))}\n")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp"),
        ("ROS_DOMAIN_ID", "232"),
        ("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST"),
    ],
)
def test_a_variable_that_may_work_is_left_alone(tmp_path, name, value):
    shell = {"HOME": str(tmp_path), "AMENT_PREFIX_PATH": os.environ.get("AMENT_PREFIX_PATH", "")}
    assert list(environment.ros_faults(shell | {name: value})) == []


def test_a_discovery_server_that_may_listen_is_no_fault_and_a_node_does_not_ask():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        there = f"127.0.0.1:{server.getsockname()[1]}"
        for servers, told in (
            ("127.0.0.1:9;", "no discovery server listens at ROS_DISCOVERY_SERVER='127.0.0.1:9;': start it"),
            (f"127.0.0.1:9;{there}", ""),
            ("TCPv4:[127.0.0.1]:9", ""),
            ("", ""),
        ):
            fault = environment.server_fault({"ROS_DISCOVERY_SERVER": servers})
            assert fault.startswith(told) and bool(fault) == bool(told)
            assert list(environment.ros_faults({"ROS_DISCOVERY_SERVER": servers, "HOME": "/tmp"})) == []
