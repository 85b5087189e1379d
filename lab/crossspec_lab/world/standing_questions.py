"""Standing questions about a scene, and the one true answer to each."""

from __future__ import annotations

from collections.abc import Mapping

from crossspec_lab.world.phrases import attributes
from crossspec_lab.world.scene import Scene


def _person_answer(told: Mapping[str, str], scene: Scene) -> str:
    return f"Yes, {told['person']}." if scene.person else "No."


def _vehicle_answer(told: Mapping[str, str], scene: Scene) -> str:
    if not scene.vehicle:
        return "None."
    return f"A {told['vehicle color']} {told['vehicle']}, {told['vehicle motion']}."


def _signal_answer(told: Mapping[str, str], scene: Scene) -> str:
    return f"It is {told['signal color']}." if scene.signal else "There is none."


ANSWERS = {
    "Is there a person, and where?": _person_answer,
    "Which vehicle is there?": _vehicle_answer,
    "What does the traffic light show?": _signal_answer,
    "What is the light like?": lambda told, scene: f"It is {told['light']}.",
    "How fast are we?": lambda told, scene: {
        "still": "We stand still.",
        "slow": "Slow.",
        "fast": "Fast.",
    }[scene.ego],
}
"""Standing questions, each with what answers it."""


def answer(question: str, scene: Scene) -> str:
    """The one true answer to a standing question about a window."""
    return ANSWERS[question](attributes(scene), scene)
