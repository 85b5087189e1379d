"""pytest fixtures that guard captions in other packages' tests; they load nothing until they are used."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from crossspec_ros.regress.difference import Difference

Regress = Callable[..., "list[Difference]"]


@pytest.fixture(scope="session")
def crossspec_regress() -> Regress:
    """`crossspec_regress(bag, golden=None, models=None, question=None, config=None)` replays a bag in code.

    Returns what differs from the goldens in the folder `golden`, which is `BAG.golden` unless told otherwise
    and which `crossspec regress BAG --update` writes; nothing differs in an empty list. Raises InputError
    where the bag, the models or the goldens do not fit together.
    """
    return partial(_regress, live=False)


@pytest.fixture(scope="session")
def crossspec_regress_live() -> Regress:
    """As `crossspec_regress`, and then replays the bag through the nodes, on the machine of the baseline.

    `crossspec regress BAG --live --update` writes that.
    """
    return partial(_regress, live=True)


def _regress(
    bag: Path | str,
    golden: Path | str | None = None,
    models: Path | str | None = None,
    question: str | None = None,
    config: Path | str | None = None,
    live: bool = False,
) -> list[Difference]:
    from crossspec_ros.regress.checks import regress

    paths = [Path(path) if path is not None else None for path in (golden, models, config)]
    return regress(Path(bag), paths[0], paths[1], question, paths[2], live)
