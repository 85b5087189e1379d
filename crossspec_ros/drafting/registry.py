"""The proposers by name: each is a file in `drafting/proposers/`, and nothing else has to be told of it."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Who asks for the names alone need not wait for torch.
    from crossspec_ros.drafting.heads.head import Head
    from crossspec_ros.drafting.proposer import Proposer

USUAL = ("memory", "event_draft", "heads")
"""Those that draft unless others are named."""

HEADS = "heads"
"""Stands for all learned heads; its file needs to be told which."""
_FOLDER = "proposers"


def proposer_names() -> tuple[str, ...]:
    """Those that there are, the usual ones first."""
    found = {module.name for module in pkgutil.iter_modules([str(Path(__file__).parent / _FOLDER)])}
    return (*USUAL, *sorted(found - set(USUAL)))


def make_proposers(
    names: Sequence[str], heads: Mapping[str, Head] = MappingProxyType({}), learn: bool = False
) -> tuple[Proposer, ...]:
    """One proposer of each of these names, in their order; KeyError where there is none such.

    `HEADS` stands for one of each of the loaded `heads`, by their names, which go on to `learn` or not.
    """
    made: list[Proposer] = []
    for name in names:
        if name == HEADS:
            from crossspec_ros.drafting.proposers.heads import HeadProposer

            made += [HeadProposer(own, head, learn) for own, head in heads.items()]
        else:
            made.append(_class(name)())
    return tuple(made)


def _class(name: str) -> type[Proposer]:
    from crossspec_ros.drafting.proposer import Proposer

    if name not in proposer_names():
        raise KeyError(f"there is no proposer {name}: it must be one of {', '.join(proposer_names())}")
    module = import_module(f"{__package__}.{_FOLDER}.{name}")
    return next(
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Proposer) and kind.__module__ == module.__name__
    )
