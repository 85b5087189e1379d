"""A proposer is a file, and its name is the file's."""

from __future__ import annotations

import pytest

from crossspec_ros.drafting.registry import make_proposers, proposer_names


def test_every_file_makes_the_proposer_of_its_name() -> None:
    assert proposer_names() == ("memory", "event_draft", "lookup")
    assert [one.name for one in make_proposers(proposer_names())] == list(proposer_names())


def test_an_unknown_one_is_refused_with_the_list() -> None:
    with pytest.raises(KeyError, match="no proposer hedgehog: it must be one of memory, event_draft, lookup"):
        make_proposers(["hedgehog"])
