"""Free English says of a scene what is true, in many forms, and what it says can be read back."""

from __future__ import annotations

import numpy as np
import pytest
from crossspec_lab.world.dataset import scenes_of
from crossspec_lab.world.english import caption, claimed
from crossspec_lab.world.phrases import attributes
from crossspec_lab.world.questions import ANSWERS, answer

SCENES = [scenes_of(seed)[-2] for seed in range(600)]


def test_every_caption_claims_the_attributes_of_its_scene_however_it_is_said() -> None:
    for seed, scene in enumerate(SCENES):
        for rng in (None, np.random.default_rng(seed)):
            said = caption(scene, rng)
            assert claimed(said) == attributes(scene), said


def test_captions_are_of_many_forms_and_the_same_scene_is_described_the_same() -> None:
    captions = [caption(scene) for scene in SCENES]
    assert captions == [caption(scene) for scene in SCENES]
    assert len(set(captions)) > 0.9 * len({str(sorted(attributes(scene).items())) for scene in SCENES})
    assert len({said.split()[0] for said in captions}) > 10


@pytest.mark.parametrize("question", ANSWERS)
def test_answers_to_standing_questions_differ_with_what_is_asked(question: str) -> None:
    answers = {answer(question, scene) for scene in SCENES}
    assert 2 < len(answers) < 60
    assert all(said.endswith(".") for said in answers)
