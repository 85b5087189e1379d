"""The benchmark of structured captions compares them with the world's truth."""

from __future__ import annotations

import json

import pytest
from crossspec_lab.world import questions
from crossspec_lab.world.scene import drive

from crossspec_ros.cli import main


@pytest.mark.nightly
def test_ours_is_as_right_as_the_target_alone(tmp_path):
    out = tmp_path / "structured.json"
    assert main(["bench", "structured", "--windows", "3", "--json", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert {mode["equal"] for mode in figures["modes"].values()} == {3}
    assert set(figures["right"]) == {*questions.SCHEMA["required"], "all"}


def test_each_scene_has_a_true_answer_of_the_schema():
    values = questions.SCHEMA["properties"]
    for seed in range(40):
        for scene in drive(seed, 4):
            told = questions.truth(scene)
            assert list(told) == list(values) and all(told[name] in values[name]["enum"] for name in told)
