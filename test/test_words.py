"""Docstrings begin with the noun that a reader would search for, and each constant has a line of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOT_YET = frozenset(ROOT.joinpath("test/words_not_yet.txt").read_text().split())
"""Folders whose words are still to be mended."""
FOLDERS = sorted(
    str(folder.relative_to(ROOT))
    for package in ("crossspec_ros", "lab/crossspec_lab")
    for folder in (ROOT / package, *(ROOT / package).rglob("*/"))
    if any(folder.glob("*.py"))
)
_FIRST = re.compile(r"(What|Of|Those|That|Who|It|Likewise|How|Whatever|Where|When)(ever)?\b")
_OWNERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Docstrings of modules, classes and functions, and those behind constants and fields."""
    for owner in ast.walk(tree):
        if isinstance(owner, _OWNERS):
            values = [node.value for node in owner.body if isinstance(node, ast.Expr)]
            yield from (v for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str))


def faults(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    name = path.relative_to(ROOT)
    for text in docstrings(tree):
        if found := _FIRST.match(str(text.value)):
            yield f"{name}:{text.lineno}: a docstring begins with '{found[0]}'"
    shared = {text.lineno for text in docstrings(tree)}
    for node, below in pairwise(tree.body):
        is_several = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
        if is_several and below.lineno in shared:
            yield f"{name}:{node.lineno}: several constants have one docstring"


@pytest.mark.parametrize("folder", FOLDERS)
def test_words_begin_with_their_nouns(folder: str) -> None:
    found = [fault for path in sorted((ROOT / folder).glob("*.py")) for fault in faults(path)]
    if folder in NOT_YET:
        assert found, f"{folder} is done: take it out of test/words_not_yet.txt"
    else:
        assert not found, "\n".join(found)
