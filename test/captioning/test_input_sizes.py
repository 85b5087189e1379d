"""Number and size of a window's images, from the configs of the models."""

from __future__ import annotations

import json

import pytest
from refusals import refused
from stand_ins import write_models

from crossspec_ros.captioning.input_sizes import with_input_sizes
from crossspec_ros.settings import SynchronizerSettings


def sizes(**values):
    """Return the frames of a window, and the shortest edges of frames and event images in pixels."""
    made = with_input_sizes(SynchronizerSettings(**{name: str(value) for name, value in values.items()}))
    return made.frames, made.frame_size, made.event_image_size


@pytest.fixture
def models(tmp_path):
    return write_models(tmp_path / "models")


def test_sizes_are_those_of_the_models(models, tmp_path):
    others = write_models(tmp_path / "others", 48, 40)
    assert sizes() == (8, 64, 64)
    assert sizes(models_folder=models) == (8, 24, 32)
    assert sizes(models_folder=models, target=others / "target") == (8, 48, 32)
    assert sizes(target=others / "target", draft=others / "draft", models_folder="nowhere") == (8, 48, 40)
    assert sizes(models_folder=models, draft="none") == (8, 24, 0)


def test_window_has_the_frames_that_the_target_takes(models):
    config = models / "target" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"video_seq_length": 3 * 10}))
    assert sizes(models_folder=models)[0] == 3


def test_set_sizes_stay(models):
    own = {"frames": 4, "frame_size": 0, "event_images": 3, "event_image_ms": 10, "event_image_size": 7}
    settings = SynchronizerSettings(**own, models_folder="nowhere")
    assert with_input_sizes(settings) == settings
    made = with_input_sizes(SynchronizerSettings(frame_size=100, models_folder=str(models)))
    assert (made.frames, made.frame_size, made.event_image_size) == (8, 100, 32)


def test_kind_of_event_images_is_the_drafts(models):
    made = with_input_sizes(SynchronizerSettings(models_folder=str(models)))
    assert (made.event_images, made.event_image_ms) == (5, 0)
    draft = models / "draft" / "config.json"
    draft.write_text(json.dumps({"model_type": "eventgpt_plus_qwen", "event_tower": "clip"}))
    made = with_input_sizes(SynchronizerSettings(models_folder=str(models)))
    assert (made.event_images, made.event_image_ms, made.event_image_size) == (8, 25, 32)
    made = with_input_sizes(SynchronizerSettings(models_folder=str(models), event_images=4))
    assert (made.event_images, made.event_image_ms) == (4, 0)
    made = with_input_sizes(SynchronizerSettings(models_folder=str(models), draft="none"))
    assert (made.event_images, made.event_image_ms) == (5, 0)


def test_released_layouts_have_their_sizes(models, tmp_path, shared):
    released = shared / "data" / "eventgpt_tiny"
    assert sizes(models_folder=models, draft=released)[2] == 56
    config = json.loads((released / "config.json").read_text())
    config["mm_visual_tower"] = "openai/clip-vit-large-patch14-336"
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert sizes(models_folder=models, draft=tmp_path)[2] == 336


def test_missing_models_are_refused(models, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with refused("models-folder-missing"):
        sizes(models_folder="nowhere")
    with refused("input-sizes-hub-offline"):
        sizes(models_folder=models, target="ORG/NAME")
    (models / "target" / "config.json").write_text(json.dumps({}))
    with refused("target-without-type"):
        sizes(models_folder=models)
