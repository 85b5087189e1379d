"""Facts of each target family that its configs and its processor's files decide, in tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from checkpoint_layouts import edit
from refusals import refused
from tiny_targets import TINY_FAMILIES, noise

from crossspec_ros.models import internvl, smolvlm
from crossspec_ros.models.base import InputSpec
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.preprocess import square_pixels
from crossspec_ros.models.registry import target_architecture, target_spec

NAMES = {
    "video_llava": "Video-LLaVA",
    "llava_onevision": "LLaVA-OneVision",
    "internvl": "InternVL",
    "qwen3_vl": "Qwen3-VL",
    "smolvlm": "SmolVLM2",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("families")
    return {name: family.checkpoint(made / name) for name, family in TINY_FAMILIES.items()}


def changed(folder: Path, to: Path, part: str, values: Any) -> Path:
    """A copy whose config, or a part of it, has these values; None takes one away."""
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text())
    edit(to / "config.json", **({part: config[part] | values} if part else values))
    return to


TEXT, VISION = "text_config", "vision_config"


@pytest.mark.parametrize(
    ("family", "part", "values", "code"),
    [("video_llava", "", {"video_seq_length": 16}, "video-llava-seq-length"),
     ("video_llava", VISION, {"patch_size": 0}, "video-llava-patch-zero"),
     ("video_llava", TEXT, {"max_position_embeddings": None}, "video-llava-positions-none"),
     ("llava_onevision", TEXT, {"model_type": "llama"}, "onevision-text-type"),
     ("llava_onevision", TEXT, {"use_sliding_window": True}, "onevision-sliding-window"),
     ("llava_onevision", VISION, {"model_type": "clip"}, "onevision-vision-type"),
     ("llava_onevision", VISION, {"patch_size": 64}, "onevision-patch-size"),
     ("llava_onevision", VISION, {"image_size": [30, 30]}, "onevision-image-size-list"),
     ("llava_onevision", "", {"vision_feature_select_strategy": "default"}, "onevision-strategy"),
     ("internvl", TEXT, {"model_type": "llama"}, "internvl-text-type"),
     ("internvl", TEXT, {"use_sliding_window": True}, "internvl-sliding-window"),
     ("internvl", VISION, {"model_type": "clip"}, "internvl-vision-type"),
     ("internvl", VISION, {"image_size": 28}, "internvl-image-size"),
     ("internvl", VISION, {"image_size": [32, 64]}, "internvl-no-square"),
     ("internvl", "", {"vision_feature_select_strategy": "full"}, "internvl-strategy"),
     ("internvl", "", {"image_seq_length": 64}, "internvl-seq-length"),
     ("qwen3_vl", VISION, {"patch_size": "wide"}, "qwen3-vl-patch-text"),
     ("qwen3_vl", VISION, {"spatial_merge_size": 0}, "qwen3-vl-merge-zero"),
     ("smolvlm", "", {VISION: []}, "smolvlm-vision-list"),
     ("smolvlm", VISION, {"image_size": 4}, "smolvlm-image-size"),
     ("smolvlm", "", {"scale_factor": 3}, "smolvlm-scale-factor"),
     ("smolvlm", TEXT, {"model_type": "gpt2"}, "smolvlm-text-type")],
)  # fmt: skip
@pytest.mark.parametrize("known", [target_spec, target_architecture])
def test_a_config_of_another_model_is_refused(
    folders: dict[str, Path], tmp_path: Path, family: str, part: str, values: Any, code: str, known: Any
) -> None:
    folder = changed(folders[family], tmp_path / "changed", part, values)
    with refused(code):
        known(folder)


@pytest.mark.parametrize(
    ("family", "part", "values", "code"),
    [("video_llava", "", {"vision_feature_layer": 7}, "video-llava-feature-layer"),
     ("smolvlm", "", {TEXT: None}, "smolvlm-without-text"),
     ("smolvlm", "", {"quantization_config": {"bits": 4}}, "smolvlm-quantised"),
     ("smolvlm", TEXT, {"num_hidden_layers": 9}, "smolvlm-layers"),
     ("smolvlm", VISION, {"patch_size": 16}, "smolvlm-patch-size"),
     ("llava_onevision", "", {"projector_hidden_act": 7}, "onevision-library-activation"),
     ("qwen3_vl", VISION, {"depth": "x"}, "qwen3-vl-library-depth"),
     ("qwen3_vl", TEXT, {"model_type": {}}, "qwen3-vl-library-type")],
)  # fmt: skip
def test_a_config_of_other_weights_is_refused(
    folders: dict[str, Path], tmp_path: Path, family: str, part: str, values: Any, code: str
) -> None:
    folder = changed(folders[family], tmp_path / "changed", part, values)
    with refused(code, library_text="library" in code):
        target_architecture(folder).load(Placement())


@pytest.mark.parametrize(
    ("family", "code"), [("qwen3_vl", "qwen3-vl-without-processor"), ("smolvlm", "smolvlm-without-processor")]
)
def test_a_fine_tune_without_processor_files_is_told_which(
    folders: dict[str, Path], tmp_path: Path, family: str, code: str
) -> None:
    copy = shutil.copytree(
        folders[family], tmp_path / "target", ignore=shutil.ignore_patterns("*preprocessor*")
    )
    with refused(code):
        target_spec(copy)


@pytest.mark.parametrize("most", [-5, True, "large", 8 * 64 - 1])
def test_a_budget_of_pixels_that_is_none_is_refused(
    folders: dict[str, Path], tmp_path: Path, most: object
) -> None:
    copy = shutil.copytree(folders["qwen3_vl"], tmp_path / "target")
    (copy / "video_preprocessor_config.json").write_text(json.dumps({"size": {"longest_edge": most}}))
    with refused("pixel-budget", most=repr(most)):
        target_spec(copy)


QWEN2 = TINY_FAMILIES["internvl"].language
RELEASED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], InputSpec, int]] = {
    "internvl 3-1B": (
        {"model_type": "internvl", "tie_word_embeddings": False},
        {"model_type": "internvl_vision", "attention_bias": True, "image_size": [448, 448]},
        {**QWEN2, "hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14,
         "num_hidden_layers": 24, "num_key_value_heads": 2, "vocab_size": 151674, "eos_token_id": 151645},
        InputSpec(8, 1, 448, 8 * 258 + 7 * 5, 32768, (151645,)),
        938_193_024,
    ),
    "internvl 3.5-8B": (
        {"model_type": "internvl", "tie_word_embeddings": False},
        {"model_type": "internvl_vision", "attention_bias": True, "image_size": [448, 448]},
        {"model_type": "qwen3", "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288,
         "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
         "vocab_size": 151936, "max_position_embeddings": 40960, "eos_token_id": 151645},
        InputSpec(8, 1, 448, 8 * 258 + 7 * 5, 40960, (151645,)),
        8_528_318_464,
    ),
    "smolvlm 500M": (
        {"model_type": "smolvlm", "scale_factor": 4},
        {"model_type": "smolvlm_vision", "hidden_size": 768, "image_size": 512, "num_attention_heads": 12,
         "patch_size": 16, "max_image_size": {"longest_edge": 512}},
        {"model_type": "llama", "head_dim": 64, "hidden_size": 960, "intermediate_size": 2560,
         "num_attention_heads": 15, "num_hidden_layers": 32, "num_key_value_heads": 5,
         "max_position_embeddings": 8192, "vocab_size": 49280, "pad_token_id": 2},
        InputSpec(8, 1, 512, 8 * 67 + 7 * 10, 8192, (2,)),
        507_482_304,
    ),
    "smolvlm 2.2B": (
        {"model_type": "smolvlm", "scale_factor": 3},
        {"model_type": "smolvlm_vision", "hidden_size": 1152, "image_size": 384, "intermediate_size": 4304,
         "num_hidden_layers": 27, "patch_size": 14, "max_image_size": {"longest_edge": 384}},
        {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
         "max_position_embeddings": 8192, "vocab_size": 49280, "pad_token_id": 2},
        InputSpec(8, 1, 384, 8 * 84 + 7 * 10, 8192, (2,)),
        2_246_784_880,
    ),
}  # fmt: skip


@pytest.mark.parametrize("size", RELEASED)
def test_the_released_sizes(tmp_path: Path, size: str) -> None:
    top, vision, text, expected, parameters = RELEASED[size]
    values = {**top, VISION: vision, TEXT: text}
    (tmp_path / "config.json").write_text(json.dumps(values))
    (tmp_path / "preprocessor_config.json").write_text("{}")
    known = target_architecture(tmp_path)
    assert target_spec(tmp_path) == known.spec == expected
    assert sum(parameter.numel() for parameter in known.skeleton().parameters()) == parameters


@pytest.mark.parametrize(
    ("family", "spec", "cached", "tower"),
    [("llava_onevision", InputSpec(8, 1, 30, 8 * 16, 2048, ()), 2 * 2 * 2 * 16, 49 * (6 * 32 + 4 * 64)),
     ("internvl", InputSpec(8, 1, 32, 8 * 18 + 7 * 5, 2048, ()), 2 * 2 * 2 * 16, 65 * (6 * 32 + 4 * 64)),
     ("qwen3_vl", InputSpec(8, 2, 40, 4 * (13 + 48 + 2), 2048, (), 3, 2), 2 * 3 * 2 * 16,
      192 * (6 * 32 + 4 * 48)),
     ("smolvlm", InputSpec(8, 1, 64, 8 * 19 + 7 * 10, 2048, ()), 2 * 3 * 2 * 16, 64 * (6 * 32 + 4 * 48)),
     ("video_llava", InputSpec(8, 1, 64, 8 * 17, 1024, ()), None, None)],
)  # fmt: skip
def test_the_tiny_ones(
    folders: dict[str, Path], tmp_path: Path, family: str, spec: InputSpec, cached: int, tower: int
) -> None:
    known = target_architecture(folders[family])
    assert InputSpec(**{**vars(known.spec), "eos_ids": ()}) == spec
    assert target_spec(folders[family]) == known.spec
    if cached:
        assert (known.sizes.cached, known.sizes.tower) == (cached, tower)
    # Without what generation_config.json says, the text's own end of sequence is the only one.
    copy = shutil.copytree(folders[family], tmp_path / "copy")
    (copy / "generation_config.json").unlink()
    assert target_spec(copy).eos_ids == known.spec.eos_ids[:1]


def test_the_released_edges_of_llava_onevision(folders: dict[str, Path], tmp_path: Path) -> None:
    edges = {"image_size": 384, "patch_size": 14}
    folder = changed(folders["llava_onevision"], tmp_path / "released", VISION, edges)
    assert target_spec(folder).frame_tokens == target_architecture(folder).spec.frame_tokens == 8 * 196


# Digests of what `InternVLVideoProcessor` makes of these frames, with torchvision 0.29.2.
@pytest.mark.parametrize(
    ("height", "width", "side", "digest"),
    [(270, 480, 64, 0xCE7A16D3), (401, 225, 64, 0x77CA10C1), (31, 47, 64, 0xBFDD1327),
     (64, 64, 64, 0x5A93BBAE), (480, 640, 448, 0x4A1E9D14)],
)  # fmt: skip
def test_pixels_of_internvl_are_bit_for_bit_those_of_its_processor(
    height: int, width: int, side: int, digest: int
) -> None:
    made = square_pixels(noise(2, height, width, seed=2), side, internvl.MEAN, internvl.STD)
    assert crc32(made.numpy().tobytes()) == digest


RECORDED = np.load(Path(__file__).parent / "recorded" / "smolvlm_pixels.npz")


@pytest.mark.parametrize("name", ["landscape", "portrait", "tiny", "odd", "wide", "square"])
def test_pixels_of_smolvlm_are_bit_for_bit_those_of_its_processor(name: str) -> None:
    side = int(RECORDED[f"{name}_side"])
    made = smolvlm.frame_pixels(RECORDED[f"{name}_frame"][None], side, 4 * side)
    assert made.shape == (1, 3, side, side)
    np.testing.assert_array_equal(made[0, :, :: side // 32, :: side // 32], RECORDED[f"{name}_pixels"])
