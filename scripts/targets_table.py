"""Write the tables of targets and machines into docs/real_models.md: `python scripts/targets_table.py`.

All figures are `crossspec doctor`'s estimates, from the values that the configs of the releases had when this
was written. Nothing is downloaded. test/test_targets_table.py fails where the tables differ.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from reference_pages import ROOT, table, with_blocks

sys.path.insert(0, str(ROOT / "lab"))

from crossspec_lab.bench.random_pair import released_pair

from crossspec_ros.models.footprint import Footprint, estimate
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import TargetArchitecture, target_architecture

PAGES = (ROOT / "docs" / "real_models.md",)
DTYPES = ("bf16", "int8", "nf4")
_SCRATCH = tempfile.TemporaryDirectory()
"""Folders of the releases, which are read as long as this process runs."""
SYSTEM_BYTES = 2_500_000_000
"""Memory of the system, the nodes and Python on a machine whose GPU and CPU share their memory."""


@dataclass(frozen=True)
class Machine:
    """A machine by the memory of its GPU, which the CPU shares on a Jetson."""

    memory_gb: int
    shared: bool


MACHINES = {
    "Jetson Orin Nano, 8 GB": Machine(8, shared=True),
    "Jetson Orin NX, 16 GB": Machine(16, shared=True),
    "Jetson AGX Orin, 64 GB": Machine(64, shared=True),
    "laptop GPU, 8 GB": Machine(8, shared=False),
    "laptop GPU, 12 GB": Machine(12, shared=False),
    "card, 24 GB": Machine(24, shared=False),
}


def main() -> None:
    """Write every page anew and print the names of changed ones."""
    for page in PAGES:
        old = page.read_text()
        new = with_blocks(old, BLOCKS)
        if new != old:
            page.write_text(new)
            print(page.relative_to(ROOT))


def fits(machine: Machine, footprint: Footprint, with_draft: bool) -> bool:
    """Test whether both models, or the target alone, fit on a machine."""
    # A card has 7 % more than its nominal size: room for the screen and the driver.
    room = machine.memory_gb * 10**9 - SYSTEM_BYTES * machine.shared
    return sum(footprint.by_device(with_draft).values()) <= room


def targets() -> str:
    """Return a row for each target: frames, tokens, and memory without and with the draft."""
    rows = []
    for name, footprints in _footprints().items():
        sizes = (
            " / ".join(f"{sum(found.by_device(with_draft).values()) / 1e9:.1f}" for found in footprints)
            for with_draft in (False, True)
        )
        spec = _targets()[name].spec
        rows.append((name, f"{spec.frames}", f"{spec.frame_tokens}", *sizes))
    dtypes = " / ".join(DTYPES)
    heads = (
        "target",
        "frames",
        "tokens of the frames",
        f"target only, GB in {dtypes}",
        f"with EventGPT-7B, in {dtypes}",
    )
    return table(heads, rows)


def choice() -> str:
    """Return the largest target on each machine: in half precision, in nf4, and with the draft."""
    rows = []
    for name, machine in MACHINES.items():
        cells = []
        for dtype, with_draft in CHOICES:
            there = [
                name
                for name, found in _footprints().items()
                if fits(machine, found[DTYPES.index(dtype)], with_draft)
            ]
            cells.append(there[-1] if there else "none")
        rows.append((name, *cells))
    return table(("machine", "target only, bf16", "target only, nf4", "with EventGPT-7B, both in nf4"), rows)


CHOICES = (("bf16", False), ("nf4", False), ("nf4", True))
BLOCKS = {function.__name__: function for function in (targets, choice)}


@cache
def _footprints() -> dict[str, list[Footprint]]:
    """Return footprints in each of `DTYPES` by target, from the smallest to the largest."""
    found, (_, draft) = {}, released_pair()
    for name, target in _targets().items():
        found[name] = [estimate(Placement(dtype, "cuda:0"), target, draft) for dtype in DTYPES]
    return dict(sorted(found.items(), key=lambda item: item[1][0].target.weights))


@cache
def _targets() -> dict[str, TargetArchitecture]:
    """Return the targets by name."""
    found = {}
    for name, files in _releases():
        folder = Path(_SCRATCH.name) / name
        folder.mkdir()
        for file, values in files.items():
            (folder / file).write_text(json.dumps(values))
        found[name] = target_architecture(folder)
    return found | {"Video-LLaVA-7B": released_pair()[0]}


def _releases() -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Yield the name of each release with the relevant JSON files of its folder."""
    base = _siglip(768, 3072, 12, 12, 512, 16)
    large = _siglip(1152, 4304, 27, 16, 384, 14)
    yield "SmolVLM2-256M", _smolvlm(_text(576, 1536, 30, 9, 3, 49280), base, 4)
    yield "SmolVLM2-500M", _smolvlm(_text(960, 2560, 32, 15, 5, 49280), base, 4)
    yield "SmolVLM2-2.2B", _smolvlm(_text(2048, 8192, 24, 32, 32, 49280), large, 3)
    yield "LLaVA-OneVision-0.5B", _llava_onevision(_text(896, 4864, 24, 14, 2, 152000), True)
    yield "LLaVA-OneVision-7B", _llava_onevision(_text(3584, 18944, 28, 28, 4, 152064), False)
    small, tower = (1024, 4096, 24, [5, 11, 17]), (1152, 4304, 27, [8, 16, 24])
    yield "InternVL3-1B", _internvl(_text(896, 4864, 24, 14, 2, 151674))
    yield "InternVL3-2B", _internvl(_text(1536, 8960, 28, 12, 2, 151674))
    yield "InternVL3-8B", _internvl(_text(3584, 18944, 28, 28, 4, 151674))
    yield "Qwen3-VL-2B", _qwen3_vl(_text(2048, 6144, 28, 16, 8, 151936), small, True)
    yield "Qwen3-VL-4B", _qwen3_vl(_text(2560, 9728, 36, 32, 8, 151936), small, True)
    yield "Qwen3-VL-8B", _qwen3_vl(_text(4096, 12288, 36, 32, 8, 151936), tower, False)


