"""The laboratory is an extension: what needs it works with it, and says how to install it without."""

from __future__ import annotations

import pytest
from refusals import refused

from crossspec_ros import extensions
from crossspec_ros.cli import main
from crossspec_ros.drafting.heads.head import Head, Sizes
from crossspec_ros.drafting.heads.head_files import make_head

SIZES = Sizes(width=32, layers=2, tokens=64)


@pytest.fixture
def without_laboratory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "entry_points", lambda **selection: ())


@pytest.mark.parametrize("command", [["bench", "latency", "--windows", "3"], ["synth", "x"], ["train"]])
@pytest.mark.usefixtures("without_laboratory")
def test_a_command_of_the_laboratory_says_how_to_get_it(command, capsys):
    assert main(command) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"crossspec: error: crossspec {command[0]} is in the laboratory, which is not")
    assert "pip install ./lab" in said


@pytest.mark.usefixtures("without_laboratory")
def test_a_feature_of_the_laboratory_says_how_to_get_it():
    with refused("feature-of-laboratory"):
        extensions.extension("draft_lora", "the adapter of the event draft")
    with refused("head-of-laboratory"):
        make_head("adapter", SIZES, {})


def test_every_extension_that_the_laboratory_names_is_there():
    names = extensions.extension_names("")
    assert {"commands", "draft_lora", "head.adapter"} <= set(names)
    for name in names:
        found = extensions.extension(name, name)
        assert issubclass(found, Head) if name.startswith("head.") else callable(found)
        assert not name.startswith("head.") or found.kind == name.removeprefix("head.")
