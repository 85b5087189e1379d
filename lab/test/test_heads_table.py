"""The table of draft heads is that of the benchmark's figures."""

from __future__ import annotations

import heads_table
from crossspec_lab.train.variants import VARIANTS
from reference_pages import with_blocks


def test_the_table_is_the_measured_one() -> None:
    text = heads_table.PAGE.read_text()
    assert text == with_blocks(text, heads_table.BLOCKS), "run lab/scripts/heads_table.py"


def test_every_head_was_measured() -> None:
    measured = [name for name, _ in heads_table._heads()]
    assert sorted(measured) == sorted(VARIANTS)
