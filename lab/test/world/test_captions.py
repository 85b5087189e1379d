"""Both kinds of captions describe a scene truly, and the attributes that they claim can be read back."""

from __future__ import annotations

import json

import numpy as np
import pytest
from crossspec_lab.world import english, phrases
from crossspec_lab.world.dataset import scenes_of
from crossspec_lab.world.phrases import attributes, claimed
from crossspec_lab.world.questions import ANSWERS, answer
from crossspec_lab.world.scene import drive
from tokenizers import Tokenizer

from crossspec_ros.paths import share_dir, tiny_models

SCENES = [scenes_of(seed)[-2] for seed in range(600)]


def test_captions_claim_exactly_their_scenes_attributes() -> None:
    for seed, scene in enumerate(SCENES):
        drawn = english.caption(scene, np.random.default_rng(seed))
        for text in (phrases.caption(scene), english.caption(scene), drawn):
            assert claimed(text) == attributes(scene), text


def test_fixed_captions_are_35_to_55_tokens_long() -> None:
    tokenizer = Tokenizer.from_file(str(tiny_models() / "target" / "tokenizer.json"))
    texts = (" " + phrases.caption(scene) for scene in SCENES)
    lengths = [len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts]
    assert min(lengths) >= 35 and max(lengths) <= 55


def test_free_captions_have_many_forms() -> None:
    captions = [english.caption(scene) for scene in SCENES]
    assert captions == [english.caption(scene) for scene in SCENES]
    assert len(set(captions)) > 0.9 * len({str(sorted(attributes(scene).items())) for scene in SCENES})
    assert len({text.split()[0] for text in captions}) > 10


@pytest.mark.parametrize("question", ANSWERS)
def test_answers_to_standing_questions_differ(question: str) -> None:
    answers = {answer(question, scene) for scene in SCENES}
    assert 2 < len(answers) < 60 and all(text.endswith(".") for text in answers)


def test_sample_bag_was_made_by_this_world() -> None:
    truth = json.loads((share_dir() / "rosbags" / "synthetic_drive" / "ground_truth.json").read_text())
    scenes = drive(truth["seed"], len(truth["windows"]))
    assert [one["caption"] for one in truth["windows"]] == [phrases.caption(scene) for scene in scenes]
