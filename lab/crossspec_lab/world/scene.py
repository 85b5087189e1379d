"""A drive: one `Scene` a window, chained so that consecutive windows resemble each other.

All attributes of a caption are constant within a window, so it has one true caption. They change at its
boundary, with short transitions in the picture. Lengths are metres. The camera is at depth 0 and looks along
+z, the ego lane is centred on x = 0, traffic keeps to the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

BACKGROUNDS = ("trees", "buildings", "open fields", "tunnel walls")
ROADS = ("straight", "left", "right")
LIGHTS = ("sunny", "cloudy", "dusk", "night")
VEHICLE_COLORS = ("red", "blue", "green", "yellow", "grey")
PERSON_COLORS = ("red", "blue", "green", "yellow")
EGO_SPEED = {"still": 0.0, "slow": 3.0, "fast": 9.0}

_NEAR, _FAR = 7.0, 16.0


@dataclass(frozen=True)
class Vehicle:
    """A car or van; `z0` and `z1` are its depths at the window's start and end."""

    kind: str
    color: str
    place: str
    motion: str
    z0: float
    z1: float
    identity: int


@dataclass(frozen=True)
class Person:
    """A pedestrian or cyclist; `action` is "standing left", "standing right", "crossing" or "cycling"."""

    action: str
    color: str
    x0: float
    x1: float
    z0: float
    z1: float
    identity: int


@dataclass(frozen=True)
class Signal:
    """A traffic light at the right-hand kerb."""

    color: str
    z0: float
    z1: float
    identity: int


@dataclass(frozen=True)
class Scene:
    """One second of driving. `travelled` is the distance driven before it."""

    background: str
    road: str
    light: str
    ego: str
    travelled: float
    vehicle: Vehicle | None
    person: Person | None
    signal: Signal | None

    @property
    def tunnel(self) -> bool:
        return self.background == "tunnel walls"


def drive(seed: int, windows: int) -> list[Scene]:
    """Return the first `windows` scenes of the drive with this seed; longer drives begin with the same."""
    rng = np.random.default_rng([seed, 0xD51])
    scenes: list[Scene] = []
    previous: Scene | None = None
    for identity in range(windows):
        previous = _next(rng, previous, identity)
        scenes.append(previous)
    return scenes


def _choice(
    rng: np.random.Generator, options: Sequence[str], weights: tuple[float, ...] | None = None
) -> str:
    return options[int(rng.choice(len(options), p=weights))]


def _keep(rng: np.random.Generator, probability: float) -> bool:
    return bool(rng.random() < probability)


def _next(rng: np.random.Generator, last: Scene | None, identity: int) -> Scene:
    background = last.background if last and _keep(rng, 0.88) else _choice(rng, BACKGROUNDS)
    light = last.light if last and _keep(rng, 0.93) else _choice(rng, LIGHTS)
    road = last.road if last and _keep(rng, 0.75) else _choice(rng, ROADS)
    signal_color = _signal_color(rng, last, background)
    if signal_color == "red":
        ego = _choice(rng, ("still", "slow"))
    else:
        ego = last.ego if last and _keep(rng, 0.7) else _choice(rng, tuple(EGO_SPEED))
    speed = EGO_SPEED[ego]
    travelled = last.travelled + EGO_SPEED[last.ego] if last else float(rng.uniform(0, 500))
    vehicle = _vehicle(rng, last.vehicle if last else None, speed, identity)
    person = _person(rng, last.person if last else None, vehicle, speed, background, identity)
    signal = _signal(rng, last.signal if last else None, signal_color, speed, identity)
    return Scene(background, road, light, ego, travelled, vehicle, person, signal)