def _text(width: int, inner: int, layers: int, heads: int, kv_heads: int, vocabulary: int) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
    }


def _siglip(width: int, inner: int, layers: int, heads: int, side: int, patch: int) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "image_size": side,
        "patch_size": patch,
    }


def _smolvlm(text: dict[str, Any], vision: dict[str, Any], scale: int) -> dict[str, dict[str, Any]]:
    config = {
        "model_type": "smolvlm",
        "scale_factor": scale,
        "tie_word_embeddings": False,
        "text_config": text | {"model_type": "llama", "max_position_embeddings": 8192},
        "vision_config": vision | {"model_type": "smolvlm_vision"},
    }
    return {
        "config.json": config,
        "preprocessor_config.json": {"size": {"longest_edge": 4 * vision["image_size"]}},
    }


def _llava_onevision(text: dict[str, Any], tied: bool) -> dict[str, dict[str, Any]]:
    qwen2 = {"model_type": "qwen2", "max_position_embeddings": 32768, "eos_token_id": 151645}
    vision = _siglip(1152, 4304, 26, 16, 384, 14)
    config = {
        "model_type": "llava_onevision",
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
        "tie_word_embeddings": tied,
        "text_config": text | qwen2 | {"tie_word_embeddings": tied},
        "vision_config": vision | {"model_type": "siglip_vision_model", "vision_use_head": False},
    }
    return {"config.json": config}


def _internvl(text: dict[str, Any]) -> dict[str, dict[str, Any]]:
    qwen2 = {"model_type": "qwen2", "max_position_embeddings": 32768, "eos_token_id": 151645}
    config = {
        "model_type": "internvl",
        "tie_word_embeddings": False,
        "text_config": text | qwen2 | {"tie_word_embeddings": False},
        "vision_config": {
            "model_type": "internvl_vision",
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "image_size": [448, 448],
            "patch_size": [14, 14],
            "attention_bias": True,
            "use_absolute_position_embeddings": True,
        },
    }
    return {"config.json": config}


def _qwen3_vl(
    text: dict[str, Any], tower: tuple[int, int, int, list[int]], tied: bool
) -> dict[str, dict[str, Any]]:
    width, inner, layers, deepstack = tower
    qwen3 = {
        "model_type": "qwen3_vl_text",
        "head_dim": 128,
        "max_position_embeddings": 262144,
        "eos_token_id": 151645,
        "rope_theta": 5000000,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
        "tie_word_embeddings": tied,
    }
    vision = {
        "model_type": "qwen3_vl",
        "hidden_size": width,
        "intermediate_size": inner,
        "depth": layers,
        "num_heads": 16,
        "out_hidden_size": text["hidden_size"],
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": deepstack,
    }
    config = {
        "model_type": "qwen3_vl",
        "tie_word_embeddings": tied,
        "text_config": text | qwen3,
        "vision_config": vision,
    }
    return {"config.json": config, "video_preprocessor_config.json": {"size": {"longest_edge": 25165824}}}


if __name__ == "__main__":
    main()
