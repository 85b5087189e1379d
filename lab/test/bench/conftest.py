"""Fixtures that the tests of experiments share."""

from __future__ import annotations

from pathlib import Path

import pytest
from crossspec_lab.bench.setting import QUICK, Setting
from crossspec_lab.bench.trained import Trained
from rich.progress import Progress

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.windows.window import Window


@pytest.fixture
def setting(pair: ModelPair, windows: list[Window], tmp_path: Path) -> Setting:
    progress = Progress(disable=True)
    trained = Trained(pair, tmp_path, progress, {}, windows=8, steps=2)
    return Setting(pair, (), trained, [], windows[3], QUICK, 0, tmp_path, progress)
