"""A proposer is a file, and its name is the file's."""

from __future__ import annotations

import pytest

from crossspec_ros.drafting.heads.files import make_head
from crossspec_ros.drafting.heads.head import Sizes
from crossspec_ros.drafting.proposer import make_proposers, proposer_names


def test_every_file_makes_the_proposer_of_its_name() -> None:
    assert proposer_names() == ("memory", "event_draft", "heads", "lookup")
    head = make_head("adapter", Sizes(8, 2, 16, 8, 16), {"bottlenecks": [2]})
    made = make_proposers(proposer_names(), {"a": head, "b": head})
    assert [one.name for one in made] == ["memory", "event_draft", "a", "b", "lookup"]
    assert [one.listed or one.name for one in made] == ["memory", "event_draft", "heads", "heads", "lookup"]
    assert len(make_proposers(["heads"])) == 0


def test_an_unknown_one_is_refused_with_the_list() -> None:
    with pytest.raises(
        KeyError, match="no proposer hedgehog: it must be one of memory, event_draft, heads, lookup"
    ):
        make_proposers(["hedgehog"])
