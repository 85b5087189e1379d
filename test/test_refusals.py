"""Every sentence in `refusals.txt` has one test, and `refused` detects other sentences."""

from __future__ import annotations

import pytest
import refusals
from refusals import refused

from crossspec_ros.errors import InputError


def test_every_code_is_in_one_file():
    codes = refusals.sentences(refusals.FILE.read_text())
    assert {code: refusals.quoted_words()[code] for code in codes if refusals.quoted_words()[code] != 1} == {}


def test_values_folders_and_library_texts_are_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(refusals, "FILE", tmp_path / "refusals.txt")
    monkeypatch.setitem(refusals._session, "update", "")
    refusals.FILE.write_text("port-used: '<tmp>/a' is used by <port> (...): choose another\n")
    for port in (1, 2):
        with refused("port-used", library_text=True, port=port):
            raise InputError(f"'{tmp_path}/a' is used by {port} (error (1)): choose another")
    with pytest.raises(AssertionError), refused("port-used"):
        raise InputError("another sentence")
    with pytest.raises(AssertionError), refused("no-such-code"):
        raise InputError("a sentence")
