"""Every layout of a checkpoint is read; what is damaged is refused by the name of its file, and never run."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_layouts import copied, edit, save, weights, write
from refusals import refused
from safetensors.torch import load_file, save_file
from tiny_targets import TINY_FAMILIES
from transformers import LlamaConfig, LlamaForCausalLM

from crossspec_ros.captioning.models_digest import models_digest
from crossspec_ros.errors import InputError
from crossspec_ros.models.checkpoint import load_model, read_tensors
from crossspec_ros.models.config_files import read_json
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import draft_architecture, target_architecture

LAYOUTS = (
    "safetensors", "safetensors shards index", "safetensors shards", "bin", "bin shards index", "bin shards",
    "old bin", "old bin shards index",
)  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_holds_the_same(tmp_path: Path, layout: str) -> None:
    tensors = {
        "a.weight": torch.arange(6.0).view(2, 3),
        "b": torch.ones(2, dtype=torch.bfloat16),
        "c": torch.tensor([1]),
    }
    write(tmp_path, tensors, layout)
    stored = read_tensors(tmp_path)
    assert stored.keys() == tensors.keys()
    assert all(torch.equal(stored[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_prefixes_of_wrappers_are_removed(tmp_path: Path, prefix: str) -> None:
    write(tmp_path, {f"{prefix}model.a": torch.ones(1), f"{prefix}lm_head.b": torch.ones(2)}, "safetensors")
    assert set(read_tensors(tmp_path)) == {"model.a", "lm_head.b"}


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "config.json"])
def test_pointers_of_git_lfs_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 123\n")
    with refused("weights-lfs-pointer", name=name):
        read_json(tmp_path / name) if name.endswith("json") else read_tensors(tmp_path)


def test_a_byte_order_mark_before_json_is_read_over(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(tmp_path / "config.json") == {"a": 1}


def shard(folder: Path) -> Path:
    return next(folder.glob("*-00002-of-00003.*"))


class Payload:
    """Pickled code: whoever unpickles it writes a file."""

    def __init__(self, proof: Path) -> None:
        self._proof = str(proof)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return open, (self._proof, "w")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_truncated_file_or_missing_shard_is_named(tmp_path: Path, layout: str) -> None:
    write(tmp_path, {str(i): torch.zeros(999) for i in range(6)}, layout)
    files = [path for path in sorted(tmp_path.iterdir()) if path.suffix != ".json"]
    data = files[-1].read_bytes()
    for left in (0, len(data) // 2, len(data) - 1):
        files[-1].write_bytes(data[:left])
        with pytest.raises(InputError, match=f"'{files[-1]}'"):
            read_tensors(tmp_path)
    if "shards" in layout:
        missing = shard(tmp_path)
        missing.unlink()
        stem = "model.safetensors" if "safetensors" in layout else "pytorch_model.bin"
        code = "indexed-shard-missing" if "index" in layout else "shard-missing"
        with refused(code, shard=missing.name, stem=stem):
            read_tensors(tmp_path)


@pytest.mark.parametrize("how", ["torch", "old torch", "pickle"])
def test_pickled_code_is_never_run(tmp_path: Path, how: str) -> None:
    proof, file = tmp_path / "proof", tmp_path / "pytorch_model.bin"
    content = {"w": torch.zeros(2), "x": Payload(proof)}
    if how == "pickle":
        file.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, file, _use_new_zipfile_serialization=how == "torch")
    with refused("weights-with-code", library_text=True):
        read_tensors(tmp_path)
    assert not proof.exists()
    # The control: it would have run.
    pickle.loads(file.read_bytes()) if how == "pickle" else torch.load(file, weights_only=False)
    assert proof.exists()


@pytest.mark.parametrize(
    ("index", "code"),
    [("{", "index-no-json"), ("[" * 100_000, "index-no-json"), (" " * ((4 << 20) + 1), "index-too-long"),
     ("{}", "index-without-map"), ('{"weight_map": {"a": "../a.safetensors"}}', "index-no-shards"),
     ('{"weight_map": [1]}', "index-no-shards")],
)  # fmt: skip
def test_an_invalid_index_is_named(tmp_path: Path, index: str, code: str) -> None:
    file = tmp_path / "model.safetensors.index.json"
    file.write_text(index)
    with refused(code, library_text=code == "index-no-json"):
        read_tensors(tmp_path)


def changed(**changes: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """The shipped draft's tensors with these instead; None takes one away."""
    return {name: one for name, one in (weights("draft") | changes).items() if one is not None}


