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

LOCKS = ROOT / "locks"
"""Locks made by `make lock` of the requirements: all packages that these lead to, with hashes of files."""
TORCH = re.compile("torch|triton|(nvidia|cuda)-.*")
"""torch, and what it brings for NVIDIA GPUs."""
OWNED_BY_ROS = re.compile("cv-bridge|numpy|opencv-python-headless")
"""Packages that a ROS installation brings itself, compiled to fit together."""


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
        print(f"crossspec: set-up {number}/{len(due)}: {step.what} (log: {LOG})", flush=True)
        stamp.unlink(missing_ok=True)
        step.run()
        stamps.mkdir(parents=True, exist_ok=True)
        stamp.write_text(key.hexdigest())


def steps(ros: str) -> list[Step]:
    """The steps for a machine with the ROS distribution `ros`, or for one without ROS when it is empty."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    packages, torch_cpu = LOCKS / "python.txt", LOCKS / "torch-cpu.txt"
    full_torch = part(packages, TORCH.fullmatch)
    gpu = "" if shutil.which("nvidia-smi") is None else "gpu"
    interfaces = sorted(path for path in (ROOT / "interfaces").rglob("*") if path.is_file())
    lacking = stand_ins(os.environ.get("AMENT_PREFIX_PATH", "") if ros else "")
    # Messages that ROS has since would stay hidden behind those that were built here.
    basis = [python, str(ROOT), ros, *(path.name for path in lacking if ros)]
    plan = [
        Step("venv", f"{VENV.name} with Python {python}", basis, lambda: make_venv(ros)),
        # First, so that nothing that needs torch pulls in another build of it.
        Step(
            "torch",
            "torch, the largest download",
            [full_torch, torch_cpu, gpu],
            lambda: install_torch(full_torch, torch_cpu, gpu),
        ),
        Step(
            "python",
            "Python packages that run, and those for tests, server and experiments",
            [packages, LOCKS / "numpy1.txt"],
            lambda: install_packages(packages, ros),
        ),
    ]
    if not ros:
        wheels = LOCKS / f"{WHEELS}.txt"
        what = f"ROS 2 {WHEELS.title()} from wheels"
        plan.append(Step("ros", what, [wheels], lambda: install_ros(wheels)))
    return [
        *plan,
        Step("interfaces", "message types", interfaces, lambda: build_interfaces(ros, lacking)),
        Step(
            "project",
            "crossspec_ros itself, and its laboratory",
            [ROOT / "setup.py", ROOT / "setup.cfg", ROOT / "lab" / "pyproject.toml"],
            install_project,
        ),
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


def install_torch(full: str, cpu: Path, gpu: str) -> None:
    """The CPU build where there is no NVIDIA GPU and the package index has one, else the index's own."""
    if gpu or not has_torch_for_cpu(cpu):
        install(full)


def has_torch_for_cpu(lock: Path) -> bool:
    """Whether the package index has the CPU build, which is installed then."""
    try:
        install(part(lock))
        pin = "torch" + lock.read_text().rpartition("\ntorch")[2].split()[0]
        if "already satisfied" not in pip("install", "--no-deps", pin):
            print(f"crossspec: took {pin} unchecked, no hash is known for this Python", flush=True)
    except SetupError as error:
        if "DO NOT MATCH THE HASHES" in str(error):
            raise
        print("crossspec: the package index has no CPU build of torch, taking the full one", flush=True)
        return False
    return True


def install_packages(lock: Path, ros: str) -> None:
    """The locked packages but torch; with ROS, also without what it brings itself."""
    packages = part(lock, lambda name: not TORCH.fullmatch(name))
    if ros:
        packages = part(lock, lambda name: not (TORCH.fullmatch(name) or OWNED_BY_ROS.fullmatch(name)))
        # ROS's extension modules were compiled against the machine's numpy and load with that major only.
        if ask("import numpy; print(numpy.__version__.split('.')[0])") == "1":
            packages += part(LOCKS / "numpy1.txt")
    install(packages)


def install_ros(wheels: Path) -> None:
    """ROS from PyPI; its CMake files name the machine it was built on, so point them to this one."""
    # What has no wheel is built by the setuptools of the step before, not by one that nobody checked.
    install(part(wheels), "--no-build-isolation")
    include = ask("import sysconfig; print(sysconfig.get_path('include'))")
    numpy = ask("import numpy; print(numpy.get_include())")
    for path in (VENV / "share").rglob("*.cmake"):
        text = path.read_text()
        moved = re.sub(r"/opt/python/[\w-]+/lib/python3\.\d+/site-packages/numpy/_core/include", numpy, text)
        moved = re.sub(r"/opt/python/[\w-]+/include/python3\.\d+", include, moved)
        if moved != text:
            path.write_text(moved)


def stand_ins(prefixes: str) -> list[Path]:
    """The message packages of others that none of these prefixes of ROS has, and that are built here."""
    roots = [Path(prefix) for prefix in prefixes.split(os.pathsep) if prefix and Path(prefix) != VENV]
    ours = sorted((ROOT / "interfaces" / "stand_ins").glob("*/package.xml"))
    is_there = [any((root / "share" / path.parent.name).is_dir() for root in roots) for path in ours]
    return [path.parent for path, there in zip(ours, is_there, strict=True) if not there]


def build_interfaces(ros: str, stand_ins: Sequence[Path]) -> None:
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
    command += ["--event-handlers", "console_direct+", "--base-paths", ROOT / "interfaces", *stand_ins]
    command += ["--build-base", build, "--install-base", VENV]
    command += ["--cmake-args", f"-DPython3_EXECUTABLE={PYTHON}", f"-DPYTHON_INSTALL_DIR={site}"]
    run(command, environment)
    shutil.rmtree(build)


def install_project() -> None:
    """The commands, run from the source tree."""
    editable = [argument for folder in (ROOT, ROOT / "lab") for argument in ("-e", str(folder))]
    pip("install", "--no-deps", "--no-build-isolation", "--use-pep517", *editable)


def part(lock: Path, is_wanted: Callable[[str], object] = bool) -> str:
    """The packages of a lock whose names are wanted, with their hashes."""
    packages = re.split(r"^(?=\w)", lock.read_text(), flags=re.MULTILINE)[1:]
    return "".join(package for package in packages if is_wanted(package.partition("==")[0]))


def install(locked: str, *options: str) -> None:
    """Install what was locked, and nothing else; pip refuses files of other hashes."""
    file = VENV / "locked.txt"
    file.write_text(locked)
    # A lock names all that is needed. Older pips ask for the newest release of what is needed with extras.
    pip("install", "--require-hashes", "--no-deps", *options, "-r", str(file))


def pip(*arguments: str) -> str:
    """The output of one call of .venv's pip."""
    return run([PYTHON, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments])


def ask(code: str) -> str:
    """The output of a line of Python in .venv."""
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
