"""How many of the draft's tokens the target would take, by how well both are aligned.

Heads of the same kind learn on the same windows, from a linear probe to distillation, and the published
adapters beside them. Acceptance is the share of tokens that are the target's own, given its tokens before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from crossspec_lab.bench import statistics
from crossspec_lab.bench.records import Log, Record
from crossspec_lab.bench.report import Result
from crossspec_lab.bench.setting import Bench, Part, Setting
from crossspec_lab.bench.tables import Cell, Table
from crossspec_lab.heads.adapter import Adapter, published_adapters
from crossspec_lab.heads.head import Pairs, Sizes, TargetReader, scaled

CONDITION = "held out"
NONE, SPECVLM = "none", "SpecVLM"
_OF_DRAFT = ("L1", "L2", "L3", "L4")
"""Adapters that see nothing of the target."""
_TEMPERATURE = 0.1
_BATCH = 16


class Contrastive(Adapter):
    """An MLP that learns to tell the target's state at a token from those at others (InfoNCE, van den Oord et
    al., 2018); the target's head reads it out."""

    def loss(self, pairs: Pairs) -> Tensor:
        told, seen = self.predicted(pairs), pairs.is_token
        mine = F.normalize(told[seen], dim=-1)
        wanted = F.normalize(pairs.choosing[seen], dim=-1)
        likeness = mine @ wanted.T / _TEMPERATURE
        # The head reads lengths too, which a cosine does not tell.
        return F.cross_entropy(likeness, torch.arange(len(mine))) + F.smooth_l1_loss(
            told[seen], pairs.choosing[seen]
        )


class Distilled(Adapter):
    """An MLP that learns the target's distribution at each token (Hinton et al., 2015)."""

    def loss(self, pairs: Pairs) -> Tensor:
        seen = pairs.is_token
        teacher = F.softmax(self.read_out(pairs.choosing[seen]), -1)
        return F.cross_entropy(self.read_out(self.predicted(pairs)[seen]), teacher)


class HeadPredictions(NamedTuple):
    """Places (b, t): which count, where the first guess or one of five is right, and cosines of states."""

    counted: Tensor
    right: Tensor
    among_five: Tensor
    cosine: Tensor | None

    def accepted_prefix(self) -> Tensor:
        """Return (b,) the right guesses from the first place that counts on."""
        first = 0 if self.counted[:, 0].any() else 1
        return (self.right & self.counted)[:, first:].long().cumprod(1).sum(1)


@torch.inference_mode()
def predict_teacher_forced(head: TargetReader | None, pairs: Pairs) -> HeadPredictions:
    """Return a head's guesses after the target's own tokens; without a head those of the event draft."""
    cosine = None
    if head is None:
        assert pairs.draft_tokens is not None
        right = among_five = pairs.draft_tokens == pairs.tokens
    else:
        best = head.logits(pairs).topk(5).indices
        right, among_five = best[..., 0] == pairs.tokens, (best == pairs.tokens[..., None]).any(-1)
        predicted = head.predicted(pairs)
        if predicted is not None:
            cosine = torch.cosine_similarity(predicted, pairs.choosing, -1)
    counted = pairs.is_token.clone()
    if head is not None and "hidden" in head.needs:
        # A head on the target's own states knows nothing of the first token.
        counted[:, 0] = False
    return HeadPredictions(counted, right, among_five, cosine)


def levels(sizes: Sizes) -> dict[str, Callable[[], TargetReader]]:
    """Heads from the weakest to the strongest alignment, as they were published, and the adapters."""
    inner = max(64, scaled(sizes, 2048))
    found: dict[str, Callable[[], TargetReader]] = {
        "linear": lambda: Adapter(sizes),
        "mlp": lambda: Adapter(sizes, [inner]),
        "contrastive": lambda: Contrastive(sizes, [inner]),
        "distilled": lambda: Distilled(sizes, [inner]),
    }
    return {**found, **published_adapters(sizes)}


def _parts(setting: Setting) -> list[Part]:
    names = [NONE, SPECVLM, *levels(setting.trained.sizes)]
    return [Part(CONDITION, len(names) * len(setting.windows), _records(setting, names))]


def _records(setting: Setting, names: Sequence[str]) -> Iterator[Record]:
    """Train the missing heads, then compare their predictions on windows that no head learned from."""
    heads, count = levels(setting.trained.sizes), len(setting.windows)
    held = setting.trained.extracted((window for window, _ in setting.windows), "held_out", count)
    batches = [held.batch(range(at, min(at + _BATCH, count))) for at in range(0, count, _BATCH)]
    for name in names:
        head: TargetReader | None = None
        if name == SPECVLM:
            head = setting.trained.specvlm
        elif name != NONE:
            head = setting.trained.head(name, heads[name])
        rows = (row for pairs in batches for row in _rows(predict_teacher_forced(head, pairs)))
        for window, more in enumerate(rows):
            yield Record(CONDITION, name, window, more=more)


def _rows(predicted: HeadPredictions) -> Iterator[dict[str, Any]]:
    """Figures of each window."""
    for i, (counted, in_a_row) in enumerate(zip(predicted.counted, predicted.accepted_prefix(), strict=True)):
        row: dict[str, Any] = {
            "right": float(predicted.right[i][counted].float().mean()),
            "five": float(predicted.among_five[i][counted].float().mean()),
            "in_a_row": int(in_a_row),
        }
        if predicted.cosine is not None:
            cosines = predicted.cosine[i][counted]
            row["cosine"] = float(cosines.mean())
            row["above"] = [float((cosines >= least).float().mean()) for least in (0.8, 0.85, 0.9)]
        yield row


def _result(setting: Setting, log: Log) -> Result:
    found, rows = Result(), dict[str, dict[str, Cell]]()
    shares: dict[str, statistics.Interval] = {}
    for way in log.decoders(CONDITION):
        records = log.rows(CONDITION, way)

        def mean(name: str, kind: type[Any] = float, factor: float = 1.0) -> statistics.Interval:
            return statistics.mean([factor * r.more[name] for r in records])  # noqa: B023

        shares[way], five = mean("right", factor=100), mean("five", factor=100)
        cosine = mean("cosine") if "cosine" in records[0].more else None
        rows[way] = {
            "tokens accepted, %": shares[way],
            "among the best five, %": five if way != NONE else None,
            "right in a row": mean("in_a_row", int),
            "cosine of states": cosine,
        }
        found.figures[way.lower()] = shares[way]
        if way == "L4":
            above = np.mean([r.more["above"] for r in records], 0)
            found.figures["accept_states"] = " / ".join(f"{100 * share:.1f}" for share in above) + " %"
            found.figures["cosine"] = cosine
    found.unmeasured |= dict.fromkeys(("token_adapter", "token_adapter_top5"), "measured in an earlier run")
    found.figures["best"] = max((shares[name] for name in _OF_DRAFT), key=lambda share: share.value)
    title = (
        f"{len(log.rows(CONDITION, NONE))} held-out windows; heads learned on "
        f"{setting.trained.windows} others"
    )
    found.tables.append(Table(title, rows, "alignment"))
    found.notes.append(
        "The tiny draft was trained on the same captions as the tiny target, so it speaks as the target does "
        "without any alignment: what it lacks are colours and light, which events do not show. The "
        "predictions are for EventGPT-7B, which words its sentences otherwise."
    )
    return found


ALIGNMENT = Bench("Acceptance by alignment", _parts, _result)
