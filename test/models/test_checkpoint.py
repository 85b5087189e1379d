"""Every layout of a checkpoint is read, damaged files are refused by name, and no pickled code runs."""

from __future__ import annotations

import pytest
import torch
from checkpoint_layouts import copied, edit, save, weights, write
from refusals import refused
from safetensors.torch import load_file, save_file
from tiny_targets import TINY_FAMILIES

from crossspec_ros.errors import InputError
from crossspec_ros.models.checkpoint import read_tensors
from crossspec_ros.models.config_files import processor_settings, read_json
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import draft_architecture, target_architecture
from crossspec_ros.models.text_tokenizer import load_tokenizer

LAYOUTS = ("safetensors", "safetensors shards index", "bin", "bin shards index", "old bin")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_have_same_tensors(tmp_path, layout):
    """A truncated file or a missing shard is named."""
    tensors = {
        "a.weight": torch.arange(600.0).view(2, 300),
        "b": torch.ones(200, dtype=torch.bfloat16),
        "c": torch.tensor([1]),
    }
    write(tmp_path, tensors, layout)
    stored = read_tensors(tmp_path)
    assert stored.keys() == tensors.keys()
    assert all(torch.equal(stored[name], tensor) for name, tensor in tensors.items())
    last = max(path for path in tmp_path.iterdir() if path.suffix != ".json")
    data = last.read_bytes()
    for left in (0, len(data) // 2, len(data) - 1):
        last.write_bytes(data[:left])
        with pytest.raises(InputError, match=f"'{last}'"):
            read_tensors(tmp_path)
    last.unlink()
    with pytest.raises(InputError, match=f"'{last}'" if "shards" in layout else "has neither"):
        read_tensors(tmp_path)


READERS = {
    "model.safetensors": lambda file: read_tensors(file.parent),
    "pytorch_model.bin": lambda file: read_tensors(file.parent),
    "config.json": read_json,
    "tokenizer.json": lambda file: load_tokenizer(file.parent, 500),
    "tokenizer.model": lambda file: load_tokenizer(file.parent, 500),
    "a.gguf": target_architecture,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    ("content", "meaning"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 123\n", "is a Git LFS pointer"),
        ("\n<!DOCTYPE html>\n<html>", "is an HTML page"),
        ('<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code>', "is a server's answer"),
    ],
)
def test_placeholder_files_are_refused(tmp_path, name, content, meaning):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=f"'{tmp_path / name}' {meaning}: "):
        READERS[name](tmp_path / name)


def test_json_may_have_byte_order_mark(tmp_path):
    (tmp_path / "config.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(tmp_path / "config.json") == {"a": 1}


class Payload:
    """Pickled code that writes a file when it is unpickled."""

    def __init__(self, proof):
        self._proof = str(proof)

    def __reduce__(self):
        return open, (self._proof, "w")


def test_pickled_code_is_never_run(tmp_path):
    proof, file = tmp_path / "proof", tmp_path / "pytorch_model.bin"
    torch.save({"w": torch.zeros(2), "x": Payload(proof)}, file)
    with refused("weights-with-code", library_text=True):
        read_tensors(tmp_path)
    assert not proof.exists()
    # As a control, torch runs it without `weights_only`.
    torch.load(file, weights_only=False)
    assert proof.exists()


def changed(**changes):
    """Return the shipped draft's tensors with changes; None removes a tensor."""
    return {name: one for name, one in (weights("draft") | changes).items() if one is not None}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"model.norm.weight": None}, "tensor-missing"),
        ({"model.norm.weight": torch.zeros(127)}, "tensor-too-short"),
        ({"model.layers.2.mlp.up_proj.weight": torch.zeros(384, 128)}, "tensor-surplus"),
    ],
)
def test_misfitting_tensors_are_refused(tmp_path, changes, code):
    folder = copied("draft", tmp_path / "draft")
    write(folder, changed(**changes), "safetensors")
    with refused(code):
        draft_architecture(folder).load(Placement())


