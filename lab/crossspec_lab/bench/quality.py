"""Quality of captions: BLEU-4, ROUGE-L and CIDEr of pycocoevalcap, and the share of right attributes.

Attributes are what the grammar of the synthetic world lets a caption claim. A lossless decoder must show no
difference to the target alone.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence

from crossspec_lab.bench import statistics
from crossspec_lab.bench.captions import right_attributes
from crossspec_lab.bench.decoders import ALONE, DECODERS, OURS, SPECVLM, marked
from crossspec_lab.bench.records import Log, Record, paired
from crossspec_lab.bench.report import Result
from crossspec_lab.bench.tables import Cell, Table
from crossspec_lab.world.phrases import claimed

_SHOWN = {OURS: "ours", ALONE: "alone", SPECVLM: "specvlm"}


def scores(records: Sequence[Record]) -> dict[str, float]:
    """Return BLEU-4, ROUGE-L and CIDEr in per cent."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    truth = {record.window: [_words(record.truth)] for record in records}
    written = {record.window: [_words(record.text)] for record in records}
    with contextlib.redirect_stdout(io.StringIO()):
        bleu = Bleu(4).compute_score(truth, written, verbose=0)[0][3]
        rouge, cider = (scorer.compute_score(truth, written)[0] for scorer in (Rouge(), Cider()))
    return {"bleu4": 100 * float(bleu), "rouge_l": 100 * float(rouge), "cider": 100 * float(cider)}


def _words(text: str) -> str:
    """Return the words in small letters, without punctuation, as the packages need them."""
    return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def attributes_right(record: Record) -> float:
    """Return the share of the right caption's claims that the caption makes too."""
    wanted = claimed(record.truth)
    return len(right_attributes(record.text, wanted)) / len(wanted)


def add_quality(log: Log, condition: str, found: Result) -> None:
    """Add the figures of the predictions, and a table of the target and the decoders that differ from it."""
    alone, rows, differing = log.rows(condition, ALONE), dict[str, dict[str, Cell]](), 0
    for name in log.decoders(condition):
        mine, theirs = paired(log.rows(condition, name), alone)
        scored = scores(mine)
        right = statistics.mean([100 * attributes_right(record) for record in mine])
        changed = sum(a.text != b.text for a, b in zip(mine, theirs, strict=True))
        entry = DECODERS.get(name)
        differing += changed if entry is None or entry.is_lossless else 0
        if key := _SHOWN.get(name):
            found.figures |= {f"{key}_{score}": value for score, value in scored.items()}
            found.figures[f"{key}_accuracy"] = right
        if name != ALONE and not changed:
            continue
        rows[marked(name)] = {
            **dict(zip(("BLEU-4", "ROUGE-L", "CIDEr"), scored.values(), strict=True)),
            "exact, %": statistics.mean([100.0 * (record.text == record.truth) for record in mine]),
            "attributes right, %": right,
            "captions that differ from the target's": changed,
        }
    found.figures["lossless_differ"] = differing
    title = f"{len(alone)} windows against the right captions; all other decoders wrote the target's captions"
    found.tables.append(Table(title, rows, "decoder"))
    found.notes.append(
        f"{differing} captions of lossless decoders differ from the target's own. In place of the accuracy "
        f"of answers to questions (VQA), which these windows do not have, stands the "
        f"share of attributes right."
    )
