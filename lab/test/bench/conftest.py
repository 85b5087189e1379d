"""Setting of a small bench, and logs whose records are made up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from crossspec_lab.bench.decoders import Models
from crossspec_lab.bench.input_windows import FIRST_SEED
from crossspec_lab.bench.records import Log, Record
from crossspec_lab.bench.setting import Setting, Trained
from crossspec_lab.bench.statistics import WINDOWS_PER_DRIVE
from crossspec_lab.world.scene import drive
from rich.progress import Progress

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.windows.window import Window

CAPTION = (
    "The key elements in this scene include a red car driving down a straight road, nobody on foot, and "
    "trees on both sides. The car is in front of us and getting closer. It is sunny and we are moving fast."
)
STAGES = (
    *("frame_encode", "target_prefill", "decode", "verify", "propose", "event_encode", "draft_prefill"),
    *("draft_decode", "hidden"),
)


@pytest.fixture
def setting(pair: ModelPair, windows: list[Window], tmp_path: Path) -> Setting:
    progress = Progress(disable=True)
    trained = Trained(pair, tmp_path, progress, {}, windows=8, steps=2)
    scenes = drive(FIRST_SEED, WINDOWS_PER_DRIVE)
    models = Models(pair, specvlm=lambda: trained.specvlm)
    return Setting(models, trained, [*zip(windows, scenes, strict=False)][:2], windows[3], 1.0, progress)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log", {})


@pytest.fixture
def fill(log: Log) -> Callable[..., None]:
    """Return a function that writes records of five windows of each decoder under a condition."""
    rng = np.random.default_rng(0)

    def write(condition: str, decoders: Iterable[str], lengths: tuple[int, ...] = (3, 2, 4, 1)) -> None:
        log.begin(condition, -1)
        for name in decoders:
            for window in range(5):
                accepted = () if name.startswith("generate") else lengths
                times = sorted(float(one) for one in rng.uniform(0.05, 0.4, 4))
                stages = {stage: float(rng.uniform(1, 9)) for stage in STAGES}
                more = {"dropped": window == 3, "ended_s": 1.0 + window, "engine_s": 0.2} | {
                    "right": 0.5,
                    "five": 0.7,
                    "in_a_row": 3,
                    "cosine": 0.8,
                    "above": [0.5, 0.4, 0.3],
                }
                tokens = tuple(range(sum(accepted) or 10))
                words = stages, CAPTION, CAPTION, more
                log.add(Record(condition, name, window, tokens, accepted, -1.0, *times, 0.2, *words))

    return write
