"""What every test may ask for; the whole session keeps to this host and to a ROS domain of its own."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from crossspec_lab.world.dataset import event_window, frame_window

from crossspec_ros.environment import ros_environment
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import share_dir
from crossspec_ros.windows.window import Window


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever starts nodes runs beside its like."""
    for item in items:
        if item.path.parent.name == "ros":
            item.add_marker("nodes")


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
    """Nodes that tests kill leave 64 MB each in shared memory; what nobody uses goes at the end."""
    folder = Path("/dev/shm")
    before = set(folder.glob("*fast*"))
    yield
    used = set[str]()
    # What this process still maps nobody needs any more.
    for process in psutil.process_iter():
        if process.pid != os.getpid():
            with contextlib.suppress(psutil.Error, OSError):
                used.update(mapped.path for mapped in process.memory_maps())
    for path in set(folder.glob("*fast*")) - before:
        # A lock is not mapped, but held open beside what is.
        if str(path).removesuffix("_el") not in used:
            with contextlib.suppress(OSError):
                path.unlink()


@pytest.fixture(scope="session")
def pair() -> ModelPair:
    return load_pair(share_dir() / "models" / "tiny")


def stamps(frames: np.ndarray) -> tuple[int, ...]:
    """When frames at 8 Hz came, in ns."""
    return tuple(i * 10**9 // 8 for i in range(len(frames)))


@pytest.fixture(scope="session")
def windows() -> list[Window]:
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
