"""Captions of a scene, and the attributes that a caption claims.

Order, length (35-55 tokens) and vocabulary follow the captions of Video-LLaVA-7B on DSEC: an enumeration of
the key elements, then the vehicle's place, then the circumstances.
"""

from __future__ import annotations

from crossspec_lab.world.scene import Scene

QUESTION = "What are the key elements in this scene?"

_ROAD = {"straight": "straight road", "left": "road bending left", "right": "road bending right"}
_PLACE = {
    "ahead": ("driving down", "in front of us"),
    "oncoming": ("coming up", "in the oncoming lane"),
    "parked": ("parked along", "by the roadside"),
}
_MOTION = {"closer": "getting closer", "away": "pulling away", "steady": "keeping its distance"}
_PERSON = {
    "standing left": "a person in {} standing on the left",
    "standing right": "a person in {} standing on the right",
    "crossing": "a person in {} crossing the road",
    "cycling": "a cyclist in {} riding on the right",
}
_EGO = {"still": "we are standing still", "slow": "we are moving slowly", "fast": "we are moving fast"}

COLOR_ATTRIBUTES = ("vehicle color", "person color", "light", "signal color")
"""Attributes that only frames show: events carry neither colour nor light level."""


def caption(scene: Scene) -> str:
    """Return the one true caption of a window."""
    road, vehicle = _ROAD[scene.road], scene.vehicle
    person = _PERSON[scene.person.action].format(scene.person.color) if scene.person else "nobody on foot"
    light = "dim" if scene.tunnel else scene.light
    state = f"the traffic light is {scene.signal.color}" if scene.signal else _EGO[scene.ego]
    if vehicle:
        verb, place = _PLACE[vehicle.place]
        first = f"a {vehicle.color} {vehicle.kind} {verb} a {road}"
        second = f"The {vehicle.kind} is {place} and {_MOTION[vehicle.motion]}."
    else:
        first = f"an empty {road}"
        second = "The road is empty and no other vehicle is in sight."
    return (
        f"The key elements in this scene include {first}, {person}, and {scene.background} on both sides. "
        f"{second} It is {light} and {state}."
    )


def attributes(scene: Scene) -> dict[str, str]:
    """Return the attributes that a caption of this scene must get right, without those that do not apply."""
    found = {
        "vehicle": scene.vehicle.kind if scene.vehicle else "none",
        "person": scene.person.action if scene.person else "none",
        "road": scene.road,
        "background": scene.background,
        "light": "dim" if scene.tunnel else scene.light,
        "state": "signal" if scene.signal else scene.ego,
    }
    if scene.vehicle:
        found |= {
            "vehicle color": scene.vehicle.color,
            "vehicle place": scene.vehicle.place,
            "vehicle motion": scene.vehicle.motion,
        }
    if scene.person:
        found["person color"] = scene.person.color
    if scene.signal:
        found["signal color"] = scene.signal.color
    return found


def claimed(text: str) -> dict[str, str]:
    """Return the attributes that any text claims in the grammar's phrases."""
    elements, _, rest = text.partition(" on both sides.")
    words = elements.split()
    found: dict[str, str] = {}

    def look(attribute: str, phrases: dict[str, str], where: str) -> None:
        for value, phrase in phrases.items():
            if phrase in where:
                found[attribute] = value
                return

    look("vehicle", {"none": " an empty ", "car": " car ", "van": " van "}, elements)
    if found.get("vehicle") in ("car", "van"):
        found["vehicle color"] = words[words.index(found["vehicle"]) - 1]
    look("vehicle place", {k: v[0] for k, v in _PLACE.items()}, elements)
    look("vehicle motion", _MOTION, rest)
    shapes = {k: v.split("{} ")[1] for k, v in _PERSON.items()}
    look("person", {"none": "nobody on foot", **shapes}, elements)
    for noun in ("person", "cyclist"):
        if noun in words[:-2]:
            found["person color"] = words[words.index(noun) + 2]
    look("road", _ROAD, elements)
    look(
        "background", {b: f"and {b}" for b in ("trees", "buildings", "open fields", "tunnel walls")}, elements
    )
    look("light", {v: f"It is {v} and" for v in ("sunny", "cloudy", "dusk", "night", "dim")}, rest)
    look("state", {**_EGO, "signal": "the traffic light is"}, rest)
    if found.get("state") == "signal":
        found["signal color"] = rest.partition("the traffic light is")[2].split(".")[0].strip()
    return found
