"""pytest fixtures that guard captions in other packages' tests; they load nothing until they are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from crossspec_ros.regress.checks import Difference

Regress = Callable[..., "list[Difference]"]


@pytest.fixture(scope="session")
def crossspec_regress() -> Regress:
    """`crossspec_regress(bag, golden=None, models=None, question=None, config=None)` replays a bag in code.

    Returns what differs from the goldens in the folder `golden`, which is `BAG.golden` unless told otherwise
    and which `crossspec regress BAG --update` writes; nothing differs in an empty list. Raises InputError
    where the bag, the models or the goldens do not fit together.
    """

    def compare(*arguments: Any, **options: Any) -> list[Difference]:
        from crossspec_ros.regress.regression import regress

        return regress(*arguments, **options)

    return compare