def _vehicle(rng: np.random.Generator, last: Vehicle | None, speed: float, identity: int) -> Vehicle | None:
    if last is not None and _keep(rng, 0.85):
        if last.place == "ahead":
            return _drive_ahead(rng, last, last.z1)
        if last.place == "parked" and last.z1 - speed >= _NEAR:
            return replace(last, z0=last.z1, z1=last.z1 - speed, motion="closer" if speed else "steady")
    if _keep(rng, 0.12):
        return None
    kind = _choice(rng, ("car", "van"))
    color = _choice(rng, VEHICLE_COLORS)
    place = _choice(rng, ("ahead", "oncoming", "parked"), (0.5, 0.25, 0.25))
    if place == "ahead":
        blank = Vehicle(kind, color, place, "steady", 0, 0, identity)
        return _drive_ahead(rng, blank, float(rng.uniform(_NEAR, _FAR - 2)))
    if place == "oncoming":
        z0 = float(rng.uniform(19, 24))
        return Vehicle(kind, color, place, "closer", z0, z0 - 12, identity)
    z0 = float(rng.uniform(_NEAR + speed, _FAR + 0.5))
    return Vehicle(kind, color, place, "closer" if speed else "steady", z0, z0 - speed, identity)


def _drive_ahead(rng: np.random.Generator, vehicle: Vehicle, z0: float) -> Vehicle:
    ratio = 1.55
    possible = ["steady"]
    if z0 / ratio >= _NEAR - 1:
        possible.append("closer")
    if z0 * ratio <= _FAR + 1:
        possible.append("away")
    keeps = vehicle.z1 and vehicle.motion in possible and _keep(rng, 0.5)
    motion = vehicle.motion if keeps else _choice(rng, possible)
    z1 = z0 / ratio if motion == "closer" else z0 * ratio if motion == "away" else z0
    return replace(vehicle, motion=motion, z0=z0, z1=z1)


def _person(
    rng: np.random.Generator,
    last: Person | None,
    vehicle: Vehicle | None,
    speed: float,
    background: str,
    identity: int,
) -> Person | None:
    parked = vehicle is not None and vehicle.place == "parked"
    if last is not None and last.action.startswith("standing") and _keep(rng, 0.85):
        near = 9.0 if last.action == "standing left" else 7.5
        if last.z1 - speed >= near and not (parked and last.action == "standing right"):
            return replace(last, z0=last.z1, z1=last.z1 - speed)
    if last is not None and last.action == "cycling" and speed == 3.0 and _keep(rng, 0.85) and not parked:
        z = float(np.clip(last.z1, 7.5, 9.5))
        return replace(last, z0=z, z1=z)
    if _keep(rng, 0.22) or (background == "tunnel walls" and _keep(rng, 0.5)):
        return None
    possible = ["standing left"]
    if not parked:
        possible.append("standing right")
        if speed < 9:
            possible.append("cycling")
    clear = vehicle is None or parked or (vehicle.place == "ahead" and min(vehicle.z0, vehicle.z1) > 10.5)
    if clear and speed < 9:
        possible.append("crossing")
    action = _choice(rng, possible)
    color = _choice(rng, PERSON_COLORS)
    if action == "crossing":
        z = float(rng.uniform(7, 9))
        ends = (-2.6, 0.9) if _keep(rng, 0.5) else (0.9, -2.6)
        return Person(action, color, *ends, z + speed / 2, z, identity)
    if action == "cycling":
        z = float(rng.uniform(7.5, 9.5))
        return Person(action, color, 1.9, 1.9, z, z if speed else z + 4, identity)
    x, near = (-4.9, 9.0) if action == "standing left" else (2.9, 7.5)
    z0 = float(rng.uniform(near + speed, near + max(speed, 5) + 0.5))
    return Person(action, color, x, x, z0, z0 - speed, identity)


def _signal_color(rng: np.random.Generator, last: Scene | None, background: str) -> str | None:
    if background == "tunnel walls":
        return None
    before = last.signal if last else None
    if before is not None and before.z1 > 9 and _keep(rng, 0.8):
        return before.color if _keep(rng, 0.8) else ("green" if before.color == "red" else "red")
    return _choice(rng, ("red", "green")) if _keep(rng, 0.3) else None


def _signal(
    rng: np.random.Generator, last: Signal | None, color: str | None, speed: float, identity: int
) -> Signal | None:
    if color is None:
        return None
    if last is not None and last.z1 > 9 and last.z1 - speed >= 8:
        return Signal(color, last.z1, last.z1 - speed, last.identity)
    z0 = float(rng.uniform(max(10.0, 8.0 + speed), 17.5))
    return Signal(color, z0, z0 - speed, identity)
