"""A model by its hub id: from the hub or its cache, and no weights of what is no such model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from checkpoint_layouts import TINY, copied, weights, write
from huggingface_hub import constants
from refusals import refused
from stand_in_hub import COMMIT, REVISIONS, Hub, stand_in_hub

from crossspec_ros.models.hub import Offer, draft_path, is_hub_id, known_as, offer, target_folder
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import draft_architecture, target_architecture, target_spec

CONFIGS = {"config.json", "generation_config.json"}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache of a machine without a network."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_a_hub_id_that_was_fetched_before(hub: Path) -> None:
    repository = hub / "models--ORG--NAME"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    write(copied("target", repository / "snapshots" / ("0" * 40)), weights("target"), "safetensors")
    folder = target_folder("ORG/NAME")
    assert folder == repository / "snapshots" / ("0" * 40)
    assert target_architecture(folder).tokenizer().get_vocab_size() == 577


@pytest.fixture
def online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    models = {"ORG/NAME": TINY / "target", "ORG/DRAFT": TINY / "draft"}
    with stand_in_hub(monkeypatch, tmp_path / "hub", models, license="mit") as hub:
        yield hub


def test_only_configs_are_fetched_where_no_more_is_asked(online: Hub) -> None:
    folder = target_folder("ORG/NAME", with_weights=False)
    assert target_spec(folder) == target_spec(TINY / "target")
    assert set(online.sent) == CONFIGS
    assert target_folder("ORG/NAME") == folder
    assert {"model.safetensors", "tokenizer.json"} < set(online.sent)
    assert target_architecture(folder).load(Placement())


def test_weights_that_are_no_safetensors_are_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(copied("target", tmp_path / "old"), weights("target"), "bin shards index")
    with stand_in_hub(monkeypatch, tmp_path / "hub", {"ORG/OLD": tmp_path / "old"}) as hub:
        found = offer("ORG/OLD")
        folder = target_folder("ORG/OLD")
    assert found == Offer(sum(hub.sizes("ORG/OLD").values()), found.missing, "", COMMIT)
    assert len(list(folder.glob("pytorch_model-*.bin"))) == 3


def test_a_draft_by_its_hub_id(online: Hub) -> None:
    folder = draft_path("", "ORG/DRAFT", with_weights=False)
    assert folder and "model.safetensors" not in online.sent
    assert draft_path("", "ORG/DRAFT") == folder
    assert draft_architecture(folder).load(Placement())


@pytest.mark.parametrize(
    ("fetch", "code"),
    [(partial(draft_path, ""), "hub-target-as-draft"), (target_folder, "hub-draft-as-target")],
)
def test_the_weights_of_another_model_are_not_fetched(
    online: Hub, fetch: Callable[[str], object], code: str
) -> None:
    name = "ORG/DRAFT" if fetch is target_folder else "ORG/NAME"
    with refused(code):
        fetch(name)
    assert "model.safetensors" not in online.sent


def test_what_the_hub_says_of_a_model_before_its_download(online: Hub) -> None:
    online.pretended = {"model-00002.safetensors": 10**10, "README.md": 10**4, "pytorch_model.bin": 10**10}
    sizes = online.sizes("ORG/NAME")
    download = sum(sizes.values()) - sizes["README.md"] - sizes["pytorch_model.bin"]
    assert offer("ORG/NAME") == Offer(download, download, "mit", COMMIT)
    assert online.sent == {}
    target_folder("ORG/NAME", with_weights=False)
    assert offer("ORG/NAME") == Offer(download, download - sum(online.sent.values()), "mit", COMMIT)


def test_the_licence_is_that_of_the_card(online: Hub) -> None:
    online.card = {"license": "other", "license_name": "own", "license_link": "LICENSE"}
    found = offer("ORG/NAME")
    assert found and found.licence == "other own LICENSE"


@pytest.mark.parametrize("name", ["ORG/OTHER", "ORG/NAME@v2.0"])
def test_an_unknown_hub_id_is_refused(online: Hub, name: str) -> None:
    with refused("hub-id-unknown", name=name):
        target_folder(name)
    assert offer(name) is None


@pytest.mark.parametrize("revision", ["v1.0", "1" * 40])
def test_a_revision_of_a_model(online: Hub, revision: str) -> None:
    name = f"ORG/NAME@{revision}"
    found = offer(name)
    assert is_hub_id(name) and found and found.revision == REVISIONS["v1.0"]
    folder = target_folder(name)
    assert online.commits == {REVISIONS["v1.0"]}
    assert known_as(folder) == f"ORG/NAME@{REVISIONS['v1.0']}"
    assert target_architecture(folder).load(Placement())
    found = offer(name)
    assert found and found.missing == 0


def test_a_pair_tells_which_revisions_it_is_of(online: Hub) -> None:
    pair = load_pair("/nowhere", target="ORG/NAME@v1.0", draft="ORG/DRAFT")
    commit = REVISIONS["v1.0"]
    assert pair.known_as == {"target": f"ORG/NAME@{commit}", "draft": f"ORG/DRAFT@{COMMIT}"}


def test_a_revision_that_was_fetched_before(
    online: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = target_folder(f"ORG/NAME@{REVISIONS['v1.0']}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert target_folder(f"ORG/NAME@{REVISIONS['v1.0']}") == folder
    with refused("hub-offline"):
        target_folder("ORG/NAME")


def test_weights_are_of_the_revision_of_their_configs(online: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def move(folder: Path) -> object:
        monkeypatch.setitem(REVISIONS, "main", REVISIONS["v1.0"])
        return target_spec(folder)

    monkeypatch.setattr("crossspec_ros.models.hub.target_spec", move)
    assert known_as(target_folder("ORG/NAME")) == f"ORG/NAME@{COMMIT}"
    assert online.commits == {COMMIT} and "model.safetensors" in online.sent


@pytest.mark.parametrize("name", ["ORG/NAME@", "ORG/NAME@../x", "ORG/NAME@-x", "NAME@main", "ORG/NAME@a b"])
def test_what_is_no_revision(name: str) -> None:
    assert not is_hub_id(name)


def test_a_folder_goes_before_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert target_folder("org/name") == Path("org/name")
    assert target_folder("/no/where") == Path("/no/where")
    assert known_as(TINY / "target") == str(TINY / "target")