@pytest.mark.parametrize("name", TINY_FAMILIES)
def test_missing_head_is_refused(tmp_path, name):
    """Otherwise transformers would run the family with a random head."""
    if name == "video_llava":
        pytest.skip("the shipped one is not written here")
    folder = TINY_FAMILIES[name].checkpoint(tmp_path / "untied")
    tensors = dict(load_file(folder / "model.safetensors"))
    del tensors[next(one for one in tensors if one.endswith("lm_head.weight"))]
    save_file(tensors, folder / "model.safetensors")
    with refused("head-untied-but-missing"):
        target_architecture(folder).load(Placement())


@pytest.mark.parametrize("name", ["target", "draft"])
@pytest.mark.parametrize(
    ("change", "code"),
    [("{", "config-no-json"), (" " * ((4 << 20) + 1), "config-too-long"),
     ({"model_type": None}, "config-without-type"),
     ({"quantization_config": {"bits": 4}}, "config-quantised"),
     ({"vision_config": None, "hidden_size": None}, "config-without-sizes"),
     ({"text_config": {"hidden_size": "wide"}, "hidden_size": "wide"}, "config-width-text")],
)  # fmt: skip
def test_invalid_config_file_is_refused(tmp_path, name, change, code):
    folder = copied(name, tmp_path / name)
    file = folder / "config.json"
    file.write_text(change) if isinstance(change, str) else edit(file, **change)
    lost, model = ("vision_config", "Video-LLaVA") if name == "target" else ("hidden_size", "EventGPT")
    is_of_library = code in ("config-no-json", "config-width-text")
    with refused(code, library_text=is_of_library, name=name, lost=lost, model=model):
        (target_architecture if name == "target" else draft_architecture)(folder)


def test_nf4_needs_widths_of_full_blocks(tmp_path):
    """bitsandbytes computes wrong products of other widths."""
    pytest.importorskip("bitsandbytes")
    folder = TINY_FAMILIES["qwen3_vl"].checkpoint(tmp_path / "target")
    with refused("nf4-width"):
        target_architecture(folder).load(Placement("nf4"))


def test_tied_config_with_own_head_is_refused(tmp_path):
    """transformers would use the head, and only warn."""
    folder = TINY_FAMILIES["qwen3_vl"].checkpoint(tmp_path / "target", False)
    edit(folder / "config.json", tie_word_embeddings=True)
    with refused("head-tied-but-stored"):
        target_architecture(folder).load(Placement())
    tied = TINY_FAMILIES["qwen3_vl"].checkpoint(tmp_path / "tied", True)
    target_architecture(tied).load(Placement())


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_fsdp_wrapped_module."])
def test_names_lose_wrapper_prefixes(tmp_path, prefix):
    """DDP, torch.compile and FSDP add them; FSDP and compiled layers also inside names."""
    one, two = torch.ones(1), torch.ones(1)
    save(tmp_path / "model.safetensors", {f"{prefix}a.0._orig_mod.w": one, f"{prefix}module": two})
    assert read_tensors(tmp_path).keys() == {"a.0.w", "module"}
    save(tmp_path / "model.safetensors", {"module.a": one, "b": two})
    assert read_tensors(tmp_path).keys() == {"module.a", "b"}


def test_missing_processor_file_names_base_model(tmp_path):
    (tmp_path / "config.json").write_text('{"_name_or_path": "Qwen/Qwen3-VL-2B-Instruct"}')
    with refused("processor-of-base"):
        processor_settings(tmp_path, "Qwen3-VL", needed=["size"])


def test_single_file_precedes_shards(tmp_path):
    write(tmp_path, {str(i): torch.zeros(1) for i in range(6)}, "safetensors shards index")
    save(tmp_path / "model.safetensors", {"0": torch.ones(1)})
    assert set(read_tensors(tmp_path)) == {"0"}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("model-Q4.gguf", "checkpoint-is-gguf"),
        ("model.safetensors", "checkpoint-is-file"),
        ("lora/adapter_config.json", "checkpoint-is-adapter"),
        ("quantised/model-Q4.gguf", "checkpoint-holds-gguf"),
    ],
)
def test_unsupported_files_have_remedy(tmp_path, name, code):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("{}")
    folder = file if file.parent == tmp_path else file.parent
    with refused(code):
        read_json(folder / "config.json")
