"""Every layout of a checkpoint is read; what is damaged is refused by the name of its file, and never run."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_layouts import copied, edit, hub_weights, save, weights, write
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from crossspec_ros.captioning.models_digest import models_digest
from crossspec_ros.drafting.memory_file import target_key
from crossspec_ros.errors import InputError
from crossspec_ros.models.checkpoint import Filling, Stored, stored_tensors
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
    stored = stored_tensors(tmp_path)
    assert {name: (found.shape, found.is_float) for name, found in stored.items()} == {
        "a.weight": ((2, 3), True), "b": ((2,), True), "c": ((1,), False)
    }  # fmt: skip
    assert all(torch.equal(stored[name].lazy[...], tensor) for name, tensor in tensors.items())
    assert all(found.file.is_file() and found.file.parent == tmp_path for found in stored.values())


def test_tensors_that_share_their_numbers_are_read(tmp_path: Path) -> None:
    tied = torch.arange(6.0).view(2, 3)
    torch.save({"embed": tied, "head": tied, "turned": tied.T}, tmp_path / "pytorch_model.bin")
    assert {name: found.shape for name, found in stored_tensors(tmp_path).items()} == {
        "embed": (2, 3), "head": (2, 3), "turned": (3, 2)
    }  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [
        torch.zeros(1).expand(100_000, 200_000),
        torch.empty(5, 5, device="meta"),
        torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.long), torch.zeros(0), (9, 9)),
        {"b": torch.zeros(1)},
    ],
    ids=["expanded", "meta", "sparse", "something else"],
)
def test_a_bin_whose_tensors_have_no_numbers_in_it(tmp_path: Path, content: object) -> None:
    torch.save({"a": content}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pytorch_model.bin' is cut off, damaged, or holds more than"):
        stored_tensors(tmp_path)


def shard(folder: Path) -> Path:
    return next(folder.glob("*-00002-of-00003.*"))


class Payload:
    """Pickled code: whoever unpickles it writes a file."""

    def __init__(self, proof: Path) -> None:
        self._proof = str(proof)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return open, (self._proof, "w")


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if "shards" in layout])
def test_a_missing_shard(tmp_path: Path, layout: str) -> None:
    write(tmp_path, {str(i): torch.zeros(1) for i in range(6)}, layout)
    gone = shard(tmp_path)
    gone.unlink()
    with pytest.raises(InputError, match=f"the shard '{gone}'.* is missing"):
        stored_tensors(tmp_path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_truncated_file(tmp_path: Path, layout: str) -> None:
    write(tmp_path, {str(i): torch.zeros(999) for i in range(6)}, layout)
    files = [path for path in sorted(tmp_path.iterdir()) if path.suffix != ".json"]
    data = files[-1].read_bytes()
    for left in (0, 5, len(data) // 2, len(data) - 1):
        files[-1].write_bytes(data[:left])
        with pytest.raises(InputError, match=f"'{files[-1]}' is cut off"):
            stored_tensors(tmp_path)


@pytest.mark.parametrize("how", ["torch", "old torch", "pickle", "shard"])
def test_pickled_code_is_never_run(tmp_path: Path, how: str) -> None:
    proof, file = tmp_path / "proof", tmp_path / "pytorch_model.bin"
    content = {"w": torch.zeros(2), "x": Payload(proof)}
    if how == "pickle":
        file.write_bytes(pickle.dumps(content, protocol=2))
    elif how == "shard":
        write(tmp_path, {str(i): torch.zeros(1) for i in range(6)}, "bin shards index")
        file = shard(tmp_path)
        torch.save(content, file)
    else:
        torch.save(content, file, _use_new_zipfile_serialization=how == "torch")
    code = ".*" if how == "pickle" else "GLOBAL .*open, which is not run"
    with pytest.raises(InputError, match=rf"'{file}'.* holds more than tensors \({code}\)"):
        stored_tensors(tmp_path)
    assert not proof.exists()
    # The control: it would have run.
    pickle.loads(file.read_bytes()) if how == "pickle" else torch.load(file, weights_only=False)
    assert proof.exists()


@pytest.mark.parametrize(
    ("index", "sentence"),
    [("{", "is no readable JSON"), ("[]", "is no readable JSON"), ("{}", "lacks the value 'weight_map'"),
     ('{"weight_map": {"a": "../a.safetensors"}}', "is no index"), ('{"weight_map": [1]}', "is no index"),
     ('{"weight_map": {"a": 1}}', "is no index"), ("[" * 100_000, "is no readable JSON"),
     (" " * ((4 << 20) + 1), r"is no readable JSON \(it has more than"),
     (json.dumps({"weight_map": {"a": 300 * "x"}}), r"the shard '.*/x{255}', which .* names, is missing")],
)  # fmt: skip
def test_an_index_that_is_none(tmp_path: Path, index: str, sentence: str) -> None:
    file = tmp_path / "model.safetensors.index.json"
    file.write_text(index)
    named = "" if "the shard" in sentence else f"'{file}' "
    with pytest.raises(InputError, match=f"{named}{sentence}"):
        stored_tensors(tmp_path)


def test_a_tensor_that_the_index_names_is_in_no_shard(tmp_path: Path) -> None:
    write(tmp_path, {str(i): torch.zeros(1) for i in range(6)}, "safetensors shards index")
    index = tmp_path / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    edit(index, weight_map=places | {"9": shard(tmp_path).name})
    with pytest.raises(
        InputError, match=f"the tensor '9' is not in '{shard(tmp_path)}', where '{index.name}' has"
    ):
        stored_tensors(tmp_path)


def lacking(tensors: dict[str, torch.Tensor]) -> str:
    del tensors["model.norm.weight"]
    return r"the tensor 'model.norm.weight' is not in '{0}/model-00001-of-00003.safetensors' or .*00003-of"


def misshapen(tensors: dict[str, torch.Tensor]) -> str:
    tensors["model.norm.weight"] = torch.zeros(127)
    return r"'model.norm.weight' in '{0}/model-0000\d-of-00003.safetensors' has shape \(127,\), .* \(128,\)"


def quantised(tensors: dict[str, torch.Tensor]) -> str:
    tensors["model.norm.weight"] = torch.zeros(128, dtype=torch.int8)
    return r"the tensor 'model.norm.weight' in '{0}/model-0000\d-of-00003.safetensors' is quantised"


def one_layer_more(tensors: dict[str, torch.Tensor]) -> str:
    tensors["model.layers.2.mlp.up_proj.weight"] = torch.zeros(384, 128)
    return r"no place for the tensor 'model.layers.2.mlp.up_proj.weight' in '{0}/model-0000\d"


def misshapen_tower(tensors: dict[str, torch.Tensor]) -> str:
    name = "model.visual_tower.visual_tower.vision_model.embeddings.position_embedding.weight"
    tensors[name] = torch.zeros(5, 128)
    return rf"the tensor '{name}' in '{{0}}/model-0000\d"


@pytest.mark.parametrize("spoil", [lacking, misshapen, quantised, one_layer_more, misshapen_tower])
def test_tensors_that_do_not_fit(tmp_path: Path, spoil: Callable[[dict[str, torch.Tensor]], str]) -> None:
    folder, tensors = copied("draft", tmp_path / "draft"), weights("draft")
    sentence = spoil(tensors).format(re.escape(str(folder)))
    write(folder, tensors, "safetensors shards index")
    with pytest.raises(InputError, match=sentence):
        draft_architecture(folder).load(Placement())


@pytest.mark.parametrize(("dtype", "works"), [("nf4", False), ("int8", True)])
def test_widths_that_nf4_cannot_hold(dtype: str, works: bool) -> None:
    config = LlamaConfig(
        hidden_size=96, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4, vocab_size=9
    )
    stored = {
        name: Stored(Path("x"), name, tuple(tensor.shape), True, tensor)
        for name, tensor in LlamaForCausalLM(config).state_dict().items()
    }
    filling = Filling(LlamaForCausalLM, (config,), Path("x"), stored, ())
    if works:
        model = filling.load(Placement(dtype), "cpu")
        assert torch.isfinite(model(torch.tensor([[1, 2]])).logits).all()
    else:
        with pytest.raises(
            InputError, match=r"multiples of 64, but 'model.layers.0.self_attn.q_proj' of 'x' has 96"
        ):
            filling.load(Placement(dtype), "cpu")


def test_a_target_whose_tensors_do_not_fit(tmp_path: Path) -> None:
    folder, tensors = copied("target", tmp_path / "target"), hub_weights()
    tensors["language_model.model.norm.weight"] = torch.zeros(5)
    write(folder, tensors, "bin")
    with pytest.raises(
        InputError, match=r"'language_model.model.norm.weight' in '.*bin' has shape \(5,\), .* \(192,\)"
    ):
        target_architecture(folder).load(Placement())


@pytest.mark.parametrize("name", ["target", "draft"])
@pytest.mark.parametrize(
    ("change", "sentence"),
    [("{", "is no readable JSON"), (" " * ((4 << 20) + 1), r"is no readable JSON \(it has more than"),
     ({"more": {"a": [[0] * 5001]}}, r"is no readable JSON \(a list in it has more than 5000 items"),
     ({"model_type": None}, "lacks the value 'model_type'"),
     ({"model_type": "llama"}, "is of the type llama, not of"),
     ({"quantization_config": {"bits": 4}}, "is of a quantised"),
     ({"vision_config": None, "hidden_size": None}, "lacks the value '(vision_config|hidden_size)'"),
     ({"text_config": {"hidden_size": "wide"}, "hidden_size": "wide"}, "is no config of"),
     ({"text_config": 7, "rms_norm_eps": [1]}, "is no config of")],
)  # fmt: skip
def test_a_config_that_is_none(
    tmp_path: Path, name: str, change: str | dict[str, object], sentence: str
) -> None:
    folder = copied(name, tmp_path / name)
    write(folder, weights(name), "safetensors")
    file = folder / "config.json"
    if isinstance(change, str):
        file.write_text(change)
    else:
        edit(file, **change)
    with pytest.raises(InputError, match=f"'{file}' {sentence}"):
        (target_architecture if name == "target" else draft_architecture)(folder).load(Placement())


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [("text_config", "torch_dtype", 10_000), ("vision_config", "num_attention_heads", -1),
     ("", "vision_feature_layer", 0), ("", "vision_feature_layer", 7),
     ("", "vision_feature_layer", [-2])],
)  # fmt: skip
def test_values_with_which_a_target_could_not_work(
    tmp_path: Path, part: str, name: str, value: object
) -> None:
    folder = copied("target", tmp_path / "target")
    values = json.loads((folder / "config.json").read_text())
    edit(folder / "config.json", **({part: values[part] | {name: value}} if part else {name: value}))
    with pytest.raises(InputError, match=rf"{folder}.* (is no config of|describes no) Video"):
        target_architecture(folder).skeleton()


def test_a_tower_of_no_heads(tmp_path: Path) -> None:
    folder = copied("draft", tmp_path / "draft")
    edit(folder / "clip" / "config.json", num_attention_heads=-1)
    with pytest.raises(InputError, match=rf"config in '{folder}' describes no EventGPTModule \(-1 heads\)"):
        draft_architecture(folder).skeleton()


@pytest.mark.parametrize("architectures", [5, {"LlavaLlamaForCausalLM": 1}])
def test_architectures_that_are_no_list_say_nothing(tmp_path: Path, architectures: object) -> None:
    folder = copied("target", tmp_path / "target")
    edit(folder / "config.json", architectures=architectures, return_dict=False)
    assert target_architecture(folder).config.return_dict


LABELS = {"num_labels": 20_000, "id2label": None, "label2id": {"a": 1}}


def test_labels_take_no_memory(tmp_path: Path) -> None:
    folder = copied("target", tmp_path / "target")
    values = json.loads((folder / "config.json").read_text())
    parts = {name: values[name] | LABELS for name in ("text_config", "vision_config")}
    edit(folder / "config.json", **LABELS, **parts)
    config: Any = target_architecture(folder).config
    assert [part.num_labels for part in (config, config.text_config, config.vision_config)] == [2] * 3


def test_safetensors_whose_header_lies(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(4)}, tmp_path / "model.safetensors")
    data = (tmp_path / "model.safetensors").read_bytes().replace(b"[4]", b"[5]")
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(InputError, match=r"model.safetensors' is cut off or damaged"):
        stored_tensors(tmp_path)


def test_a_single_file_wins_over_shards_left_from_before(tmp_path: Path) -> None:
    write(tmp_path, {str(i): torch.zeros(1) for i in range(6)}, "safetensors shards index")
    save(tmp_path / "model.safetensors", {"0": torch.ones(1)})
    assert set(stored_tensors(tmp_path)) == {"0"}


@pytest.mark.parametrize(
    "read", [lambda folder: models_digest([folder]), lambda folder: target_key(folder, "")]
)
def test_a_file_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], str]
) -> None:
    save_file({"a": torch.zeros(4)}, tmp_path / "model.safetensors")

    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    # Rights are no limit where the tests run as root.
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match=r"model.safetensors' cannot be read \(Permission denied\): let"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("model-Q4.gguf", r"model-Q4\.gguf' is of llama\.cpp's files: download the model's"),
        ("model.safetensors", r"model\.safetensors' is a file: give the folder of the whole checkpoint"),
        ("lora/adapter_config.json", r"lora' is an adapter \(LoRA\) and no whole model: merge it"),
        ("quantised/model-Q4.gguf", r"but a GGUF: name that file itself, '.*model-Q4\.gguf', as the target"),
    ],
)
def test_what_is_no_checkpoint_is_named_with_what_to_do(tmp_path, name, sentence):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("{}")
    folder = file if file.parent == tmp_path else file.parent
    with pytest.raises(InputError, match=sentence):
        read_json(folder / "config.json")
    if folder.is_dir():
        with pytest.raises(InputError, match=sentence):
            stored_tensors(folder)
