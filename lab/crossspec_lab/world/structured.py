"""The schema of structured captions of a scene, and the one true answer."""

from __future__ import annotations

from typing import Any

from crossspec_lab.world.scene import (
    EGO_SPEED,
    LIGHTS,
    VEHICLE_COLORS,
    Scene,
)

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
QUESTION = "Fill in what is in this scene."


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
