from __future__ import annotations

import pytest

from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Policy


@pytest.fixture
def decoder(pair):
    """Yield a decoder without proposers; a test may replace its policy."""
    decoder = PrefillHiddenDecoder(pair, Policy((), None))
    yield decoder
    decoder.close()
