"""An isolated run stays on this host and in its own ROS domain; settings of the user stay."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from ipaddress import ip_address
from xml.etree import ElementTree

import psutil
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
import sys, time
import rclpy
from std_msgs.msg import String
rclpy.init()
node = rclpy.create_node("listener")
heard = []
node.create_subscription(String, "isolation_test", heard.append, 10)
end = time.monotonic() + float(sys.argv[1])
while not heard and time.monotonic() < end:
    rclpy.spin_once(node, timeout_sec=0.1)
print(len(heard) > 0)
"""
PROFILES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
OPEN_PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<profiles xmlns="http://www.eprosima.com">
  <participant profile_name="mine" is_default_profile="true">
    <rtps><useBuiltinTransports>true</useBuiltinTransports></rtps>
  </participant>
</profiles>
"""


@contextmanager
def talking(ros):
    """Run a talker in this environment and yield its process."""
    command = [sys.executable, "-c", TALKER]
    with subprocess.Popen(command, env=ros, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            # A killed participant leaves its shared memory behind.
            process.send_signal(signal.SIGINT)


def hears(ros, seconds):
    command = [sys.executable, "-c", LISTENER, str(seconds)]
    done = subprocess.run(command, env=ros, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip() == "True"


def addresses(process):
    """Return the addresses of the process's sockets."""
    return {ip_address(socket.laddr.ip) for socket in psutil.Process(process.pid).net_connections("inet")}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("has_room", "variables"),
    [
        (True, {}),
        (False, {"ROS_STATIC_PEERS": "192.0.2.1", "ROS_DISCOVERY_SERVER": "TCPv4:[192.0.2.1]:42100"}),
        (True, {"FASTRTPS_DEFAULT_PROFILES_FILE": str(share_dir() / "config" / "fastdds.xml")}),
    ],
    ids=["profile in the folder", "little shared memory and a server", "profile of the user"],
)
def test_isolated_run_stays_on_this_host(monkeypatch, tmp_path, has_room, variables):
    (tmp_path / "DEFAULT_FASTDDS_PROFILES.xml").write_text(OPEN_PROFILE)
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    free = environment.PARTICIPANTS * environment.SEGMENT_BYTES if has_room else 1 << 26
    monkeypatch.setattr(environment, "_free_shared_memory", lambda: free)
    ros, other = (environment.ros_environment(isolated=True) for _ in range(2))
    with talking(ros) as process:
        assert addresses(process) and all(address.is_loopback for address in addresses(process))
        assert hears(ros, 20) and not hears(other, 1)
        domain = int(ros["ROS_DOMAIN_ID"])
        monkeypatch.setattr(environment, "DOMAINS", range(domain, domain + 1))
        with pytest.raises(InputError):
            environment.claim_domain()


@pytest.mark.nightly
def test_other_runs_open_all_interfaces(monkeypatch):
    """Show that the test above can fail."""
    for name in (*PROFILES, "ROS_LOCALHOST_ONLY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    with talking(environment.ros_environment()) as process:
        assert ip_address("0.0.0.0") in addresses(process)


def test_domain_is_freed_with_its_process(monkeypatch):
    code = "from crossspec_ros.environment import claim_domain; print(claim_domain(), flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        domain = int(process.stdout.readline())
        monkeypatch.setattr(environment, "DOMAINS", range(domain, domain + 1))
        with pytest.raises(InputError):
            environment.claim_domain()
        process.kill()
    assert environment.claim_domain() == domain


def test_settings_of_the_user_stay(monkeypatch):
    own = {"OMP_NUM_THREADS": "7", "FASTDDS_DEFAULT_PROFILES_FILE": "/mine.xml", "ROS_DOMAIN_ID": "0"}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    assert own.items() <= environment.ros_environment().items()
    assert int(environment.ros_environment(isolated=True)["ROS_DOMAIN_ID"]) in environment.DOMAINS
    monkeypatch.setenv("RMW_IMPLEMENTATION", "rmw_cyclonedds_cpp")
    assert environment.ros_environment(isolated=True)["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "LOCALHOST"


@pytest.mark.parametrize(("distribution", "dds", "local"), [("humble", "RTPS", "1"), ("jazzy", "DDS", "0")])
def test_distributions_have_their_own_variables(monkeypatch, distribution, dds, local):
    for name in (*PROFILES, "ROS_LOCALHOST_ONLY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROS_DISTRO", distribution)
    ros = environment.ros_environment(isolated=True)
    files = [name for name in PROFILES if ros.get(name)]
    assert (files, ros["ROS_LOCALHOST_ONLY"]) == ([f"FAST{dds}_DEFAULT_PROFILES_FILE"], local)


def test_profiles_fit_the_shared_memory(monkeypatch):
    segments = {
        name: ElementTree.parse(share_dir() / "config" / f"{name}.xml").findtext(".//{*}segment_size")
        for name in ("fastdds", "fastdds_isolated", "fastdds_isolated_small")
    }
    size = str(environment.SEGMENT_BYTES)
    assert segments == {"fastdds": size, "fastdds_isolated": size, "fastdds_isolated_small": None}
    monkeypatch.delenv("FASTDDS_DEFAULT_PROFILES_FILE", raising=False)
    needed = environment.PARTICIPANTS * environment.SEGMENT_BYTES
    for free, is_used in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(environment, "_free_shared_memory", lambda free=free: free)
        assert ("FASTDDS_DEFAULT_PROFILES_FILE" in environment.transport_variables()) == is_used


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 always searches the working folder")
def test_working_folder_holds_no_modules(tmp_path):
    (tmp_path / "yaml.py").write_text("raise SystemExit('imported from the working folder')")
    command = [sys.executable, "-m", "crossspec_ros.captioning.replay_setup"]
    subprocess.run(command, cwd=tmp_path, env=environment.ros_environment(), check=True)
