"""Nodes that tests start in their own process find each other at once."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def short_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    """A captioner that no synchronizer publishes for is active after a second, not after five."""
    monkeypatch.setattr("crossspec_ros.ros.captioner.DISCOVERY_S", 1.0, raising=False)
