"""Experiment 5: how good captions are, of lossless ways and of lossy ones.

BLEU-4, ROUGE-L and CIDEr are those of pycocoevalcap; attributes are what the grammar of the synthetic world
lets a caption claim. A lossless way must show no difference to the target alone.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence

from crossspec_lab.bench import statistics
from crossspec_lab.bench.captions import right_attributes
from crossspec_lab.bench.decoders import ALONE, DECODERS, OURS, SPECVLM, WAYS
from crossspec_lab.bench.records import Log, Record, paired
from crossspec_lab.bench.result import Result, marked
from crossspec_lab.bench.setting import Setting
from crossspec_lab.bench.stages import ALL
from crossspec_lab.bench.stages import measure as measure_all
from crossspec_lab.bench.tables import Cell, Table
from crossspec_lab.world.phrases import claimed

TITLE = "Quality of the captions"
NUMBER = 5


def measure(setting: Setting) -> Log:
    """The captions are those of experiment 2."""
    return measure_all(setting)


def scores(records: Sequence[Record]) -> dict[str, float]:
    """BLEU-4, ROUGE-L and CIDEr in per cent, as they are usually told."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    truth = {record.window: [_words(record.truth)] for record in records}
    said = {record.window: [_words(record.text)] for record in records}
    with contextlib.redirect_stdout(io.StringIO()):
        bleu = Bleu(4).compute_score(truth, said, verbose=0)[0][3]
        rouge, cider = (scorer.compute_score(truth, said)[0] for scorer in (Rouge(), Cider()))
    return {"bleu4": 100 * float(bleu), "rouge_l": 100 * float(rouge), "cider": 100 * float(cider)}


def _words(text: str) -> str:
    """As the packages take a sentence: words in small letters, without punctuation."""
    return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def attributes_right(record: Record) -> float:
    """Return the share of the true caption's claims that the caption makes too."""
    wanted = claimed(record.truth)
    return len(right_attributes(record.text, wanted)) / len(wanted)


def result(setting: Setting, log: Log) -> Result:
    """A row for each way, and whether lossless ones differ from the target alone."""
    found, rows, alone = Result(), dict[str, dict[str, Cell]](), log.rows(ALL, ALONE)
    differing = 0
    for way in WAYS:
        mine, theirs = paired(log.rows(ALL, way), alone)
        scored = scores(mine)
        right = statistics.mean([100 * attributes_right(r) for r in mine], setting.seed)
        changed = sum(a.text != b.text for a, b in zip(mine, theirs, strict=True))
        differing += changed if DECODERS[way].is_lossless else 0
        if key := {OURS: "ours", ALONE: "alone", SPECVLM: "specvlm"}.get(way):
            found.figures |= {f"{key}_{name}": value for name, value in scored.items()}
            found.figures[f"{key}_accuracy"] = right
        rows[marked(way)] = {
            **dict(zip(("BLEU-4", "ROUGE-L", "CIDEr"), scored.values(), strict=True)),
            "exact, %": statistics.mean([100.0 * (r.text == r.truth) for r in mine], setting.seed),
            "attributes right, %": right,
            "captions that differ from the target's": changed,
        }
    found.tables.append(Table(f"{len(alone)} windows against the true captions", rows, "way"))
    found.figures["lossless_differ"] = differing
    found.notes.append(
        f"{differing} captions of lossless ways differ from the target's own. In place of the accuracy of "
        f"answers to questions (VQA), which these windows do not have, stands the share of attributes right."
    )
    return found
