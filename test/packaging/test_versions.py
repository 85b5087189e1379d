"""Versions outside of the declared ones are refused where results would differ silently."""

from __future__ import annotations

import pytest

from crossspec_ros import versions
from crossspec_ros.errors import InputError
from crossspec_ros.models.loading import load_pair
from crossspec_ros.paths import tiny_models

INSTALLED = {"transformers": "5.17.0", "rosbags": "0.12", "numpy": "1.26.4"}
DECLARED = [
    'transformers>=5.20,<6; python_version >= "3"',
    'transformers>=5,<5.1; python_version < "3"',
    "rosbags>=0.11",
    "numpy",
    'ray==2.60.0; extra == "serve"',
    "absent>=1",
]
SENTENCE = r"transformers 5\.17\.0 is installed, .* pip install 'transformers<6,>=5\.20'"


def test_a_version_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name not in INSTALLED:
            raise versions.PackageNotFoundError(name)
        return INSTALLED[name]

    monkeypatch.setattr(versions, "requires", lambda name: DECLARED)
    monkeypatch.setattr(versions, "version", version)
    assert [name for name, _ in versions.unmet_requirements()] == ["transformers"]
    with pytest.raises(InputError, match=SENTENCE):
        load_pair(tiny_models())


def test_this_environment_has_what_is_declared() -> None:
    assert list(versions.unmet_requirements()) == []
