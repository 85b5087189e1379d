"""A target by its hub id: from the hub's cache, and no weights of what is no target."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoint_layouts import TINY, copied, weights, write
from huggingface_hub import constants

from crossspec_ros.errors import InputError
from crossspec_ros.models.hub import target_folder
from crossspec_ros.models.registry import target_architecture

CONFIGS = ["config.json", "generation_config.json"]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache of a machine without a network."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_a_hub_id_offline(hub: Path) -> None:
    with pytest.raises(
        InputError, match=r"^'ORG/NAME' is no folder, and as a hub id it could not be fetched \(\w+\)"
    ):
        target_folder("ORG/NAME")


def test_a_hub_id_that_was_fetched_before(hub: Path) -> None:
    repository = hub / "models--ORG--NAME"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    write(copied("target", repository / "snapshots" / ("0" * 40)), weights("target"), "safetensors")
    folder = target_folder("ORG/NAME")
    assert folder == repository / "snapshots" / ("0" * 40)
    assert target_architecture(folder).tokenizer().get_vocab_size() == 577


def test_only_the_config_is_fetched_where_no_more_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        return str(TINY / "target")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    assert target_folder("ORG/NAME", with_weights=False) == TINY / "target"
    assert asked == [CONFIGS]
    target_folder("ORG/NAME")
    assert asked[1:] == [CONFIGS, ["*.json", "tokenizer.model", "*.safetensors"]]


def test_the_weights_of_another_model_are_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        return str(TINY / "draft")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    with pytest.raises(InputError, match="is of the type EventChat_llama, not of a known target"):
        target_folder("ORG/NAME")
    assert asked == [CONFIGS]


def test_a_folder_goes_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert target_folder("org/name") == Path("org/name")
    assert target_folder("/no/where") == Path("/no/where")
