"""Free English describes a scene truly, in many forms, and its attributes can be read back."""

from __future__ import annotations

import numpy as np
import pytest
from crossspec_lab.world.dataset import scenes_of
from crossspec_lab.world.english import caption, claimed
from crossspec_lab.world.phrases import attributes
from crossspec_lab.world.questions import ANSWERS, answer

SCENES = [scenes_of(seed)[-2] for seed in range(600)]


def test_caption_claims_exactly_its_scenes_attributes() -> None:
    for seed, scene in enumerate(SCENES):
        for rng in (None, np.random.default_rng(seed)):
            text = caption(scene, rng)
            assert claimed(text) == attributes(scene), text


def test_captions_have_many_forms_and_are_deterministic() -> None:
    captions = [caption(scene) for scene in SCENES]
    assert captions == [caption(scene) for scene in SCENES]
    assert len(set(captions)) > 0.9 * len({str(sorted(attributes(scene).items())) for scene in SCENES})
    assert len({text.split()[0] for text in captions}) > 10


@pytest.mark.parametrize("question", ANSWERS)
def test_answers_to_standing_questions_differ(question: str) -> None:
    answers = {answer(question, scene) for scene in SCENES}
    assert 2 < len(answers) < 60
    assert all(text.endswith(".") for text in answers)
