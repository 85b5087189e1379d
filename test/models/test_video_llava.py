"""Video-LLaVA's port from a folder or the hub's cache; the original is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from checkpoint_layouts import TINY, copied, edit, hub_weights, weights, write
from huggingface_hub import constants

from crossspec_ros.errors import InputError
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.video_llava import load_target, target_config, target_folder, target_tokenizer


@pytest.fixture(scope="module")
def plain() -> dict[str, torch.Tensor]:
    return load_target(TINY / "target", Placement()).state_dict()


@pytest.mark.parametrize("layout", ["safetensors shards index", "bin shards index"])
def test_the_published_layout(tmp_path: Path, plain: dict[str, torch.Tensor], layout: str) -> None:
    folder, tensors = copied("target", tmp_path / "target"), hub_weights()
    assert {name.split(".")[0] for name in tensors} == {
        "language_model", "video_tower", "image_tower", "multi_modal_projector"
    }  # fmt: skip
    write(folder, tensors, layout)
    model = load_target(folder, Placement())
    loaded = model.state_dict()
    assert loaded.keys() == plain.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in plain.items())
    assert model.model.image_tower is None
    assert not model.training and not any(p.requires_grad for p in model.parameters())
    # Not stored, but needed: computed anew.
    positions = model.model.video_tower.embeddings.position_ids
    assert positions.tolist() == [list(range(17))]
    assert model.model.language_model.rotary_emb.inv_freq[0] == 1


@pytest.mark.parametrize(
    "values",
    [
        {"mm_video_tower": "LanguageBind/LanguageBind_Video_merge"},
        {"architectures": ["LlavaLlamaForCausalLM"]},
    ],
)
def test_the_original_is_refused(tmp_path: Path, values: dict[str, object]) -> None:
    folder = copied("target", tmp_path / "target")
    edit(folder / "config.json", model_type="llava", **values)
    sentence = (
        r"attends over time, so that its frames cannot .*: take its port LanguageBind/Video-LLaVA-7B-hf$"
    )
    with pytest.raises(InputError, match=sentence):
        target_config(folder)


def test_a_tokenizer_without_the_video_token(tmp_path: Path) -> None:
    folder = copied("target", tmp_path / "target")
    shutil.copy(TINY / "draft" / "tokenizer.json", folder)
    edit(
        folder / "config.json", text_config=target_config(folder).text_config.to_dict() | {"vocab_size": 600}
    )
    with pytest.raises(InputError, match=rf"'{folder}' lacks '<video>'"):
        target_tokenizer(folder)


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


def test_a_hub_id_that_was_fetched_before(hub: Path, plain: dict[str, torch.Tensor]) -> None:
    repository = hub / "models--ORG--NAME"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    write(copied("target", repository / "snapshots" / ("0" * 40)), weights("target"), "safetensors")
    folder = target_folder("ORG/NAME")
    assert folder == repository / "snapshots" / ("0" * 40)
    assert load_target(folder, Placement()).state_dict().keys() == plain.keys()


def test_only_the_config_is_fetched_where_no_more_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        return str(TINY / "target")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    assert target_folder("ORG/NAME", with_weights=False) == TINY / "target"
    assert asked == [["config.json"]]
    target_folder("ORG/NAME")
    assert asked[1:] == [["config.json"], ["*.json", "tokenizer.model", "*.safetensors"]]


def test_the_weights_of_another_model_are_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        return str(TINY / "draft")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    with pytest.raises(InputError, match="is of the type EventChat_llama, not of Video-LLaVA"):
        target_folder("ORG/NAME")
    assert asked == [["config.json"]]


def test_a_folder_goes_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert target_folder("org/name") == Path("org/name")
    assert target_folder("/no/where") == Path("/no/where")
