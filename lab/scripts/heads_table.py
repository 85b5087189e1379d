"""Write the table of draft heads into docs/drafters.md, from docs/benchmarks/heads.json: `python
lab/scripts/heads_table.py`. lab/test/test_heads_table.py fails where they differ.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
from crossspec_lab.compare.bench_heads import NOVELTY, USUAL
from crossspec_lab.train.variants import VARIANTS
from reference_pages import ROOT, table, with_blocks

PAGE = ROOT / "docs" / "drafters.md"
FIGURES = ROOT / "docs" / "benchmarks" / "heads.json"


def main() -> None:
    """Write the page anew."""
    PAGE.write_text(with_blocks(PAGE.read_text(), BLOCKS))


def heads() -> str:
    """Each head, its drafts after the target's own tokens, and its gain in the decoder, the most first."""
    usual = json.loads(FIGURES.read_text())["heads"][USUAL]
    lengths = [_length(usual["tokens_per_pass"][novelty]) for novelty in NOVELTY]
    rows = [(USUAL, "", "-", "-", "-", "-", *lengths, "-", _ms(usual), "1")]
    for name, row in _heads():
        cells = ["-"] * 4
        if found := row["offline"]:
            cells = [
                f"{row['parameters'] / 1e6:.2f}",
                f"{found['cosine']:.2f}" if "cosine" in found else "-",
                f"{100 * found['top1']:.1f} / {100 * found['top5']:.1f}",
                f"{found['consecutive']:.1f}",
            ]
        lengths = [_length(row["tokens_per_pass"][novelty]) for novelty in NOVELTY]
        gains = [f"{100 * row['gain'][novelty]['mean']:+.0f} %" for novelty in NOVELTY]
        told = [f"{one} ({gain})" for one, gain in zip(lengths, gains, strict=True)]
        alone = f"{row['alone_tokens_per_pass']['mean']:.1f}" if "alone_tokens_per_pass" in row else "-"
        ratio = row["time_ratio"]
        times = f"{ratio['median']:.2f} ({ratio['p10']:.2f}-{ratio['p90']:.2f})"
        rows.append((f"`{name}`", VARIANTS[name].purpose, *cells, *told, alone, _ms(row), times))
    columns = (
        "head, beside memory and event draft",
        "kind",
        "parameters, M",
        "cosine",
        "top-1 / top-5, %",
        "right in a row",
        *NOVELTY,
        "alone",
        "ms a pass / ahead",
        "time",
    )
    return table(columns, rows)


def _heads() -> list[tuple[str, dict[str, Any]]]:
    rows = json.loads(FIGURES.read_text())["heads"]
    names = sorted(set(rows) - {USUAL}, key=lambda name: (-rows[name]["gain"][NOVELTY[0]]["mean"], name))
    return [(name, rows[name]) for name in names]


def _ms(row: dict[str, Any]) -> str:
    return f"{row['propose_ms']['median']:.1f} / {row['prepare_ms']['median']:.0f}"


def _length(found: dict[str, float]) -> str:
    return f"{found['mean']:.1f} ({found['low']:.1f}-{found['high']:.1f})"


BLOCKS = {heads.__name__: heads}


if __name__ == "__main__":
    main()
