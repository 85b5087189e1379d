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


def offline() -> str:
    """Each head and its drafts after the target's own tokens, the best first."""
    rows = []
    for name, row in _heads():
        cells = ["-"] * 5
        found = row["offline"]
        if found:
            shares = [f"{100 * found[key]:.0f}" if key in found else "-" for key in _ACCEPT]
            cells = [
                f"{row['parameters'] / 1e6:.2f}",
                f"{found['cosine']:.2f}" if "cosine" in found else "-",
                " / ".join(shares),
                f"{100 * found['top1']:.1f} / {100 * found['top5']:.1f}",
                f"{found['consecutive']:.1f}",
            ]
        rows.append((f"`{name}`", VARIANTS[name].purpose, *cells))
    heads = (
        "head",
        "kind",
        "parameters, M",
        "cosine",
        "states above 0.80 / 0.85 / 0.90 / 0.95, %",
        "top-1 / top-5, %",
        "right in a row",
    )
    return table(heads, rows)


def live() -> str:
    """What each head adds in the decoder, the most in a cold start first."""
    rows = []
    for name, row in _heads():
        lengths = [_length(row["tokens_per_pass"][novelty]) for novelty in NOVELTY]
        gains = [f"{100 * row['gain'][novelty]['mean']:+.0f} %" for novelty in NOVELTY]
        alone = f"{row['alone_tokens_per_pass']['mean']:.1f}" if "alone_tokens_per_pass" in row else "-"
        told = [f"{one} ({gain})" for one, gain in zip(lengths, gains, strict=True)]
        ratio = row["time_ratio"]
        times = f"{ratio['median']:.2f} ({ratio['p10']:.2f}-{ratio['p90']:.2f})"
        rows.append((f"`{name}`", *told, alone, _ms(row), times))
    usual = json.loads(FIGURES.read_text())["heads"][USUAL]
    lengths = [_length(usual["tokens_per_pass"][novelty]) for novelty in NOVELTY]
    rows.insert(0, (USUAL, *lengths, "-", _ms(usual), "1"))
    heads = (
        "beside memory and event draft",
        *NOVELTY,
        "alone",
        "ms a pass / ahead of the last frame",
        "time",
    )
    return table(heads, rows)


_ACCEPT = ("accept@0.80", "accept@0.85", "accept@0.90", "accept@0.95")


def _heads() -> list[tuple[str, dict[str, Any]]]:
    rows = json.loads(FIGURES.read_text())["heads"]
    names = sorted(set(rows) - {USUAL}, key=lambda name: (-rows[name]["gain"][NOVELTY[0]]["mean"], name))
    return [(name, rows[name]) for name in names]


def _ms(row: dict[str, Any]) -> str:
    return f"{row['propose_ms']['median']:.1f} / {row['prepare_ms']['median']:.0f}"


def _length(found: dict[str, float]) -> str:
    return f"{found['mean']:.1f} ({found['low']:.1f}-{found['high']:.1f})"


BLOCKS = {function.__name__: function for function in (offline, live)}


if __name__ == "__main__":
    main()
