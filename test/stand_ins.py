"""What is left of a pair of checkpoints when nothing has to be loaded."""

from __future__ import annotations

import json


def write_models(folder, frame_size=24, event_image_size=32):
    """The two files that tell the sizes of the models' images."""
    (folder / "target").mkdir(parents=True)
    (folder / "draft" / "clip").mkdir(parents=True)
    target = {"vision_config": {"image_size": frame_size}}
    (folder / "target" / "config.json").write_text(json.dumps(target))
    (folder / "draft" / "clip" / "config.json").write_text(json.dumps({"image_size": event_image_size}))
    return folder
