"""A replay's settings come from flags, the configuration, the models and the recording."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from stand_ins import write_models

from crossspec_ros.captioning.replay_setup import ReplaySetup
from crossspec_ros.recordings.options import ReadOptions


@pytest.fixture
def bag(shared):
    return shared / "data" / "events_real" / "evt3_bag"


@pytest.fixture
def models(tmp_path):
    return str(write_models(tmp_path / "models"))


@pytest.fixture
def configured(tmp_path):
    """Return a function that writes a configuration with these parameters."""

    def write(**nodes):
        path = tmp_path / "config.yaml"
        path.write_text(json.dumps({node: {"ros__parameters": values} for node, values in nodes.items()}))
        return path

    return write


def sizes(setup):
    return setup.synchronizer.frame_size, setup.synchronizer.event_image_size


def test_flags_reach_the_nodes(bag, models):
    question = 'Is it "yes": or {no}?'
    flags = {"models": models, "question": question, "rate": 2.5, "mode": "autoregressive", "dtype": None}
    setup = ReplaySetup(bag, flags=flags)
    assert setup.synchronizer.event_type == "event_camera_msgs/EventPacket" and sizes(setup) == (24, 32)
    expected = {"question": question, "mode": "autoregressive", "models.folder": models, "memory": "none"}
    assert setup.nodes["captioner"] == expected | {"schema": ""}
    assert setup.nodes["dsec_player"] == {"every_window": True, "rate": 2.5, "path": str(bag)}
    assert [*setup.nodes][-1] == "dsec_player"


def test_images_of_another_folder_reach_the_player(models, tmp_path, configured):
    recording = tmp_path / "events.npz"
    np.savez(recording, t_us=[5, 900_000], x=[1, 2], y=[1, 2], p=[0, 1])
    (tmp_path / "pictures").mkdir()
    for name in ("0.1", "0.8"):
        (tmp_path / "pictures" / f"{name}.png").touch()
    pictures = str(tmp_path / "pictures")
    setup = ReplaySetup(recording, flags={"models": models, "images": pictures})
    assert setup.nodes["dsec_player"]["images"] == pictures
    assert setup.recording.image_type == "sensor_msgs/msg/CompressedImage"
    with refused("images-folder-missing", folder=Path.cwd()):
        assert ReplaySetup(recording, flags={"models": models, "images": "nowhere"}).recording
    config = configured(dsec_player={"images": pictures})
    assert (
        ReplaySetup(recording, config, {"models": models}).recording.image_type == setup.recording.image_type
    )


def test_nodes_agree_on_windows_and_models(bag, models, configured):
    config = configured(
        synchronizer={"frame_size": 100, "max_lateness_s": 1, "window_phase_s": 0.25},
        captioner={"max_new_tokens": 9, "target": f"{models}/target"},
    )
    setup = ReplaySetup(bag, config, {"models": models})
    assert sizes(setup) == (100, 32) and setup.captioner.max_new_tokens == 9
    assert setup.nodes["synchronizer"]["target"] == f"{models}/target"
    assert all(values["window_phase_s"] == 0.25 for values in setup.nodes.values())
    assert setup.nodes["dsec_player"]["max_lateness_s"] == 1.0


def test_standing_questions_without_choices_are_refused(bag, models):
    with refused("questions-without-choices"):
        ReplaySetup(bag, flags={"models": models, "questions": ["Is it dark?"]})


def test_models_by_name_give_their_sizes(bag, models, tmp_path, monkeypatch, configured):
    monkeypatch.chdir(write_models(tmp_path / "others", 48, 40))
    placed = {"dtype": "nf4", "device": "cuda:1", "draft_device": "cpu"}
    setup = ReplaySetup(bag, flags={"models": models, "target": "target", **placed})
    assert sizes(setup) == (48, 32)
    expected = {"target": "target", "models.dtype": "nf4", "models.device": "cuda:1"}
    assert setup.nodes["captioner"].items() >= expected.items()
    config = configured(captioner={"target": "target", "draft": "draft", "models.dtype": "bf16"})
    assert sizes(ReplaySetup(bag, config, {"models": str(tmp_path / "nowhere")})) == (48, 40)
    with refused("dtype-unknown"):
        ReplaySetup(bag, flags={"models": models, "dtype": "fp8"})


def test_replay_has_a_memory_only_if_configured(bag, models, configured):
    flags = {"models": models}
    assert ReplaySetup(bag, flags=flags).captioner.memory == "none"
    assert ReplaySetup(bag, configured(captioner={"threads": 1}), flags).captioner.memory == "none"
    assert ReplaySetup(bag, configured(captioner={"memory": "auto"}), flags).captioner.memory == "auto"


def test_questions_need_a_replay_through_the_nodes(bag, models):
    with refused("replay-when-asked"):
        ReplaySetup(bag, flags={"models": models, "when": "asked"}).check_repeatable()


def test_columns_and_unit_reach_the_player(models, tmp_path, configured):
    t = np.sort(np.random.default_rng(0).integers(0, 10**9, 3000))
    np.save(tmp_path / "x.npy", np.stack([t, t % 241, t % 319, t % 2], axis=1))
    with refused("replay-without-columns"):
        assert ReplaySetup(tmp_path / "x.npy", flags={"models": models}).recording
    layout = {"columns": "t,y,x,p", "time_unit": "ns"}
    for setup in (
        ReplaySetup(tmp_path / "x.npy", flags={"models": models, **layout}),
        ReplaySetup(tmp_path / "x.npy", configured(dsec_player=layout), {"models": models}),
    ):
        assert ReadOptions.of(setup.nodes["dsec_player"]) == ReadOptions.of(layout)
        assert setup.recording.start_ns
    with refused("time-unit-unknown"):
        ReplaySetup(tmp_path / "x.npy", flags={"models": models, **layout, "time_unit": "h"})
