"""pytest fixtures that guard captions in other packages' tests. Unused, they import nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from crossspec_ros.regress.checks import Difference

Regress = Callable[..., "list[Difference]"]


@pytest.fixture(scope="session")
def crossspec_regress() -> Regress:
    """Return a function that replays a bag in code, and returns the differences from its goldens.

    Call it as `crossspec_regress(bag, golden=None, models=None, question=None, config=None)`. `golden` is a
    folder that `crossspec regress BAG --update` has written, by default `BAG.golden`. Raises InputError if
    bag, models and goldens do not match.
    """

    def compare(*arguments: Any, **options: Any) -> list[Difference]:
        from crossspec_ros.regress.regression import regress

        return regress(*arguments, **options)

    return compare
