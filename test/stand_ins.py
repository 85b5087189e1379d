"""Configs of a pair of checkpoints without weights."""

from __future__ import annotations

import json

_TOWER = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "patch_size")


def write_models(folder, frame_size=24, event_image_size=32):
    """Write the configs with the sizes of the models' images."""
    (folder / "target").mkdir(parents=True)
    (folder / "draft" / "clip").mkdir(parents=True)
    target = {
        "model_type": "video_llava",
        "text_config": {},
        "vision_config": {"image_size": frame_size, "patch_size": 8},
        "video_seq_length": 8 * ((frame_size // 8) ** 2 + 1),
    }
    (folder / "target" / "config.json").write_text(json.dumps(target))
    (folder / "draft" / "config.json").write_text(json.dumps({"model_type": "EventChat_llama"}))
    tower = {"image_size": event_image_size} | dict.fromkeys(_TOWER, 1)
    (folder / "draft" / "clip" / "config.json").write_text(json.dumps(tower))
    return folder
