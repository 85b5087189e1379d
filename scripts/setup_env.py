"""Set up the virtual environment of the Makefile. Any python3 runs this file; it needs no other package.

`setup_env.py robot kilted` installs what a robot needs; `all` in place of `robot` adds the server, the
laboratory and the tools. `jazzy` takes the wheels of ROS 2 Jazzy, into .venv-jazzy. Each step leaves a stamp
with a hash of its inputs and of the steps before it, so that a second run skips the finished steps.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WHEELS = sys.argv[2] if __name__ == "__main__" else "kilted"
VENV = ROOT / (".venv" if WHEELS == "kilted" else f".venv-{WHEELS}")
PYTHON = VENV / "bin" / "python"
LOG = VENV / "setup.log"
ROBOT, REST, ROS, TORCH_CPU, NUMPY1 = (
    ROOT / "locks" / f"{name}.txt" for name in ("robot", "rest", WHEELS, "torch-cpu", "numpy1")
)
TORCH = re.compile("torch|triton|(nvidia|cuda)-.*")
"""torch and its packages for NVIDIA GPUs."""
OWNED_BY_ROS = re.compile("cv-bridge|numpy|opencv-python-headless")
"""Packages that a ROS installation brings, compiled to fit together."""
BUILD_MACHINE = re.compile(
    r"/opt/python/[\w-]+/(lib/python3\.\d+/site-packages/numpy/_core/include|include/python3\.\d+)"
)
"""Paths in the CMake files of ROS's wheels."""

Step = tuple[str, Sequence[str | Path], Callable[[], object]]
"""A name, the inputs and the action."""


class SetupError(Exception):
    """A failed step, with the reason and the remedy."""


def steps(everything: bool, sourced: str) -> list[Step]:
    """Return the steps in order; `sourced` is the ROS distribution of the machine, or empty."""
    gpu = shutil.which("nvidia-smi") or ""
    messages = sorted(path for path in (ROOT / "interfaces").rglob("*") if path.is_file())
    missing = stand_ins(os.environ.get("AMENT_PREFIX_PATH", "") if sourced else "")
    basis = [sys.version, str(ROOT), sourced, *map(str, missing)]
    plan: list[Step] = [
        ("venv", basis, lambda: make_venv(sourced)),
        ("torch", [part(ROBOT, TORCH.fullmatch), TORCH_CPU, gpu], lambda: install_torch(gpu)),
        ("robot", [ROBOT, NUMPY1], lambda: install_packages(ROBOT, sourced)),
    ]
    if not sourced:
        plan += [("ros", [ROS], install_ros)]
    plan += [
        ("interfaces", messages, lambda: build_interfaces(sourced, missing)),
        ("crossspec_ros", [ROOT / "setup.py", ROOT / "setup.cfg"], lambda: install_source(ROOT)),
    ]
    if everything:
        lab = ROOT / "lab"
        plan += [
            ("rest", [REST], lambda: install_packages(REST, sourced)),
            ("laboratory", [lab / "pyproject.toml"], lambda: install_source(lab)),
        ]
    return plan


def run_steps(plan: Iterable[Step], stamps: Path) -> None:
    """Run each step whose stamp does not match its inputs and the steps before it."""
    key = hashlib.sha256()
    for name, inputs, action in plan:
        for item in (name, *inputs):
            key.update((item.read_bytes() if isinstance(item, Path) else item.encode()) + b"\0")
        stamp = stamps / name
        if not stamp.is_file() or stamp.read_text() != key.hexdigest():
            print(f"crossspec: set-up of {name} (log: {LOG})", flush=True)
            stamp.unlink(missing_ok=True)
            action()
            stamps.mkdir(parents=True, exist_ok=True)
            stamp.write_text(key.hexdigest())


def make_venv(sourced: str) -> None:
    """Create the environment, on top of the machine's packages if its ROS is used."""
    if not (3, 10) <= sys.version_info[:2] <= ((3, 99) if sourced else (3, 13)):
        raise SetupError("Python 3.10 to 3.13 is needed: name one with make PYTHON=python3.12")
    has_headers = Path(sysconfig.get_path("include"), "Python.h").is_file()
    has_compiler = shutil.which(os.environ.get("CXX", "c++"))
    if not (has_headers and has_compiler and importlib.util.find_spec("ensurepip")):
        apt = "sudo apt install g++ make python3-dev python3-venv"
        raise SetupError(f"Python's headers, its venv module or a C++ compiler is missing: {apt}")
    if VENV.is_symlink():
        raise SetupError(f"{VENV} is a link and its target would be emptied: remove the link")
    shutil.rmtree(VENV, ignore_errors=True)
    VENV.mkdir()
    run(sys.executable, "-m", "venv", *(["--system-site-packages"] if sourced else []), VENV)
    # A workspace around the repository must not build the packages in here.
    (VENV / "COLCON_IGNORE").touch()


def install_torch(gpu: str) -> None:
    """Install the CPU build if there is no NVIDIA GPU and the package index has one, else the full build."""
    lock = TORCH_CPU.read_text()
    pin = "torch" + lock.rpartition("\ntorch")[2].split()[0]
    try:
        if gpu:
            raise SetupError("the full build is needed")
        install(lock)
        if "already satisfied" not in pip("install", "--no-compile", "--no-deps", pin):
            print(
                f"crossspec: installed {pin} unchecked: the lock has no hash of it for this Python",
                flush=True,
            )
    except SetupError as error:
        if "DO NOT MATCH THE HASHES" in str(error):
            raise
        install(part(ROBOT, TORCH.fullmatch))


