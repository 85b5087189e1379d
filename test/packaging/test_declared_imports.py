"""Whatever is imported, lazily too, is named in requirements and in package.xml."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
ROS = {
    "ament_index_python": "ament_index_python",
    "builtin_interfaces": "builtin_interfaces",
    "launch": "launch",
    "launch_ros": "launch_ros",
    "rcl_interfaces": "rcl_interfaces",
    "rclpy": "rclpy",
}
"""Imports from ROS, beside messages, and their keys in package.xml; the set-up has them from ROS's wheels."""
DESKTOP = {"python_qt_binding", "rqt_gui_py"}
"""Of the rqt plugin alone; package.xml says why it does not name them."""
OPTIONAL = {"bond"}
"""Imported where somebody has installed it, and done without elsewhere."""
DISTRIBUTIONS = {
    "PIL": "pillow",
    "backports": "backports-zstd",
    "cv2": "opencv-python-headless",
    "google": "protobuf",
    "grpc": "grpcio",
    "llama_cpp": "llama-cpp-python",
    "rerun": "rerun-sdk",
    "yaml": "pyyaml",
}
"""Of imports whose package has another name."""
PYTEST_PLUGIN = "crossspec_ros/regress/plugin.py"
NEWER_PYTHON = {"compression", "tomllib"}
"""Of the standard library, but not of every Python that runs the tests."""
SYSTEM = {
    "grpcio": "python3-grpcio",
    "h5py": "python3-h5py",
    "hypothesis": "python3-hypothesis",
    "jinja2": "python3-jinja2",
    "matplotlib": "python3-matplotlib",
    "numba": "python3-numba",
    "numpy": "python3-numpy",
    "opencv-python-headless": "python3-opencv",
    "packaging": "python3-packaging",
    "pillow": "python3-pil",
    "protobuf": "python3-protobuf",
    "psutil": "python3-psutil",
    "pytest": "python3-pytest",
    "pyyaml": "python3-yaml",
    "rich": "python3-rich",
    "scipy": "python3-scipy",
    "setuptools": "python3-setuptools",
    "torch": "python3-torch",
    "typing-extensions": "python3-typing-extensions",
}
"""Keys of rosdep for what requirements pin."""


EXTRAS = {
    "crossspec_ros/models/llama_library.py": ("-gguf",),
    "crossspec_ros/models/llama_projector.py": ("-gguf",),
    "crossspec_ros/models/gguf.py": ("-gguf",),
    "crossspec_ros/models/gguf_facts.py": ("-gguf",),
    "crossspec_ros/models/gguf_header.py": ("-gguf",),
    "crossspec_ros/models/gguf_file.py": ("-gguf",),
    "crossspec_ros/captioning/rerun_log.py": ("-view",),
    "crossspec_ros/serving": ("-serve",),
    "crossspec_ros/regress/page.py": ("-lab",),
    "crossspec_ros/telemetry/timeline.py": ("-lab",),
    "lab": ("-lab", "-dev", "-real", "-gguf"),
    "scripts": ("-dev",),
    "conftest.py": ("-dev",),
    "test": ("-serve", "-lab", "-dev", "-gguf"),
}
"""Folders that may need more than what is in requirements.txt."""


@cache
def imports(folder: str) -> frozenset[tuple[str, str]]:
    """Packages from elsewhere that files below the folder import, wherever in them, each with the file."""
    own = {path.stem for part in ("scripts", "test", "lab") for path in (ROOT / part).rglob("*.py")}
    known = sys.stdlib_module_names | NEWER_PYTHON | own | {"crossspec_ros", "crossspec_lab", "conftest"}
    found: set[tuple[str, str]] = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            packages = {name.partition(".")[0] for name in names} - known
            found |= {(package, path.relative_to(ROOT).as_posix()) for package in packages}
    return frozenset(found)


def distribution(name: str) -> str:
    """Which package of an index an import is from."""
    return canonical(DISTRIBUTIONS.get(name, name))


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def pinned(kind: str) -> frozenset[str]:
    lines = (ROOT / f"requirements{kind}.txt").read_text().splitlines()
    return frozenset(canonical(Requirement(line).name) for line in lines if line and line[0] != "#")


def is_ros(name: str) -> bool:
    return name in ROS or name.endswith(("_msgs", "_srvs", "_interfaces")) or name in DESKTOP | OPTIONAL


@pytest.mark.parametrize("folder", ["crossspec_ros", "launch", "scripts", "test", "lab"])
def test_every_import_is_pinned(folder: str) -> None:
    missing = []
    for name, path in sorted(imports(folder)):
        further = [kinds for part, kinds in EXTRAS.items() if path.startswith(part)]
        allowed = pinned("").union(*(pinned(kind) for kinds in further for kind in kinds))
        # pytest loads the plugin itself.
        if not is_ros(name) and distribution(name) not in allowed and path != PYTEST_PLUGIN:
            missing.append(f"{path} imports {name}")
    assert missing == []


def test_every_import_is_in_package_xml() -> None:
    manifest = ElementTree.parse(ROOT / "package.xml")
    keys = {element.text for element in manifest.iter() if element.tag.endswith("depend")}
    comments = " ".join(re.findall(r"<!--(.*?)-->", (ROOT / "package.xml").read_text(), re.DOTALL))
    named = {canonical(word) for word in re.findall(r"[\w.-]*\w", comments)}
    missing = []
    for name, path in sorted(imports("crossspec_ros") | imports("launch")):
        package = distribution(name)
        if is_ros(name):
            is_there = name in OPTIONAL or ROS.get(name, name) in keys or package in named
        else:
            is_there = SYSTEM.get(package) in keys or package in named
        if not is_there:
            missing.append(f"{path} imports {name}")
    assert missing == []


UNNAMED = {
    "accelerate": "transformers places weights with it",
    "bitsandbytes": "transformers quantizes with it",
    "cv-bridge": "the rqt plugin's and the tests' cv_bridge, a ROS package",
    "setuptools": "colcon builds with it",
}
"""Pinned, though nothing here imports it, and why."""


def test_every_pin_is_imported_or_has_a_reason_and_is_in_package_xml() -> None:
    imported = {distribution(name) for name, _ in imports("crossspec_ros") | imports("launch")}
    assert sorted(pinned("") - imported) == sorted(UNNAMED)
    text = (ROOT / "package.xml").read_text()
    named = {canonical(word) for word in re.findall(r"[\w.-]*\w", text)}
    system = {canonical(key): name for key, name in SYSTEM.items()}
    assert [pin for pin in sorted(pinned("")) if system.get(pin, pin) not in named] == []


def test_lazy_imports_and_those_of_a_subpackage_are_seen() -> None:
    found = {name for name, _ in imports("crossspec_ros")}
    assert {"huggingface_hub", "google", "ray", "rclpy", "torch"} <= found
    assert not {"json", "crossspec_ros"} & found
