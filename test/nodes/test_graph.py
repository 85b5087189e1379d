"""The processes of a replay fit the recording, the models and the configuration, or nothing starts."""

from __future__ import annotations

import json
import sys

import pytest
import yaml
from stand_ins import write_models

from crossspec_ros.errors import InputError
from crossspec_ros.nodes.graph import replay_graph


@pytest.fixture
def bag(shared):
    return shared / "data" / "events_real" / "evt3_bag"


@pytest.fixture
def models(tmp_path):
    return write_models(tmp_path / "models")


def test_the_nodes_get_what_recording_models_and_arguments_say(bag, models):
    question = 'Is it "yes": or {no}?'
    synchronizer, captioner, player = replay_graph(bag, models, question, rate=2.5, mode="autoregressive")
    assert synchronizer.parameters["event_type"] == "event_camera_msgs/EventPacket"
    assert (synchronizer.parameters["frame_size"], synchronizer.parameters["event_image_size"]) == (24, 32)
    assert captioner.parameters == {"question": question, "mode": "autoregressive", "models": str(models)}
    assert player.parameters["rate"] == 2.5
    command = captioner.command()
    assert command[:4] == [sys.executable, "-m", "crossspec_ros.nodes.captioner", "--ros-args"]
    given = [word.partition(":=") for word in command if word.startswith("question:=")]
    assert [yaml.safe_load(value) for _, _, value in given] == [question]
    assert "frame:=synchronizer/frame" in command


def test_the_configuration_goes_over_the_models_and_reaches_the_player(bag, models, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("synchronizer: {ros__parameters: {frame_size: 100, max_lateness_s: 1}}")
    synchronizer, _, player = replay_graph(bag, models, config=config)
    assert (synchronizer.parameters["frame_size"], synchronizer.parameters["event_image_size"]) == (100, 32)
    assert player.parameters["max_lateness_s"] == 1.0
    assert synchronizer.params_file == config


def test_models_without_their_sizes_are_refused(bag, models):
    (models / "target" / "config.json").write_text(json.dumps({}))
    with pytest.raises(InputError, match=r"lack a readable target/config\.json"):
        replay_graph(bag, models)
