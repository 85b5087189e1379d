"""The processes of a replay get their parameters and topics on the command line."""

from __future__ import annotations

import sys

import yaml

from crossspec_ros.captioning.replay_parameters import ReplayParameters
from crossspec_ros.ros.graph import replay_graph


def test_commands_have_the_parameters_the_file_and_the_topics(tmp_path):
    question = 'Is it "yes": or {no}?'
    nodes = {"synchronizer": {"image_transport": "compressed"}, "captioner": {"question": question}}
    graph = replay_graph(ReplayParameters(tmp_path / "replay.yaml", {**nodes, "dsec_player": {"rate": 2.5}}))
    synchronizer, captioner, player = (process.command() for process in graph)
    assert captioner[:4] == [sys.executable, "-m", "crossspec_ros.ros.captioner", "--ros-args"]
    assert captioner[4:6] == ["--params-file", str(tmp_path / "replay.yaml")]
    given = [word.partition(":=") for word in captioner if word.startswith("question:=")]
    assert [yaml.safe_load(value) for _, _, value in given] == [question]
    assert "frame:=synchronizer/frame" in captioner and "rate:=2.5" in player
    assert "image:=camera/image_raw/compressed" in synchronizer
