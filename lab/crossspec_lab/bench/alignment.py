"""Share of the draft's tokens that the target would accept, by the alignment of both models.

Heads learn on the same windows: a linear probe, an MLP, contrastive learning, distillation, and the published
adapters. A token counts as accepted if it is the target's own after the target's tokens before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

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
"""Adapters that do not read the target's states."""
_TEMPERATURE = 0.1
_BATCH = 16


class Contrastive(Adapter):
    """An MLP that learns to distinguish the target's state at a token from others (InfoNCE).

    The method is that of van den Oord et al., 2018. The target's head reads tokens from the states.
    """

    def loss(self, pairs: Pairs) -> Tensor:
        found, wanted = self.predicted(pairs)[pairs.is_token], pairs.choosing[pairs.is_token]
        cosines = F.normalize(found, dim=-1) @ F.normalize(wanted, dim=-1).T
        # The head also reads lengths, on which a cosine does not depend.
        contrast = F.cross_entropy(cosines / _TEMPERATURE, torch.arange(len(found)))
        return contrast + F.smooth_l1_loss(found, wanted)


class Distilled(Adapter):
    """An MLP that learns the target's distribution at each token (Hinton et al., 2015)."""

    def loss(self, pairs: Pairs) -> Tensor:
        seen = pairs.is_token
        teacher = F.softmax(self.read_out(pairs.choosing[seen]), -1)
        return F.cross_entropy(self.read_out(self.predicted(pairs)[seen]), teacher)


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
        rows = (row for pairs in batches for row in _rows(head, pairs))
        for window, more in enumerate(rows):
            yield Record(CONDITION, name, window, more=more)


@torch.inference_mode()
def _rows(head: TargetReader | None, pairs: Pairs) -> Iterator[dict[str, Any]]:
    """Yield the figures of each window: a head's guesses after the target's own tokens, or the draft's."""
    states = None
    if head is None:
        assert pairs.draft_tokens is not None
        right = among_five = pairs.draft_tokens == pairs.tokens
    else:
        best = head.logits(pairs).topk(5).indices
        right, among_five = best[..., 0] == pairs.tokens, (best == pairs.tokens[..., None]).any(-1)
        states = head.predicted(pairs)
    counted = pairs.is_token.clone()
    if head is not None and "hidden" in head.needs:
        # A head that reads the target's states has none for the first token.
        counted[:, 0] = False
    for i, counts in enumerate(counted):
        row: dict[str, Any] = {
            "right": float(right[i][counts].float().mean()),
            "five": float(among_five[i][counts].float().mean()),
            "in_a_row": int(right[i][counts].long().cumprod(0).sum()),
        }
        if states is not None:
            cosines = torch.cosine_similarity(states[i], pairs.choosing[i], -1)[counts]
            row["cosine"] = float(cosines.mean())
            row["above"] = [float((cosines >= least).float().mean()) for least in (0.8, 0.85, 0.9)]
        yield row


def _result(setting: Setting, log: Log) -> Result:
    found, rows = Result(), dict[str, dict[str, Cell]]()
    shares: dict[str, statistics.Interval] = {}
    for name in log.decoders(CONDITION):
        records = log.rows(CONDITION, name)

        def mean(figure: str, factor: float = 1.0) -> statistics.Interval:
            return statistics.mean([factor * r.more[figure] for r in records])  # noqa: B023

        shares[name], five = mean("right", 100), mean("five", 100)
        cosine = mean("cosine") if "cosine" in records[0].more else None
        rows[name] = {
            "tokens accepted, %": shares[name],
            "among the best five, %": five if name != NONE else None,
            "right in a row": mean("in_a_row"),
            "cosine of states": cosine,
        }
        found.figures[name.lower()] = shares[name]
        if name == "L4":
            above = np.mean([r.more["above"] for r in records], 0)
            found.figures["accept_states"] = " / ".join(f"{100 * share:.1f}" for share in above) + " %"
            found.figures["cosine"] = cosine
    found.unmeasured |= dict.fromkeys(("token_adapter", "token_adapter_top5"), "its head is not trained here")
    found.figures["best"] = max((shares[name] for name in _OF_DRAFT), key=lambda share: share.value)
    title = (
        f"{len(log.rows(CONDITION, NONE))} held-out windows; heads learned on "
        f"{setting.trained.windows} others"
    )
    found.tables.append(Table(title, rows, "alignment"))
    found.notes.append(
        "The tiny draft learned the same captions as the tiny target, so it uses the target's words without "
        "any alignment. It lacks colours and light, which events do not show. The predictions are for "
        "EventGPT-7B, which words its sentences otherwise."
    )
    return found


ALIGNMENT = Bench("Acceptance by alignment", _parts, _result)
