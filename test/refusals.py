"""Refusals: a test names a code, and `refusals.txt` holds the sentence of each code.

`pytest --update-refusals PATHS` writes the sentences of the tests that it runs, and drops unused ones.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from crossspec_ros.errors import InputError

FILE = Path(__file__).with_suffix(".txt")
ROOT = FILE.parents[1]
_seen: dict[str, tuple[str, str]] = {}
"""Test and sentence of each code of this session."""
_new: dict[str, str] = {}
"""Sentences to write."""
_session: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes the sentences."""
    parser.addoption("--update-refusals", action="store_true", help=f"write {FILE.name}")


@pytest.fixture(scope="session", autouse=True)
def refusal_session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Keep the session's folders and option for `refused`; write the sentences at the end if requested.

    A test may limit the size of files, so that no test writes them.
    """
    _session["folders"] = rf"{tmp_path_factory.getbasetemp()}/\w+"
    _session["update"] = "yes" if request.config.getoption("update_refusals") else ""
    yield
    if _new:
        _write()


@contextmanager
def refused(
    code: str, error: type[Exception] = InputError, *, library_text: bool = False, **values: object
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Check that the block raises this error with the sentence of `code`, which one test may use.

    The names of `values` replace their values in the sentence, and <tmp> the folders of the session. The text
    in brackets is left out if it is a library's.
    """
    with pytest.raises(error) as raised:
        yield raised
    sentence = re.sub(_session["folders"], "<tmp>", str(raised.value))
    for name, value in values.items():
        sentence = re.sub(rf"(?<!\w){re.escape(str(value))}(?!\w)", f"<{name}>", sentence)
    sentence = re.sub(r"\(.*\)", "(...)", sentence) if library_text else sentence
    test = re.sub(r"(\[.*)? \(call\)$", "", os.environ["PYTEST_CURRENT_TEST"], flags=re.DOTALL)
    assert _seen.setdefault(code, (test, sentence)) == (test, sentence), "one code, one test, one sentence"
    if _session["update"]:
        _new[code] = sentence
    else:
        assert sentence == sentences(FILE.read_text()).get(code), f"{code}: see --update-refusals"


def sentences(text: str) -> dict[str, str]:
    """Return the sentence of each code."""
    return dict(line.split(": ", 1) for line in text.split("\n") if line)  # type: ignore[misc]


@cache
def quoted_words() -> Counter[str]:
    """Return in how many test files each word with hyphens stands in quotes."""
    files = [file for folder in ("test", "lab/test") for file in (ROOT / folder).rglob("test_*.py")]
    return Counter(word for file in files for word in set(re.findall(r'"(\w+(?:-\w+)+)"', file.read_text())))


def _write() -> None:
    with FILE.open("r+") as file:
        # Workers of pytest-xdist write the same file.
        fcntl.flock(file, fcntl.LOCK_EX)
        found = sentences(file.read()) | _new
        file.seek(0)
        file.truncate()
        file.writelines(f"{one}: {found[one]}\n" for one in sorted(found) if quoted_words()[one])
