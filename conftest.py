"""Fixtures of all tests. The session stays on this host and in a ROS domain of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from crossspec_lab.world.dataset import event_window, frame_window
from forked_cli import ForkedCli
from hypothesis import settings

from crossspec_ros.environment import ros_environment
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import share_dir
from crossspec_ros.windows.window import Window

SLOW_S = 5.0
# Examples of a busy machine are slow.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
pytest_plugins = ["refusals"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file in one worker, and those that measure times in one worker together."""
    for item in items:
        group = "realtime" if item.get_closest_marker("realtime") else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the slow tests that are not marked as nightly."""
    reports = [report for some in terminalreporter.stats.values() for report in some]
    slow = [
        (report.duration, f"{report.when} of {report.nodeid}")
        for report in reports
        if isinstance(report, pytest.TestReport)
        and report.duration > SLOW_S
        and "nightly" not in report.keywords
    ]
    if slow:
        terminalreporter.section(f"over {SLOW_S:.0f} s and not marked nightly")
        for duration_s, name in sorted(slow, reverse=True):
            terminalreporter.write_line(f"{duration_s:6.1f} s {name}")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recordings beside the repository; where it is missing, tests that need it are skipped."""
    path = Path(__file__).resolve().parents[1] / "shared"
    if not path.is_dir():
        pytest.skip("needs recordings that are not part of this repository")
    return path


@pytest.fixture(scope="session", autouse=True)
def isolated_ros() -> None:
    """Before any node starts, in this process or a child; autouse, so that no test can forget it."""
    os.environ.update(ros_environment(isolated=True))


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test learns from earlier runs or leaves anything in the user's state folder."""
    os.environ.pop("ROS_HOME", None)
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session", autouse=True)
def interrupts() -> None:
    """Started in the background, tests inherit that interrupts are ignored, and so would what they start."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def shared_memory() -> Iterator[None]:
    """Remove what killed nodes leave, 64 MB each; Fast DDS holds a lock beside each file that is in use.

    Files of other processes on this host stay, whether they are nodes of this package or not.
    """
    folder = Path("/dev/shm")
    before = set(folder.glob("fastdds_*"))
    yield
    for lock in set(folder.glob("fastdds_*_el")) - before:
        with contextlib.suppress(OSError), lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Path(str(lock).removesuffix("_el")).unlink(missing_ok=True)
            lock.unlink()


@pytest.fixture(scope="session")
def run_cli(tmp_path_factory: pytest.TempPathFactory) -> ForkedCli:
    """Return a callable that runs `crossspec` with its arguments in a fork that has torch already."""
    return ForkedCli(tmp_path_factory.mktemp("cli"))


@pytest.fixture(scope="session")
def pair() -> ModelPair:
    """Return the shipped tiny models."""
    return load_pair(share_dir() / "models" / "tiny")


def stamps(frames: np.ndarray) -> tuple[int, ...]:
    """When frames at 8 Hz came, in ns."""
    return tuple(i * 10**9 // 8 for i in range(len(frames)))


@pytest.fixture(scope="session")
def windows() -> list[Window]:
    """Return four windows of the synthetic world, with 8 frames each."""
    seeds = range(2_000_000, 2_000_004)
    return [
        Window(i, 0, 10**9, event_window(seed), frames := frame_window(seed), stamps(frames))
        for i, seed in enumerate(seeds)
    ]


@pytest.fixture(scope="session")
def blind(windows: list[Window]) -> Window:
    """Events only."""
    return Window(9, 0, 10**9, windows[0].event_images, np.empty((0, 0, 0, 3), np.uint8))


@pytest.fixture
def brief(tmp_path: Path) -> tuple[str, str]:
    """Options for captions of a dozen tokens: what the tiny models say of coloured frames has no end."""
    path = tmp_path / "brief.yaml"
    path.write_text("captioner: {ros__parameters: {max_new_tokens: 12}}\n")
    return "--config", str(path)
