"""Models by hub id, from the hub or its cache."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from checkpoint_layouts import TINY, copied, weights, write
from huggingface_hub import constants
from refusals import refused
from stand_in_hub import COMMIT, REVISIONS, stand_in_hub

from crossspec_ros.models import hub
from crossspec_ros.models.hub import Offer, fetch_weights, is_hub_id, model_id, offer, target_path
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import target_architecture, target_spec

target_folder = partial(target_path, "")
SMALL = {"config.json", "generation_config.json", "tokenizer.json"}


@pytest.fixture
def online(tmp_path, monkeypatch):
    models = {"ORG/NAME": TINY / "target", "ORG/DRAFT": TINY / "draft"}
    with stand_in_hub(monkeypatch, tmp_path / "hub", models, license="mit") as hub:
        yield hub


def test_configs_are_fetched_before_weights(online):
    folder = target_folder("ORG/NAME")
    assert target_spec(folder) == target_spec(TINY / "target")
    assert set(online.sent) == SMALL
    assert target_architecture(folder).load(Placement())
    assert "model.safetensors" in online.sent


def test_old_weights_are_fetched_without_safetensors(tmp_path, monkeypatch):
    write(copied("target", tmp_path / "old"), weights("target"), "bin shards index")
    with stand_in_hub(monkeypatch, tmp_path / "hub", {"ORG/OLD": tmp_path / "old"}) as hub:
        found = offer("ORG/OLD")
        folder = target_folder("ORG/OLD")
        fetch_weights(folder)
    assert found == Offer(sum(hub.sizes("ORG/OLD").values()), found.missing, "", COMMIT)
    assert len(list(folder.glob("pytorch_model-*.bin"))) == 3


@pytest.mark.parametrize(
    ("models", "code"),
    [({"target": "ORG/NAME", "draft": "ORG/NAME"}, "hub-target-as-draft"),
     ({"target": "ORG/DRAFT", "draft": "ORG/DRAFT"}, "hub-draft-as-target")],
)  # fmt: skip
def test_weights_of_wrong_model_are_not_fetched(online, models, code):
    with refused(code):
        load_pair("/nowhere", **models)
    assert "model.safetensors" not in online.sent


def test_offer_has_sizes_licence_and_commit(online):
    online.pretended = {"model-00002.safetensors": 10**10, "README.md": 10**4, "pytorch_model.bin": 10**10}
    sizes = online.sizes("ORG/NAME")
    download = sum(sizes.values()) - sizes["README.md"] - sizes["pytorch_model.bin"]
    assert offer("ORG/NAME") == Offer(download, download, "mit", COMMIT)
    assert online.sent == {}
    target_folder("ORG/NAME")
    online.card = {"license": "other", "license_name": "own"}
    assert offer("ORG/NAME") == Offer(download, download - sum(online.sent.values()), "own", COMMIT)


@pytest.mark.parametrize("name", ["ORG/OTHER", "ORG/NAME@v2.0"])
def test_missing_hub_id_is_refused(online, name):
    with refused("hub-id-unknown", name=name):
        target_folder(name)
    assert offer(name) is None


@pytest.mark.parametrize("revision", ["v1.0", "1" * 40])
def test_revision_is_fetched_and_cached(online, monkeypatch, revision):
    name, commit = f"ORG/NAME@{revision}", REVISIONS["v1.0"]
    found = offer(name)
    assert is_hub_id(name) and found and found.revision == commit
    pair = load_pair("/nowhere", target=name, draft="ORG/DRAFT")
    assert pair.model_ids == {"target": f"ORG/NAME@{commit}", "draft": f"ORG/DRAFT@{COMMIT}"}
    assert online.commits == {commit, COMMIT}
    # Fetched files need no hub.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert model_id(target_folder(f"ORG/NAME@{commit}")) == f"ORG/NAME@{commit}"
    with refused("hub-offline"):
        target_folder("ORG/NAME")


def test_weights_have_revision_of_configs(online, monkeypatch):
    folder = target_folder("ORG/NAME")
    monkeypatch.setitem(REVISIONS, "main", REVISIONS["v1.0"])
    fetch_weights(folder)
    assert model_id(folder) == f"ORG/NAME@{COMMIT}"
    assert online.commits == {COMMIT} and "model.safetensors" in online.sent


def test_hub_is_contacted_only_for_missing_weights(online, monkeypatch):
    """A path inside the cache needs no network if the weights exist."""
    folder = target_folder("ORG/NAME")
    fetch_weights(folder)
    (folder / "model.safetensors").unlink()
    fetch_weights(target_folder(str(folder)))
    assert (folder / "model.safetensors").is_file()
    fetched = []
    monkeypatch.setattr(hub, "_fetched", lambda *names: fetched.append(names))
    assert load_pair("/nowhere", target=str(folder), draft="none").model_ids == {"target": model_id(folder)}
    assert not fetched


@pytest.mark.parametrize("name", ["ORG/NAME@", "ORG/NAME@../x", "ORG/NAME@-x", "NAME@main", "ORG/NAME@a b"])
def test_invalid_hub_ids_are_rejected(name):
    assert not is_hub_id(name)


def test_folder_precedes_hub(tmp_path, monkeypatch):
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert target_folder("org/name") == Path("org/name")
    assert target_folder("/no/where") == Path("/no/where")
    assert model_id(TINY / "target") == str(TINY / "target")