TOWER = "model.visual_tower.visual_tower.vision_model.embeddings.position_embedding.weight"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"model.norm.weight": None}, "tensor-missing"),
        ({"model.norm.weight": torch.zeros(127)}, "tensor-too-short"),
        ({"model.norm.weight": torch.zeros(128, dtype=torch.int8)}, "tensor-quantised"),
        ({"model.layers.2.mlp.up_proj.weight": torch.zeros(384, 128)}, "tensor-surplus"),
        ({TOWER: torch.zeros(5, 128)}, "tensor-of-another-tower"),
        # Nothing may run with a random head.
        ({"lm_head.weight": None}, "tensor-of-head-missing"),
    ],
)
def test_tensors_that_do_not_fit(tmp_path: Path, changes: dict[str, torch.Tensor | None], code: str) -> None:
    folder = copied("draft", tmp_path / "draft")
    write(folder, changed(**changes), "safetensors shards index")
    with refused(code):
        draft_architecture(folder).load(Placement())


@pytest.mark.parametrize("name", TINY_FAMILIES)
def test_the_head_is_the_one_that_the_config_says(tmp_path: Path, name: str) -> None:
    """Tied with another head stored, or untied with none: one of both files is wrong."""
    if name == "video_llava":
        pytest.skip("the shipped one is not written here")
    for tied in (True, False):
        folder = TINY_FAMILIES[name].checkpoint(tmp_path / str(tied), tied)
        tensors = dict(load_file(folder / "model.safetensors"))
        head = next((one for one in tensors if one.endswith("lm_head.weight")), "lm_head.weight")
        if tied:
            words = next(one for one in tensors if one.endswith("embed_tokens.weight"))
            save_file(tensors | {head: tensors[words].clone()}, folder / "model.safetensors")
            target_architecture(folder).load(Placement())
            save_file(tensors | {head: torch.randn_like(tensors[words])}, folder / "model.safetensors")
        else:
            del tensors[head]
            save_file(tensors, folder / "model.safetensors")
        with refused("head-tied-but-stored" if tied else "head-untied-but-missing"):
            target_architecture(folder).load(Placement())


@pytest.mark.parametrize(("dtype", "works"), [("nf4", False), ("int8", True)])
def test_widths_that_nf4_cannot_hold(dtype: str, works: bool) -> None:
    config = LlamaConfig(
        hidden_size=96, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, vocab_size=9
    )
    tensors = LlamaForCausalLM(config).state_dict()

    def load() -> Any:
        return load_model(LlamaForCausalLM, (config,), Path("x"), tensors, Placement(dtype), "cpu", ())

    if works:
        assert torch.isfinite(load()(torch.tensor([[1, 2]])).logits).all()
    else:
        with refused("nf4-width"):
            load()


@pytest.mark.parametrize("name", ["target", "draft"])
@pytest.mark.parametrize(
    ("change", "code"),
    [("{", "config-no-json"), (" " * ((4 << 20) + 1), "config-too-long"),
     ({"model_type": None}, "config-without-type"),
     ({"quantization_config": {"bits": 4}}, "config-quantised"),
     ({"vision_config": None, "hidden_size": None}, "config-without-sizes"),
     ({"text_config": {"hidden_size": "wide"}, "hidden_size": "wide"}, "config-width-text")],
)  # fmt: skip
def test_an_invalid_config_is_named(
    tmp_path: Path, name: str, change: str | dict[str, object], code: str
) -> None:
    folder = copied(name, tmp_path / name)
    write(folder, weights(name), "safetensors")
    file = folder / "config.json"
    file.write_text(change) if isinstance(change, str) else edit(file, **change)
    lost, model = ("vision_config", "Video-LLaVA") if name == "target" else ("hidden_size", "EventGPT")
    is_of_library = code in ("config-no-json", "config-width-text")
    with refused(code, library_text=is_of_library, name=name, lost=lost, model=model):
        (target_architecture if name == "target" else draft_architecture)(folder).load(Placement())


def test_a_single_file_wins_over_shards_left_from_before(tmp_path: Path) -> None:
    write(tmp_path, {str(i): torch.zeros(1) for i in range(6)}, "safetensors shards index")
    save(tmp_path / "model.safetensors", {"0": torch.ones(1)})
    assert set(read_tensors(tmp_path)) == {"0"}


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({"a": torch.zeros(4)}, tmp_path / "model.safetensors")

    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    # Rights are no limit where the tests run as root.
    with refused("weights-not-permitted"), monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        models_digest([tmp_path])


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("model-Q4.gguf", "checkpoint-is-gguf"),
        ("model.safetensors", "checkpoint-is-file"),
        ("lora/adapter_config.json", "checkpoint-is-adapter"),
        ("quantised/model-Q4.gguf", "checkpoint-holds-gguf"),
    ],
)
def test_other_files_are_named_with_what_to_do(tmp_path: Path, name: str, code: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("{}")
    folder = file if file.parent == tmp_path else file.parent
    with refused(code):
        read_json(folder / "config.json")
    if folder.is_dir():
        with refused(code):
            read_tensors(folder)
