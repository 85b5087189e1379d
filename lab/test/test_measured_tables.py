"""Tables of measured figures are those of the benchmarks' JSON."""

from __future__ import annotations

from pathlib import Path

import measured_tables
import pytest
from crossspec_lab.train.variants import VARIANTS
from reference_pages import with_blocks


@pytest.mark.parametrize("page", measured_tables.PAGES, ids=lambda page: page.name)
def test_tables_are_the_measured_ones(page: Path) -> None:
    text = page.read_text()
    assert text == with_blocks(text, measured_tables.BLOCKS), "run lab/scripts/measured_tables.py"


def test_every_head_was_measured() -> None:
    measured = [name for name, _ in measured_tables._heads()]
    assert sorted(measured) == sorted(VARIANTS)
