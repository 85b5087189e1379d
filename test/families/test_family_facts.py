"""Tables of specs and refusals that follow from configs and processor files of each target family."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from checkpoint_layouts import edit, load_target
from refusals import refused
from tiny_targets import QUESTION, TINY_FAMILIES, noise
from transformers import AutoModelForImageTextToText

from crossspec_ros.models import internvl
from crossspec_ros.models.base import InputSpec
from crossspec_ros.models.footprint import cached_numbers
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import TARGETS, target_architecture, target_spec


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = tmp_path_factory.mktemp("families")
    return {name: family.checkpoint(made / name) for name, family in TINY_FAMILIES.items()}


def changed(folder, to, part, values):
    """Copy a checkpoint, and set values in its config or a part of it; None removes a value."""
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text())
    edit(to / "config.json", **({part: config[part] | values} if part else values))
    return to


TEXT, VISION = "text_config", "vision_config"


@pytest.mark.parametrize(
    ("family", "part", "values", "code"),
    [("video_llava", "", {"video_seq_length": 16}, "video-llava-seq-length"),
     ("llava_onevision", TEXT, {"model_type": "llama"}, "onevision-text-type"),
     ("llava_onevision", TEXT, {"use_sliding_window": True}, "onevision-sliding-window"),
     ("llava_onevision", VISION, {"model_type": "clip"}, "onevision-vision-type"),
     ("llava_onevision", VISION, {"patch_size": 64}, "onevision-patch-size"),
     ("llava_onevision", "", {"vision_feature_select_strategy": "default"}, "onevision-strategy"),
     ("internvl", TEXT, {"model_type": "llama"}, "internvl-text-type"),
     ("internvl", TEXT, {"use_sliding_window": True}, "internvl-sliding-window"),
     ("internvl", VISION, {"model_type": "clip"}, "internvl-vision-type"),
     ("internvl", VISION, {"image_size": [32, 64]}, "internvl-no-square"),
     ("internvl", "", {"vision_feature_select_strategy": "full"}, "internvl-strategy"),
     ("internvl", "", {"image_seq_length": 64}, "internvl-seq-length"),
     ("qwen3_vl", VISION, {"spatial_merge_size": 0}, "qwen3-vl-merge-zero"),
     ("qwen3_vl", TEXT, {"model_type": {}}, "qwen3-vl-text-type"),
     ("smolvlm", "", {VISION: []}, "smolvlm-vision-list"),
     ("smolvlm", "", {"scale_factor": 3}, "smolvlm-scale-factor"),
     ("smolvlm", TEXT, {"model_type": "gpt2"}, "smolvlm-text-type"),
     # These are detected with the weights.
     ("smolvlm", "", {"quantization_config": {"bits": 4}}, "smolvlm-quantised"),
     ("smolvlm", TEXT, {"num_hidden_layers": 9}, "smolvlm-layers"),
     ("qwen3_vl", VISION, {"depth": "x"}, "qwen3-vl-library-depth")],
)  # fmt: skip
def test_unsupported_config_is_refused(folders, tmp_path, family, part, values, code):
    folder = changed(folders[family], tmp_path / "changed", part, values)
    with refused(code, library_text="library" in code):
        target_spec(folder)
        target_architecture(folder).load(Placement())


def test_unreachable_token_is_refused(folders, tmp_path):
    """An entry of the vocabulary is not enough."""
    folder = shutil.copytree(folders["internvl"], tmp_path / "target")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    lost = next(token for token in tokenizer["added_tokens"] if token["content"] == internvl.BEGIN)
    tokenizer["added_tokens"].remove(lost)
    tokenizer["model"]["vocab"][lost["content"]] = lost["id"]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with refused("tokenizer-without-token"):
        target_architecture(folder).tokenizer()


@pytest.mark.parametrize(
    ("family", "size", "code"),
    [("qwen3_vl", {"longest_edge": True}, "pixels-true"), ("qwen3_vl", 7, "pixels-of-no-edge"),
     ("qwen3_vl", {"longest_edge": 8 * 64 - 1}, "pixels-too-few"), ("qwen3_vl", None, "pixels-of-no-file"),
     ("smolvlm", None, "size-of-no-file")],
)  # fmt: skip
def test_missing_frame_size_is_refused(folders, tmp_path, family, size, code):
    copy = shutil.copytree(folders[family], tmp_path / "target")
    for file in copy.glob("*preprocessor_config.json"):
        file.unlink()
    if size is not None:
        (copy / "video_preprocessor_config.json").write_text(json.dumps({"size": size}))
    with refused(code):
        target_spec(copy)


@pytest.mark.parametrize(
    ("family", "spec", "cached"),
    [("llava_onevision", InputSpec(8, 1, 30, 8 * 16, 2048, ()), 2 * 2 * 2 * 16),
     ("internvl", InputSpec(8, 1, 32, 8 * 18 + 7 * 5, 2048, ()), 2 * 2 * 2 * 16),
     ("qwen3_vl", InputSpec(8, 2, 40, 4 * (13 + 48 + 2), 2048, (), 3, 2), 2 * 3 * 2 * 16),
     ("smolvlm", InputSpec(8, 1, 64, 8 * 19 + 7 * 10, 2048, ()), 2 * 3 * 2 * 16),
     ("video_llava", InputSpec(8, 1, 64, 8 * 17, 1024, ()), 2 * 5 * 4 * 48)],
)  # fmt: skip
def test_spec_follows_config(folders, tmp_path, family, spec, cached):
    architecture = target_architecture(folders[family])
    assert InputSpec(**{**vars(architecture.spec), "eos_ids": ()}) == spec
    assert target_spec(folders[family]) == architecture.spec
    assert cached_numbers(architecture.text) == cached
    # Without generation_config.json the language model's end of sequence is the only one.
    copy = shutil.copytree(folders[family], tmp_path / "copy")
    (copy / "generation_config.json").unlink()
    assert target_spec(copy).eos_ids == architecture.spec.eos_ids[:1]


HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
SETTINGS = {
    "qwen3_vl": {"video_processor": {**HALF, "size": {"longest_edge": 8 * 48 * 64}, "fps": 2}},
    "llava_onevision": {"video_processor": {
        **HALF, "resample": 3, "size": {"height": 30, "width": 30, "longest_edge": None}}},
    "smolvlm": {"video_processor": {**HALF, "size": {"longest_edge": 256}}},
    "internvl": {
        "image_processor": {"image_mean": [0.485, 0.456, 0.406], "size": {"height": 32, "width": 32}},
        # transformers' defaults, which InternVL3.5 has.
        "video_processor": {"image_mean": [0.48, 0.46, 0.41], "size": {"height": 384, "width": 384}}},
}  # fmt: skip
"""Settings in processor_config.json after saving with transformers 5."""


@pytest.mark.parametrize("name", SETTINGS)
def test_resaved_checkpoint_is_equal(folders, tmp_path, name):
    """Settings of old files are then in processor_config.json, which comes first."""
    AutoModelForImageTextToText.from_pretrained(folders[name]).save_pretrained(tmp_path)
    shutil.copy(folders[name] / "tokenizer.json", tmp_path)
    (tmp_path / "processor_config.json").write_text(json.dumps(SETTINGS[name]))
    for old in ("video_preprocessor_config.json", "preprocessor_config.json"):
        (tmp_path / old).write_text(json.dumps({"image_mean": [0.1, 0.2, 0.3], "size": 7}))
    architecture, before = target_architecture(tmp_path), target_architecture(folders[name])
    assert architecture.spec == before.spec
    again, weights = (one.load(Placement()).state_dict() for one in (architecture, before))
    assert all(torch.equal(again[tensor], weights[tensor]) for tensor in weights)
    (tmp_path / "processor_config.json").write_text(json.dumps({"processor_class": "Any"}))
    with refused("internvl-mean" if name == "internvl" else "target-mean", family=architecture.family):
        target_spec(tmp_path)


@pytest.mark.parametrize("name", TINY_FAMILIES)
@torch.inference_mode()
def test_window_fits_spec(folders, name):
    assert set(TARGETS) == set(TINY_FAMILIES)
    target, spec = load_target(folders[name]), target_spec(folders[name])
    features = target.encode(noise(spec.frames, 2 * spec.image_size, spec.image_size))
    units = [target.unit(one, i) for i, one in enumerate(features)]
    assert 0 < sum(map(len, units)) <= spec.frame_tokens
    assert all(len(unit.positions) == spec.axes for unit in units)
    assert sum(map(len, target.prompt_ids(QUESTION))) + spec.frame_tokens < spec.most_tokens
