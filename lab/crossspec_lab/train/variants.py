"""Every head by its name: what it is, in sizes that scale with the target's, and how it is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from crossspec_lab.heads.head import Head, Sizes, scaled
from crossspec_lab.heads.head_files import make_head
from crossspec_lab.train.pairs import PairShards
from crossspec_ros.errors import InputError

Options = Callable[[Sizes], dict[str, Any]]


@dataclass(frozen=True)
class Variant:
    """A head of this kind, whose options follow from the sizes of the models."""

    kind: str
    options: Options = lambda sizes: {}
    steps: int = 1500
    """Training steps at most."""


def _bottlenecks(*at_4096: int) -> Options:
    return lambda sizes: {"bottlenecks": [scaled(sizes, inner) for inner in at_4096]}


def _attention(**more: Any) -> Options:
    return lambda sizes: {"heads": 8, "inner": scaled(sizes, 2048)} | more


def _language_model(sizes: Sizes) -> dict[str, Any]:
    # A thirty-second of a target's width at 7B; where the target is tiny, so is what can be left out.
    width = max(128, sizes.width // 4)
    return {"width": width, "layers": 2, "heads": 4, "inner": 3 * width}


_WHOLE_VOCABULARY = 4096
"""Largest vocabulary that a small language model speaks as a whole; of a larger one, what it learns from."""

VARIANTS: dict[str, Variant] = {
    "L1": Variant("adapter", _bottlenecks(256)),
    "L2": Variant("adapter", _bottlenecks(256, 256, 256)),
    "L3": Variant("adapter", _bottlenecks(1024, 1024)),
    "L4": Variant("adapter", _attention()),
    "dream": Variant("adapter", _attention(fused=True)),
    "eagle2": Variant("eagle", lambda sizes: {"version": 2}),
    "eagle3": Variant("eagle", lambda sizes: {"version": 3, "unroll": 4}, steps=1000),
    "medusa": Variant("medusa"),
    "massv": Variant("language_model", _language_model, steps=2500),
}
"""Heads by name; docs/drafters.md describes them."""


def check_name(name: str) -> None:
    """Raise InputError for a name that there is not."""
    if name not in VARIANTS:
        raise InputError(f"there is no head {name!r}: it must be one of {', '.join(VARIANTS)}")


def new_head(name: str, sizes: Sizes, vocabulary: Sequence[int] = ()) -> Head:
    """An untrained head of one of `VARIANTS`, with a draft vocabulary where its kind has one."""
    variant = VARIANTS[name]
    more = {"draft_vocabulary": list(vocabulary)} if vocabulary else {}
    head = make_head(variant.kind, sizes, variant.options(sizes) | more)
    head.name = name
    return head


def draft_vocabulary(sizes: Sizes, pairs: PairShards) -> list[int]:
    """Ids of the tokens in question and captions, where they are few of the target's; else none, for all."""
    if sizes.tokens <= _WHOLE_VOCABULARY:
        return []
    return sorted(pairs.ids())
