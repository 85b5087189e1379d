"""Build and install the package with colcon or pip."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import find_packages, setup

NAME = "crossspec_ros"
SHARE = Path("share") / NAME
# colcon runs a link to this file, with nothing beside it.
ROOT = Path(__file__).resolve().parent

BOUNDS = {"ray[serve]": "==2.60.0", "rosbags": ">=0.11", "transformers": ">=5.20,<6"}
"""Versions of packages whose interfaces differ outside of these; of all others a host's own may stay."""
ROS = ["cv-bridge", "ros-kilted-common-interfaces", "ros-kilted-rclpy", "ros-kilted-rmw-fastrtps-cpp"]
"""Packages that the nodes need from PyPI where no ROS is installed, beside the messages in interfaces/."""

BY_PIP = any(argument.endswith("_wheel") for argument in sys.argv)
"""Whether pip builds, which puts the command on the path; ROS keeps executables in lib/crossspec_ros."""


def check_messages() -> None:
    """Stop colcon and the build of a ROS release where messages are missing, without which no node starts."""
    interfaces, distribution = ROOT / "interfaces", os.environ.get("ROS_DISTRO", "$ROS_DISTRO")
    remedies = {
        "crossspec_msgs": "colcon sees no package inside of another, so name the folders of both: "
        f"colcon build --base-paths . {interfaces}",
        "event_camera_msgs": f"sudo apt install ros-{distribution}-event-camera-msgs; where there is none, "
        f"add {interfaces / 'stand_ins' / 'event_camera_msgs'} to --base-paths",
    }
    missing = [name for name in remedies if find_spec(name) is None]
    if missing and {"install", "develop"} & set(sys.argv):
        raise SystemExit("\n".join(f"{NAME} needs {name}: {remedies[name]}" for name in missing))


def names(file: str) -> list[str]:
    """The packages that a file of requirements pins, without the pins, and without those for ROS alone."""
    lines = (ROOT / file).read_text().splitlines()
    pins = [line.partition("==") for line in lines if line and not line.startswith("#")]
    wanted = [(name, *pin.partition(";")[1:]) for name, _, pin in pins if name not in ROS]
    return [name + BOUNDS.get(name, "") + semicolon + marker for name, semicolon, marker in wanted]


def installed(*folders: str, files: str = "*") -> list[tuple[str, list[str]]]:
    """Such files below the folders, to be installed at the same place below share/crossspec_ros."""
    found = [path for folder in folders for path in sorted(Path(folder).rglob(files)) if path.is_file()]
    return [(str(SHARE / path.parent), [str(path)]) for path in found if "__pycache__" not in path.parts]


def environment() -> dict[str, str]:
    """The Python of an active virtual environment, for colcon may run in the system's.

    Executables are started by it then, also where nobody has activated the environment.
    """
    python = Path(os.environ.get("VIRTUAL_ENV", ""), "bin", "python3")
    return {"executable": str(python)} if "VIRTUAL_ENV" in os.environ and python.exists() else {}


check_messages()
setup(
    name=NAME,
    version="0.1.0",
    description="Captions of event + RGB streams on ROS 2 by cross-modal speculative decoding",
    license="Apache-2.0",
    maintainer="crossspec_ros maintainers",
    maintainer_email="crossspec-ros@example.org",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    python_requires=">=3.10",
    install_requires=names("requirements.txt"),
    extras_require={
        "ros": ROS,
        "codecs": names("requirements-codecs.txt"),
        "serve": names("requirements-serve.txt"),
        "real": names("requirements-real.txt"),
        "gguf": names("requirements-gguf.txt"),
        "camera": names("requirements-camera.txt"),
        "view": names("requirements-view.txt"),
        "test": [
            name for kind in ("dev", "codecs", "serve", "lab") for name in names(f"requirements-{kind}.txt")
        ],
    },
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (str(SHARE), ["package.xml", "plugin.xml", "README.md"]),
        *([] if BY_PIP else [("bin", ["resource/crossspec"])]),
        *installed("launch", "config", "rosbags", "models"),
        *installed("interfaces/crossspec_msgs/msg", files="*.msg"),
        *installed("docs", files="*.md"),
    ],
    entry_points={
        "console_scripts": [
            "crossspec = crossspec_ros.cli:main",
            "synchronizer = crossspec_ros.ros.executables:synchronizer",
            "captioner = crossspec_ros.ros.executables:captioner",
            "dsec_player = crossspec_ros.ros.executables:dsec_player",
            "dv_camera = crossspec_ros.ros.executables:dv_camera",
            "usb_camera = crossspec_ros.ros.executables:usb_camera",
        ],
        "pytest11": ["crossspec = crossspec_ros.regress.plugin"],
    },
    options={"build_scripts": environment()},
    zip_safe=False,
)
