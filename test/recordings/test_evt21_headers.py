"""The word order of EVT 2.1 files is found in their headers, as Prophesee's OpenEB finds it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossspec_ros.recordings.prophesee import RawEvents, _is_legacy

P, OTHER = "Prophesee", "rp1-cfe"


@pytest.mark.parametrize(
    ("camera", "plugin", "integrator", "system", "is_legacy"),
    [
        (P, P, None, "49", True),
        (P, P, OTHER, "49", True),
        (OTHER, P, P, "49", False),
        (P, OTHER, P, "49", False),
        (P, None, P, "49", False),
        (None, None, P, "49", True),
        (None, None, OTHER, "49", False),
        (None, None, None, "49", False),
        (P, P, P, "-1", False),
        (P, P, P, "0", False),
        (P, P, P, "55", False),
    ],
)
def test_word_order_follows_the_integrators(camera, plugin, integrator, system, is_legacy) -> None:
    names = {
        "camera_integrator_name": camera,
        "plugin_integrator_name": plugin,
        "integrator_name": integrator,
        "system_id": system,
    }
    header = {name: value for name, value in names.items() if value is not None}
    assert _is_legacy(header) == is_legacy
    # A stated order decides.
    assert _is_legacy({**header, "format_endianness": "legacy"})
    assert not _is_legacy({**header, "format_endianness": "little"})


@pytest.mark.parametrize(
    ("name", "on"),
    [
        ("imx636_camera_integrator_only", 3003),
        ("imx636_with_integrator_name", 3003),
        ("genx320_raspberry_pi", 3016),
    ],
)
def test_field_cases_hold_all_events(shared: Path, name: str, on: int) -> None:
    path = shared / "data" / "field_cases" / "10_headers_of_evt21" / f"{name}.raw"
    polarities = np.concatenate([batch.p for batch in RawEvents(path).batches()])
    assert (len(polarities), int(polarities.sum())) == (6000, on)
