"""Questions about a scene, a form to fill in, and the one true answer to each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crossspec_lab.world.phrases import attributes
from crossspec_lab.world.scene import EGO_SPEED, LIGHTS, VEHICLE_COLORS, Scene

NONE = "none"
_PERSONS = ("standing left", "standing right", "crossing", "cycling")
_VALUES: dict[str, tuple[str, ...]] = {
    "vehicle": ("car", "van", NONE),
    "colour": (*VEHICLE_COLORS, NONE),
    "place": ("ahead", "oncoming", "parked", NONE),
    "motion": ("closer", "away", "steady", NONE),
    "person": (*_PERSONS, NONE),
    "light": (*LIGHTS, "dim"),
    "signal": ("red", "green", NONE),
    "speed": tuple(EGO_SPEED),
}

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"enum": list(values)} for name, values in _VALUES.items()},
    "required": list(_VALUES),
    "additionalProperties": False,
}
FORM_QUESTION = "Fill in what is in this scene."


def truth(scene: Scene) -> dict[str, str]:
    """The one true answer to the schema about a window."""
    vehicle, person, signal = scene.vehicle, scene.person, scene.signal
    return {
        "vehicle": vehicle.kind if vehicle else NONE,
        "colour": vehicle.color if vehicle else NONE,
        "place": vehicle.place if vehicle else NONE,
        "motion": vehicle.motion if vehicle else NONE,
        "person": person.action if person else NONE,
        "light": "dim" if scene.tunnel else scene.light,
        "signal": signal.color if signal else NONE,
        "speed": scene.ego,
    }


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


def _is_on_road(scene: Scene) -> bool:
    return scene.person is not None and scene.person.action in ("crossing", "cycling")


YES_OR_NO = {
    "Is a person on the road?": _is_on_road,
    "Is anybody in sight?": lambda scene: scene.person is not None,
    "Is a vehicle in front of us?": lambda scene: (
        scene.vehicle is not None and scene.vehicle.place == "ahead"
    ),
    "Is a vehicle coming closer?": lambda scene: (
        scene.vehicle is not None and scene.vehicle.motion == "closer"
    ),
    "Is the traffic light red?": lambda scene: scene.signal is not None and scene.signal.color == "red",
    "Is it dark?": lambda scene: scene.tunnel or scene.light == "night",
    "Are we moving?": lambda scene: scene.ego != "still",
    "Does the road bend?": lambda scene: scene.road != "straight",
}
"""Standing questions whose answer is `yes` or `no`, each with what tells."""


def yes_or_no(question: str, scene: Scene) -> str:
    """The true one of `yes` and `no` to a question of `YES_OR_NO` about a window."""
    return "yes" if YES_OR_NO[question](scene) else "no"
