"""Write the tables of docs and models that follow from docs/benchmarks/*.json: `python
lab/scripts/measured_tables.py`, after `crossspec bench all`.
lab/test/test_measured_tables.py fails where they differ.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
from crossspec_lab.compare.bench_heads import NOVELTY, USUAL
from crossspec_lab.train.variants import VARIANTS
from reference_pages import ROOT, table, with_blocks

PAGES = [
    ROOT / page
    for page in (
        *("docs/drafters.md", "docs/measured.md", "docs/use_captions.md", "models/smol/README.md"),
        "models/tiny_answers/README.md",
    )
]

_WAYS = {
    "ours": "**ours**",
    "ours, llama.cpp, F32": "**ours**, with llama.cpp in place of torch, float32",
    "ours, llama.cpp, BF16": "**ours**, with llama.cpp in place of torch, bf16",
    "ours, llama.cpp, Q8_0": "**ours**, with llama.cpp in place of torch, int8",
    "ours, no heads": "ours, without draft heads",
    "ours, no memory": "ours, without caption memory",
    "ours, no draft": "the target alone, reading frames as they come",
    "autoregressive": "the target alone, starting at the last frame",
    "published prefill hiding": "published prefill hiding (one shot, draft chain)",
    "fixed gamma 4": "speculative decoding, 4 draft tokens a round",
    "generate, plain": "transformers `generate`",
    "generate, prompt lookup": "`generate`, prompt lookup",
    "generate, assisted": "`generate`, assisted",
    "suffix decoding": "SuffixDecoding",
    "retrieval (REST)": "REST, with 2,000 captions that the target was taught",
    "llama.cpp, F32": "llama.cpp alone, the same weights, float32",
    "llama.cpp, BF16": "llama.cpp alone, the same weights, bf16",
    "llama.cpp, Q8_0": "llama.cpp alone, the same weights, int8",
}
"""Names of decoders for readers."""


def main() -> None:
    """Write the pages anew."""
    for page in PAGES:
        page.write_text(with_blocks(page.read_text(), BLOCKS))


def figures(name: str) -> Any:
    """Figures of a benchmark by the name of its JSON."""
    return json.loads((ROOT / "docs" / "benchmarks" / f"{name}.json").read_text())


def latency() -> str:
    """Latency of the tiny pair, each decoder beside the target alone and ours."""
    return _latency(figures("latency"))


def smol_latency() -> str:
    """Latency of smol likewise."""
    return _latency(figures("smol_latency"))


def _latency(found: Mapping[str, Any]) -> str:
    rows = [
        (
            _WAYS[way],
            _spread(mode["last_frame_to_caption_ms"], 0),
            f"{_spread(mode['last_frame_to_caption_ratio'], 1)}x",
            f"{_spread(found['sooner_than'][way], 1)}x",
            _spread(mode["caption_ms"], 0),
        )
        for way, mode in found["modes"].items()
    ]
    columns = (
        "median (10th-90th percentile)",
        "last frame to caption, ms",
        "sooner than the target alone",
        "ours sooner than this",
        "close to caption, ms",
    )
    return table(columns, rows)


def smol_stream() -> str:
    """Windows at 1 Hz that each decoder captions of smol, and how late."""
    found = figures("smol_stream")
    rows = [
        (
            _WAYS[way],
            f"{row['a second']:.2f}",
            *(f"{row[name]:,.0f}" if row[name] is not None else "-" for name in _LATE),
            f"{100 * row['equal']:.0f} %",
        )
        for way, row in found["ways"].items()
    ]
    columns = (
        f"{found['windows']} windows at 1 Hz",
        "captions a second",
        "last frame to caption, ms: median",
        "p90",
        "p99",
        "first 20 windows",
        "new scene",
        "same scene",
        "same as the target alone",
    )
    return table(columns, rows)


_LATE = ("p50", "p90", "p99", "first 20", "new scene", "same scene")


def accuracy() -> str:
    """Attributes that the tiny pair gets right."""
    rows = sorted(
        figures("captions")["attributes"].items(), key=lambda item: (item[1]["needs_color"], item[0])
    )
    cells = [
        (
            name + (" (needs colour)" if row["needs_color"] else ""),
            *(f"{100 * row[who]:.1f}%" for who in ("target", "draft", "chance")),
        )
        for name, row in rows
    ]
    return table(("attribute right", "target", "draft", "chance"), cells)


def smol_accuracy() -> str:
    """Attributes that smol's captions get right."""
    rows = figures("smol_captions")["attributes"]
    cells = [
        (name, *(f"{100 * row[who]:.1f}%" for who in ("target", "chance"))) for name, row in rows.items()
    ]
    return table(("attribute", "right", "chance"), cells)


def smol_answers() -> str:
    """Standing questions that smol answers rightly."""
    rows = figures("smol_captions")["answers_right"]
    return table(
        ("standing question", "right"), [(name, f"{100 * right:.0f}%") for name, right in rows.items()]
    )


def _spread(row: Mapping[str, float], digits: int) -> str:
    return f"{row['median']:,.{digits}f} ({row['p10']:,.{digits}f}-{row['p90']:,.{digits}f})"


def heads() -> str:
    """Each head, its drafts after the target's own tokens, and its gain in the decoder, the most first."""
    usual = figures("heads")["heads"][USUAL]
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
    rows = figures("heads")["heads"]
    names = sorted(set(rows) - {USUAL}, key=lambda name: (-rows[name]["gain"][NOVELTY[0]]["mean"], name))
    return [(name, rows[name]) for name in names]


def _ms(row: dict[str, Any]) -> str:
    return f"{row['propose_ms']['median']:.1f} / {row['prepare_ms']['median']:.0f}"


def _length(found: dict[str, float]) -> str:
    return f"{found['mean']:.1f} ({found['low']:.1f}-{found['high']:.1f})"


def change() -> str:
    """Windows that the gate of captions lets through at its own threshold, by what it looks at."""
    found = figures("change")
    rows = []
    for world in ("stop and go", "driving"):
        for eyes, curve in found["curves"][world].items():
            at = curve[str(found["contrast"])]
            changed = f"{at['changed_captioned']:.1%} of {at['changed']:,}"
            rows.append((world, eyes, changed, f"{at['same_held_back']:.0%} of {at['same']:,}"))
    heads = ("drives", "by", "captioned of those that changed", "held back of those that did not")
    return table(heads, rows)


def structured() -> str:
    """Fields and questions that the tiny target of forms answers rightly."""
    found = figures("structured")
    names = {"all": "the whole form"}
    parts = [("form", found["right"]), ("question", found["questions"]["right"])]
    cells = [
        (kind, names.get(name, name), f"{row['right']:.0%}", f"{row['commonest']:.0%}")
        for kind, rows in parts
        for name, row in rows.items()
    ]
    return table(("asked by", "for", "right", "the commonest truth"), cells)


BLOCKS = {
    block.__name__: block
    for block in (
        *(heads, latency, accuracy, smol_latency, smol_stream, smol_accuracy, smol_answers, change),
        structured,
    )
}


if __name__ == "__main__":
    main()
