"""The parameters of a replay fit the recording, the models and the configuration, or nothing starts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from stand_ins import write_models

from crossspec_ros.captioning.replay_parameters import replay_parameters
from crossspec_ros.captioning.setup import ReplaySetup
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.ros.graph import live_graph


def given(*arguments, **more):
    """The parameters of synchronizer, captioner and player."""
    return list(replay_parameters(*arguments, **more).nodes.values())


def sizes(synchronizer):
    return synchronizer["frame_size"], synchronizer["event_image_size"]


@pytest.fixture
def bag(shared):
    return shared / "data" / "events_real" / "evt3_bag"


@pytest.fixture
def models(tmp_path):
    return write_models(tmp_path / "models")


def test_the_nodes_get_what_recording_models_and_arguments_say(bag, models):
    question = 'Is it "yes": or {no}?'
    synchronizer, captioner, player = given(bag, models, question, rate=2.5, mode="autoregressive")
    assert synchronizer["event_type"] == "event_camera_msgs/EventPacket"
    assert sizes(synchronizer) == (24, 32)
    told = {"question": question, "mode": "autoregressive", "models.folder": str(models)}
    assert captioner.items() >= told.items()
    assert player["rate"] == 2.5


def test_a_window_has_as_many_frames_as_the_target_takes(bag, models):
    config = models / "target" / "config.json"
    values = json.loads(config.read_text())
    config.write_text(json.dumps(values | {"video_seq_length": 3 * 10}))
    assert given(bag, models)[0]["frames"] == 3
    assert live_graph("topics", models=models).processes[0].parameters["frames"] == 3


def test_images_beside_a_recording_reach_the_player(models, tmp_path):
    recording = tmp_path / "events.npz"
    np.savez(recording, t_us=[5, 900_000], x=[1, 2], y=[1, 2], p=[0, 1])
    (tmp_path / "pictures").mkdir()
    for name in ("0.1", "0.8"):
        (tmp_path / "pictures" / f"{name}.png").touch()
    synchronizer, _, player = given(recording, models, asked=ReadOptions(images=tmp_path / "pictures"))
    assert synchronizer["image_transport"] == "compressed"
    assert player["images"] == str(tmp_path / "pictures")
    with refused("images-folder-missing", folder=Path.cwd()):
        given(recording, models, asked=ReadOptions(images=Path("nowhere")))
    config = tmp_path / "config.yaml"
    player = {"ros__parameters": {"images": str(tmp_path / "pictures")}}
    config.write_text(json.dumps({"dsec_player": player}))
    assert given(recording, models, config=config)[0]["image_transport"] == "compressed"


def test_the_configuration_goes_over_the_models_and_reaches_the_player(bag, models, tmp_path):
    config = tmp_path / "config.yaml"
    nodes = {
        "synchronizer": {"frame_size": 100, "max_lateness_s": 1},
        "captioner": {"max_new_tokens": 9},
        "dsec_player": {"every_window": True},
    }
    config.write_text(json.dumps({node: {"ros__parameters": values} for node, values in nodes.items()}))
    synchronizer, captioner, player = given(bag, models, config=config)
    # As overrides too, for in a namespace the file's names are not those of the nodes.
    assert captioner["max_new_tokens"] == 9 and player["every_window"] is True
    assert live_graph("topics", models=models, config=config).processes[1].parameters["max_new_tokens"] == 9
    assert sizes(synchronizer) == (100, 32)
    assert player["max_lateness_s"] == 1.0
    assert replay_parameters(bag, models, config=config).file == config


def test_all_nodes_have_their_windows_end_where_the_synchronizers_do(bag, models, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("synchronizer: {ros__parameters: {window_phase_s: 0.25}}")
    live = [process.parameters for process in live_graph("topics", models=models, config=config).processes]
    for parameters in given(bag, models, config=config) + live:
        assert parameters["window_phase_s"] == 0.25


def test_standing_questions_without_choices_are_refused_before_anything_starts(bag, models):
    with refused("questions-without-choices"):
        replay_parameters(bag, models, questions=["Is it dark?"])


def test_models_without_their_sizes_are_refused(bag, models):
    (models / "target" / "config.json").write_text(json.dumps({}))
    with refused("target-without-type"):
        given(bag, models)


def test_models_of_their_own_give_their_sizes_and_reach_the_captioner(bag, models, tmp_path, monkeypatch):
    monkeypatch.chdir(write_models(tmp_path / "others", 48, 40))
    placed = {"dtype": "nf4", "device": "cuda:1", "draft_device": "cpu"}
    for graph in (
        given(bag, models, target="target", **placed),
        [
            process.parameters
            for process in live_graph("topics", models=models, target="target", **placed).processes
        ],
    ):
        synchronizer, captioner = graph[:2]
        assert sizes(synchronizer) == (48, 32)
        told = {"target": str(tmp_path / "others" / "target"), "models.dtype": "nf4"}
        told |= {"models.device": "cuda:1", "models.draft_device": "cpu", "models.folder": str(models)}
        assert captioner.items() >= told.items()
    config = tmp_path / "config.yaml"
    config.write_text("captioner: {ros__parameters: {target: target, draft: draft, models.dtype: bf16}}")
    synchronizer, captioner, _ = given(bag, tmp_path / "nowhere", config=config)
    assert sizes(synchronizer) == (48, 40)
    assert captioner["draft"] == str(tmp_path / "others" / "draft")
    with refused("dtype-unknown"):
        given(bag, models, dtype="fp8")


def test_the_released_layouts_give_their_sizes_too(bag, models, tmp_path, shared):
    released = shared / "data" / "eventgpt_tiny"
    assert given(bag, models, draft=str(released))[0]["event_image_size"] == 56
    draft = tmp_path / "EventGPT"
    draft.mkdir()
    config = json.loads((released / "config.json").read_text())
    config["mm_visual_tower"] = "openai/clip-vit-large-patch14-336"
    (draft / "config.json").write_text(json.dumps(config))
    assert given(bag, models, draft=str(draft))[0]["event_image_size"] == 336


def test_a_replay_learns_from_no_other_unless_it_is_asked_to_and_what_is_compared_never_does(
    bag, models, tmp_path
):
    def memory(config):
        return given(bag, models, config=config)[1]["memory"]

    silent, asking = tmp_path / "silent.yaml", tmp_path / "asking.yaml"
    silent.write_text("captioner: {ros__parameters: {threads: 1}}")
    asking.write_text("captioner: {ros__parameters: {memory: auto}}")
    assert (memory(None), memory(silent), memory(asking)) == ("none", "none", "auto")
    assert ReplaySetup(bag, models, config=asking).captioner.memory == "none"
    live = {process.name: process for process in live_graph("topics", models=models).processes}
    assert live["captioner"].parameters["memory"] == "auto"


def test_columns_and_unit_reach_the_player(models, tmp_path):
    t = np.sort(np.random.default_rng(0).integers(0, 10**9, 3000))
    np.save(tmp_path / "x.npy", np.stack([t, t % 241, t % 319, t % 2], axis=1))
    with refused("replay-without-columns"):
        given(tmp_path / "x.npy", models)
    asked = ReadOptions(columns="t,y,x,p", time_unit="ns")
    *_, player = given(tmp_path / "x.npy", models, asked=asked)
    assert ReadOptions.of(player) == asked
    config = tmp_path / "config.yaml"
    config.write_text(
        json.dumps({"dsec_player": {"ros__parameters": {"time_unit": "ns", "columns": "t,y,x,p"}}})
    )
    *_, configured = given(tmp_path / "x.npy", models, config=config)
    assert ReadOptions.of(configured) == asked
    with refused("time-unit-unknown"):
        given(tmp_path / "x.npy", models, asked=ReadOptions(columns="t,y,x,p", time_unit="h"))
