"""Heads are loaded from their own files and from published formats; other files are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from crossspec_lab.heads.eagle import Eagle
from crossspec_lab.heads.head import Head, Sizes
from crossspec_lab.heads.head_files import load_head, make_head, save_head
from crossspec_lab.heads.medusa import Medusa
from crossspec_lab.train.head_training import VARIANTS, new_head
from plain_eagle import QWEN3
from refusals import refused
from safetensors.torch import load_file, save_file

from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import share_dir


@pytest.fixture
def sizes(pair: ModelPair) -> Sizes:
    torch.manual_seed(0)
    return Sizes.of(pair.target, pair.draft)


def write(head: Head, folder: Path, config: dict[str, Any], **names: str) -> None:
    """Write a head in a published format, with beginnings of tensors' names replaced."""
    tensors = head.bfloat16().state_dict()
    for old, new in names.items():
        tensors = {name.replace(old, new, 1): one for name, one in tensors.items()}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))


def check(head: Head, loaded: Head) -> None:
    tensors = loaded.state_dict()
    assert type(loaded) is type(head) and tensors.keys() == head.state_dict().keys()
    assert all(torch.equal(one.to(tensors[name]), tensors[name]) for name, one in head.state_dict().items())
    assert loaded.taps == head.taps and not any(one.requires_grad for one in loaded.parameters())


@pytest.mark.parametrize("name", VARIANTS)
def test_saved_head_is_loaded(name: str, pair: ModelPair, sizes: Sizes, tmp_path: Path) -> None:
    head = new_head(name, sizes).bfloat16()
    save_head(head, tmp_path, {"steps": 0})
    loaded = load_head(tmp_path, pair.target, pair.draft)
    check(head, loaded)
    assert loaded.options == head.options and loaded.dtype == pair.target.dtype


def test_shipped_heads_are_loaded() -> None:
    for name in ("tiny", "smol"):
        folder = share_dir() / "models" / name / "heads" / "massv"
        config = json.loads((folder / "config.json").read_text())
        head = make_head(config["kind"], Sizes(**config["sizes"]), config["options"])
        head.load_state_dict(load_file(folder / "model.safetensors"))


def speculators(folder: Path, sizes: Sizes, **changes: Any) -> Eagle:
    """Write a head of vllm-project/speculators, with changes of its config."""
    flags = {"norm_before_residual": True, "fc_norm": True, "norm_output": True}
    head = Eagle(sizes, layer=QWEN3, draft_vocabulary=288, taps=[1, 2, 4], own_embeddings=True, **flags)
    head.d2t.copy_(torch.randperm(577)[:288].sort().values - torch.arange(288))
    config = {
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 288,
        "eagle_aux_hidden_state_layer_ids": [1, 2, 4],
        "transformer_layer_config": QWEN3,
        **flags,
    }
    # Older files name the layer otherwise.
    write(head, folder, config | changes, **{"layers.0.": "midlayer."})
    return head


def test_published_formats_are_loaded(pair: ModelPair, sizes: Sizes, tmp_path: Path) -> None:
    check(speculators(tmp_path, sizes), load_head(tmp_path, pair.target))
    medusa = Medusa(sizes)
    config = {"model_type": "medusa", "num_heads": 4, "num_hidden_layers": 1, "medusa_fc_bias": False}
    write(medusa, tmp_path, config, blocks="medusa_heads.blocks", lm_heads="medusa_heads.lm_heads")
    check(medusa, load_head(tmp_path, pair.target))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"speculators_model_type": "dflash"}, "eagle-of-another-algorithm"),
        ({"draft_vocab_size": 77}, "eagle-library-weights"),
        ({"transformer_layer_config": QWEN3 | {"model_type": "gpt2"}}, "eagle-layer-type"),
        ({"transformer_layer_config": QWEN3 | {"hidden_size": 4096}}, "eagle-of-another-width"),
        ({"transformer_layer_config": QWEN3 | {"vocab_size": 9}}, "eagle-vocabulary-map"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 5]}, "eagle-tapped-layers"),
    ],
)
def test_other_speculators_heads_are_refused(
    changes: dict[str, Any], code: str, pair: ModelPair, sizes: Sizes, tmp_path: Path
) -> None:
    speculators(tmp_path, sizes, **changes)
    with refused(code, library_text="library" in code):
        load_head(tmp_path, pair.target)


def test_head_of_another_target_is_refused(pair: ModelPair, sizes: Sizes, tmp_path: Path) -> None:
    save_head(new_head("massv", sizes), tmp_path, {})
    config = tmp_path / "config.json"
    own = config.read_text()
    config.write_text(own.replace('"width": 192', '"width": 96'))
    with refused("head-of-another-width"):
        load_head(tmp_path, pair.target)
    config.write_text(own)
    (tmp_path / "model.safetensors").unlink()
    with refused("head-without-weights", library_text=True):
        load_head(tmp_path, pair.target)
