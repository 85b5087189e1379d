"""Reading in this process what commands read in a child, which takes half a second to start."""

from __future__ import annotations

from pkgutil import resolve_name

import pytest

from crossspec_ros.recordings import convert, info
from crossspec_ros.recordings.recording import open_here


@pytest.fixture
def boxed():
    """Let a test read recordings in the child process, as all commands do."""


@pytest.fixture(autouse=True)
def unboxed(request, monkeypatch):
    def run(job, *arguments):
        return resolve_name(job)(*arguments)

    if "boxed" not in request.fixturenames:
        monkeypatch.setattr(convert, "open_recording", open_here)
        monkeypatch.setattr(info, "words", run)