def install_packages(lock: Path, sourced: str) -> None:
    """Install the packages of a lock except torch; if ROS is sourced, also except its own packages."""
    is_owned = OWNED_BY_ROS.fullmatch if sourced else lambda name: None
    packages = part(lock, lambda name: not (TORCH.fullmatch(name) or is_owned(name)))
    # ROS's extension modules load only with the major version of numpy that they were compiled for.
    if sourced and evaluate("__import__('numpy').__version__").startswith("1."):
        packages += NUMPY1.read_text()
    install(packages)


def install_ros() -> None:
    """Install ROS from PyPI and replace the paths of its build machine in its CMake files."""
    # The setuptools of the step before builds packages without a wheel; pip would fetch an unchecked one.
    install(ROS.read_text(), "--no-build-isolation")
    include = evaluate("__import__('sysconfig').get_path('include')")
    numpy = evaluate("__import__('numpy').get_include()")
    for path in (VENV / "share").rglob("*.cmake"):
        text = path.read_text()
        moved = BUILD_MACHINE.sub(lambda found: numpy if found[1].startswith("lib/") else include, text)
        if moved != text:
            path.write_text(moved)


def stand_ins(prefixes: str) -> list[Path]:
    """Return the message packages of others that none of these prefixes of ROS has."""
    shares = [Path(one, "share") for one in prefixes.split(os.pathsep) if one and Path(one) != VENV]
    folders = sorted(path.parent for path in (ROOT / "interfaces" / "stand_ins").glob("*/package.xml"))
    return [folder for folder in folders if not any((share / folder.name).is_dir() for share in shares)]


def build_interfaces(sourced: str, missing: Sequence[Path]) -> None:
    """Build the message packages with colcon into the environment, so that nothing has to be sourced."""
    variables = {"PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    if not sourced:
        variables |= {"AMENT_PREFIX_PATH": str(VENV), "CMAKE_PREFIX_PATH": str(VENV)}
    colcon = shutil.which("colcon", path=variables["PATH"])
    if colcon is None:
        raise SetupError("colcon is missing: sudo apt install python3-colcon-common-extensions")
    build = VENV / "build"
    site = Path(evaluate("__import__('sysconfig').get_path('purelib')")).relative_to(VENV)
    command: list[str | Path] = [colcon, "--log-base", build / "log", "build", "--merge-install"]
    command += ["--build-base", build, "--install-base", VENV, "--base-paths", ROOT / "interfaces", *missing]
    command += ["--event-handlers", "console_direct+"]
    command += ["--cmake-args", f"-DPython3_EXECUTABLE={PYTHON}", f"-DPYTHON_INSTALL_DIR={site}"]
    shutil.rmtree(build, ignore_errors=True)
    run(*command, **variables)
    shutil.rmtree(build)


def install_source(folder: Path) -> None:
    """Install a package that runs from the source tree."""
    pip("install", "--no-deps", "--no-build-isolation", "--use-pep517", "-e", str(folder))


def part(lock: Path, is_wanted: Callable[[str], object]) -> str:
    """Return the packages of a lock whose names are wanted, with their hashes."""
    packages = re.split(r"^(?=\w)", lock.read_text(), flags=re.MULTILINE)[1:]
    return "".join(package for package in packages if is_wanted(package.partition("==")[0]))


def install(locked: str, *options: str) -> None:
    """Install locked packages; pip refuses files with other hashes."""
    file = VENV / "locked.txt"
    file.write_text(locked)
    # A lock names all dependencies. Python compiles a module at its first import, so pip compiles none.
    pip("install", "--no-compile", "--require-hashes", "--no-deps", *options, "-r", str(file))


def pip(*arguments: str) -> str:
    """Return the output of the environment's pip."""
    return run(PYTHON, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments)


def evaluate(expression: str) -> str:
    """Return the value of an expression in the environment's Python."""
    return run(PYTHON, "-c", f"print({expression})").strip()


def run(*command: str | Path, **variables: str) -> str:
    """Return the output of a command and log it; raises SetupError with its last lines if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with LOG.open("a") as log:
        log.write(f"$ {' '.join(words)}\n{done.stdout}")
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise SetupError(f"{Path(words[0]).name} failed; run make again to go on from here\n{tail}")
    return done.stdout


def main() -> int:
    """Run the steps that are due; returns 1 with one sentence if one fails."""
    if WHEELS not in ("kilted", "jazzy"):
        print(f"crossspec: there are wheels of kilted and jazzy, not of {WHEELS}", file=sys.stderr)
        return 1
    sourced = os.environ.get("ROS_DISTRO", "") if os.environ.get("AMENT_PREFIX_PATH") else ""
    # `make demo` and `make test` must not write one environment at once.
    # A lock on NFS needs a file that is open for writing.
    with Path(__file__).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            run_steps(steps(sys.argv[1] == "all", sourced), VENV / "stamps")
        except SetupError as error:
            print(f"crossspec: set-up stopped: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
