"""Questions about a scene, a form to fill in, and the one true answer to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    """Return the one true answer to the schema about a window."""
    claims = attributes(scene)
    return {
        "vehicle": claims["vehicle"],
        "colour": claims.get("vehicle color", NONE),
        "place": claims.get("vehicle place", NONE),
        "motion": claims.get("vehicle motion", NONE),
        "person": claims["person"],
        "light": claims["light"],
        "signal": claims.get("signal color", NONE),
        "speed": scene.ego,
    }


_SPEEDS = {"still": "We stand still.", "slow": "Slow.", "fast": "Fast."}
ANSWERS: dict[str, Callable[[Mapping[str, str]], str]] = {
    "Is there a person, and where?": lambda f: "No." if f["person"] == NONE else f"Yes, {f['person']}.",
    "Which vehicle is there?": lambda f: (
        "None." if f["vehicle"] == NONE else f"A {f['colour']} {f['vehicle']}, {f['motion']}."
    ),
    "What does the traffic light show?": lambda f: (
        "There is none." if f["signal"] == NONE else f"It is {f['signal']}."
    ),
    "What is the light like?": lambda f: f"It is {f['light']}.",
    "How fast are we?": lambda f: _SPEEDS[f["speed"]],
}
"""Standing questions, each with its answer from the form of a window."""


def answer(question: str, scene: Scene) -> str:
    """Return the one true answer to a standing question about a window."""
    return ANSWERS[question](truth(scene))


YES_OR_NO: dict[str, Callable[[Mapping[str, str]], bool]] = {
    "Is a person on the road?": lambda f: f["person"] in ("crossing", "cycling"),
    "Is anybody in sight?": lambda f: f["person"] != NONE,
    "Is a vehicle in front of us?": lambda f: f["place"] == "ahead",
    "Is a vehicle coming closer?": lambda f: f["motion"] == "closer",
    "Is the traffic light red?": lambda f: f["signal"] == "red",
    "Is it dark?": lambda f: f["light"] in ("dim", "night"),
    "Are we moving?": lambda f: f["speed"] != "still",
    "Does the road bend?": lambda f: f["road"] != "straight",
}
"""Standing questions with the answer `yes` or `no`, from the form and the attributes of a window."""


def yes_or_no(question: str, scene: Scene) -> str:
    """Return the true one of `yes` and `no` to a question of `YES_OR_NO` about a window."""
    return "yes" if YES_OR_NO[question](attributes(scene) | truth(scene)) else "no"
