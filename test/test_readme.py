"""The README says what the code does: parameters, topics, commands."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from crossspec_ros.cli import make_parser
from crossspec_ros.nodes.params import PARAMS, Param
from crossspec_ros.telemetry.trace import LATENCIES

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()


def row(param: Param) -> str:
    """The line of a parameter in the README's table."""
    default = str(param.default).lower() if isinstance(param.default, bool) else param.default
    shown = '""' if default == "" else default
    bounds = f" ({param.low:g} to {param.high:g})" if param.low is not None else ""
    choices = f" ({', '.join(param.choices)})" if param.choices else ""
    live = " [live]" if param.live else ""
    return f"| `{param.name}` | `{shown}` | {param.description}{bounds}{choices}{live} |"


@pytest.mark.parametrize("node", list(PARAMS))
def test_the_parameter_tables_are_those_of_the_code(node: str) -> None:
    start = README.index(f"**`{node}`**")
    end = README.find("\n**`", start + 1)
    table = README[start : end if end > 0 else README.index("## Command line")]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert rows == [row(param) for param in PARAMS[node]]


def test_every_latency_is_named() -> None:
    line = next(line for line in README.splitlines() if "latency/STAGE" in line)
    assert [stage for stage in LATENCIES if f"`{stage}`" not in line] == []


def test_every_command_is_in_the_table() -> None:
    commands = next(a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction)).choices
    assert [name for name in commands if f"`crossspec {name} " not in README] == []


def test_files_that_are_named_exist() -> None:
    root = Path(__file__).resolve().parents[1]
    for name in (
        "docs/figures/window.png",
        "docs/architecture.md",
        "docs/decoding.md",
        "docs/events.md",
        "docs/robot.md",
        "docs/benchmarks/events.json",
        "docs/benchmarks/latency.json",
        "docs/benchmarks/lossless.json",
        "models/tiny/README.md",
        "config/replay.yaml",
    ):
        assert name in README and (root / name).is_file()
