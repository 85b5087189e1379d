"""Draw a scene as a camera sees it: flat-shaded perspective, sub-pixel motion, painter's algorithm.

Paints of every hue have the same luma, and light multiplies every colour. An event camera sees changes of log
intensity only, so neither reaches it, and its picture is drawn in plain daylight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import cv2
import numpy as np

from crossspec_lab.world.canvas import HORIZON, Canvas, Color, Point, Rgb
from crossspec_lab.world.scene import EGO_SPEED, Person, Scene, Signal, Vehicle

Painter = Callable[[], None]

_CURVATURE = {"straight": 0.0, "left": -0.013, "right": 0.013}
_PAINT: dict[str, Color] = {
    "red": (205, 62, 62),
    "blue": (55, 100, 255),
    "green": (40, 148, 50),
    "yellow": (146, 103, 4),
    "grey": (105, 105, 105),
}
_LIGHT: dict[str, Color] = {
    "sunny": (1.08, 1.02, 0.92),
    "cloudy": (0.78, 0.82, 0.88),
    "dusk": (0.66, 0.5, 0.46),
    "night": (0.24, 0.26, 0.34),
    "tunnel": (0.62, 0.5, 0.24),
}
_SKY: dict[str, Color] = {"sunny": (120, 190, 255), "cloudy": (182, 182, 182)}
_TRANSITION_S = 0.2
DASHES_M = 6.0
"""Distance of the dashes in the middle of the road."""


def draw(scenes: list[Scene], seed: int, t: float, width: int, height: int, in_color: bool) -> Rgb:
    """Return the (height, width, 3) uint8 RGB picture at `t` seconds into the drive.

    Args:
        scenes: the drive; scene k covers [k, k+1) seconds.
        seed: of the drive; decides textures and the camera's vibration.
        in_color: False draws the picture of an event camera, in daylight.
    """
    index = min(int(t), len(scenes) - 1)
    scene, before = scenes[index], scenes[max(index - 1, 0)]
    tau = t - index
    blend = min(1.0, tau / _TRANSITION_S)
    curvature = (1 - blend) * _CURVATURE[before.road] + blend * _CURVATURE[scene.road]
    light = _blend(_light(before), _light(scene), blend) if in_color else (1.0, 1.0, 1.0)
    canvas = Canvas(width, height, light, curvature, _shake(seed, t, scene.ego))
    travelled = scene.travelled + EGO_SPEED[scene.ego] * tau
    _ground(canvas, scene, travelled, in_color)
    after = scenes[index + 1] if index + 1 < len(scenes) else None
    things = _roadside(canvas, scene, seed, travelled)
    for name, paint in _PAINTERS.items():
        thing = getattr(scene, name)
        if thing is None:
            continue
        last, following = (getattr(other, name) if other else thing for other in (index and before, after))
        z = thing.z0 + (thing.z1 - thing.z0) * tau
        painter = partial(paint, canvas, thing, z, t, tau)
        things.append((z, partial(_faded, canvas, _presence(thing, last, following, tau), painter)))
    for _, paint_thing in sorted(things, key=lambda item: -item[0]):
        paint_thing()
    return canvas.image


def _blend(a: Color, b: Color, share: float) -> Color:
    x, y, z = ((1 - share) * p + share * q for p, q in zip(a, b, strict=True))
    return x, y, z


def _light(scene: Scene) -> Color:
    return _LIGHT["tunnel" if scene.tunnel else scene.light]


def _shake(seed: int, t: float, ego: str) -> tuple[float, float]:
    # An engine and an uneven road: without vibration, things at rest in the picture would make no event.
    strength = 0.0022 if ego == "still" else 0.003
    phase = seed % 97
    x = np.sin(2 * np.pi * 7.3 * t + phase) + 0.6 * np.sin(2 * np.pi * 11.9 * t + 2 * phase)
    y = np.sin(2 * np.pi * 8.7 * t + 3 * phase) + 0.6 * np.sin(2 * np.pi * 13.1 * t + 5 * phase)
    return strength * x, strength * y


def _presence(thing: Vehicle | Person | Signal, before: object, after: object, tau: float) -> float:
    """Return the opacity of a thing, which ramps where it enters or leaves the drive, as in haze."""
    entering = getattr(before, "identity", None) != thing.identity
    leaving = getattr(after, "identity", None) != thing.identity
    alpha = min(1.0, tau / 0.12) if entering else 1.0
    return min(alpha, (1 - tau) / 0.08) if leaving else alpha


def _faded(canvas: Canvas, alpha: float, paint: Painter) -> None:
    if alpha >= 1:
        paint()
        return
    below = canvas.image.copy()
    paint()
    cv2.addWeighted(canvas.image, max(alpha, 0.0), below, 1 - max(alpha, 0.0), 0, dst=canvas.image)


def _strip(canvas: Canvas, start: Point, end: Point, z: Sequence[float], color: Color) -> None:
    """Draw a band along the road between two lines, each at its x and y."""
    canvas.polygon([(*start, d) for d in z] + [(*end, d) for d in z[::-1]], color)


_DEPTHS = (1.2, 2.0, 3.0, 4.5, 6.5, 9.0, 13.0, 18.0, 26.0, 38.0, 60.0)
_SOIL: dict[str, Color] = {
    "trees": (92, 112, 70),
    "open fields": (150, 150, 80),
    "buildings": (125, 122, 120),
    "tunnel walls": (60, 58, 55),
}


def _ground(canvas: Canvas, scene: Scene, travelled: float, in_color: bool) -> None:
    horizon = round(canvas.height * (HORIZON + canvas.shake[1]))
    sky = _SKY.get(scene.light if in_color else "cloudy", (170, 170, 190))
    canvas.fill(0, horizon - 1, (40, 38, 36) if scene.tunnel else sky)
    canvas.fill(horizon, canvas.height, _SOIL[scene.background])
    _strip(canvas, (-4.4, 0), (1.55, 0), _DEPTHS, (84, 84, 86))
    for x in (-4.25, 1.35):
        _strip(canvas, (x, 0), (x + 0.13, 0), _DEPTHS, (190, 190, 185))
    start = -(travelled % DASHES_M)
    for z in np.arange(start, 42, DASHES_M).tolist():
        if z + 2.2 > 1.3:
            depths = np.linspace(max(z, 1.3), z + 2.2, 3).tolist()
            _strip(canvas, (-1.62, 0), (-1.45, 0), depths, (200, 200, 195))


def _roadside(canvas: Canvas, scene: Scene, seed: int, travelled: float) -> list[tuple[float, Painter]]:
    if scene.tunnel:
        _tunnel(canvas, travelled)
        return []
    spacing, paint = _ROADSIDE[scene.background]
    things: list[tuple[float, Painter]] = []
    first = int(travelled // spacing)
    for i in range(first, first + int(46 // spacing)):
        z = i * spacing - travelled
        for side in (-1, 1):
            wobble = ((i * 73 + side * 151 + seed * 37) % 101) / 101
            if z > 1.5 or scene.background == "buildings":
                things.append((z + spacing * 0.5, partial(paint, canvas, side, z, wobble)))
    return things


def _side_x(side: int, left: float, right: float) -> float:
    return left if side < 0 else right


def _tree(canvas: Canvas, side: int, z: float, wobble: float) -> None:
    x = _side_x(side, -8.2, 5.4) + side * wobble
    canvas.upright(x, 0, z, 0.4, 2.4, (78, 58, 40))
    canvas.disc(x, 3.6 + wobble, z, 1.5 + 0.5 * wobble, (44, 92 + 30 * wobble, 40))
    canvas.disc(x + 0.5, 2.8 + wobble, z, 1.0, (36, 76 + 30 * wobble, 34))


def _building(canvas: Canvas, side: int, z: float, wobble: float) -> None:
    x = _side_x(side, -8.0, 5.2)
    near, far, height = max(z, 1.0), z + 8.4, 6.0 + 5.0 * wobble
    if far <= near:
        return
    grey = 96 + 70 * wobble
    canvas.wall(x, (0, height), (near, far), (grey, grey * 0.95, grey * 0.9))
    for k in range(3):
        z0 = z + 1 + 2.6 * k
        for y in (1.2, 4.0):
            if z0 > 1.0:
                canvas.wall(x, (y, y + 1.6), (z0, z0 + 1.4), (52, 56, 64))


def _post(canvas: Canvas, side: int, z: float, wobble: float) -> None:
    x = _side_x(side, -6.8, 4.6)
    canvas.upright(x, 0, z, 0.16, 1.0, (72, 60, 48))
    for y in (0.45, 0.85):
        canvas.wall(x, (y, y + 0.07), (z, z + 5.5), (88, 76, 60))


_ROADSIDE: dict[str, tuple[float, Callable[[Canvas, int, float, float], None]]] = {
    "trees": (5.0, _tree),
    "buildings": (9.0, _building),
    "open fields": (5.5, _post),
}


def _tunnel(canvas: Canvas, travelled: float) -> None:
    for x in (-5.8, 4.2):
        _strip(canvas, (x, 0), (x, 1.1), _DEPTHS, (96, 94, 90))
        _strip(canvas, (x, 1.1), (x, 4.6), _DEPTHS, (134, 130, 122))
    spacing = 6.0
    for z in np.arange(-(travelled % spacing), 44, spacing).tolist():
        if z > 1.0:
            for x in (-5.75, 4.15):
                canvas.wall(x, (3.2, 3.7), (z, z + 1.6), (255, 236, 180), True)
            canvas.upright((-5.8 + 4.2) / 2, 4.5, z, 10.0, 0.25, (74, 72, 68))


def _draw_vehicle(canvas: Canvas, vehicle: Vehicle, z: float, t: float, tau: float) -> None:
    x = {"ahead": 0.0, "oncoming": -3.0, "parked": 2.45}[vehicle.place]
    paint = _PAINT[vehicle.color]
    dark = (40.0, 42.0, 48.0)
    canvas.upright(x, 0.0, z, 1.7, 0.25, (28, 28, 30))
    for wheel in (-0.7, 0.7):
        canvas.upright(x + wheel, 0.0, z, 0.3, 0.5, (24, 24, 24))
    if vehicle.kind == "van":
        canvas.upright(x, 0.25, z, 2.0, 2.25, paint)
        canvas.upright(x, 1.55, z, 1.6, 0.65, dark)
    else:
        canvas.upright(x, 0.25, z, 1.85, 0.8, paint)
        canvas.trapezoid(x, z, (0.85, 1.05), (0.62, 1.6), paint)
        canvas.trapezoid(x, z, (0.68, 1.08), (0.52, 1.48), dark)
    lamp = (255.0, 250.0, 225.0) if vehicle.place == "oncoming" else (200.0, 28.0, 24.0)
    for side in (-0.72, 0.72):
        canvas.upright(x + side, 0.62, z, 0.28, 0.18, lamp, vehicle.place != "parked")


def _draw_person(canvas: Canvas, person: Person, z: float, t: float, tau: float) -> None:
    x = person.x0 + (person.x1 - person.x0) * tau
    coat, skin, trousers = _PAINT[person.color], (200.0, 160.0, 130.0), (44.0, 44.0, 56.0)
    gait = np.sin(2 * np.pi * 1.9 * t)
    if person.action == "cycling":
        canvas.upright(x, 0.0, z, 0.1, 0.75, (22, 22, 22))
        canvas.upright(x, 0.95, z, 0.75, 0.07, (30, 30, 30))
        for side in (-1, 1):
            canvas.upright(x + 0.13 * side, 0.3 + 0.14 * side * gait, z, 0.15, 0.6, trousers)
        canvas.upright(x + 0.03 * gait, 0.85, z, 0.62, 0.75, coat)
        canvas.disc(x + 0.03 * gait, 1.78, z, 0.17, skin)
        return
    stride = 0.22 * gait if person.action == "crossing" else 0.04 * gait
    for side in (-1, 1):
        hip, foot = x + 0.1 * side, x + 0.1 * side + stride * side
        canvas.polygon(
            [(foot - 0.1, 0, z), (foot + 0.1, 0, z), (hip + 0.11, 0.9, z), (hip - 0.11, 0.9, z)], trousers
        )
    canvas.upright(x, 0.8, z, 0.72, 0.85, coat)
    canvas.disc(x, 1.82, z, 0.19, skin)


def _draw_signal(canvas: Canvas, signal: Signal, z: float, t: float, tau: float) -> None:
    x = 2.3
    unlit, lit = (105.0, 105.0, 105.0), _PAINT["red" if signal.color == "red" else "green"]
    canvas.upright(x, 0, z, 0.14, 2.3, (60, 60, 60))
    canvas.upright(x, 2.3, z, 0.9, 1.75, (22, 22, 22))
    for place, y in (("red", 3.6), ("green", 2.75)):
        here = signal.color == place
        canvas.disc(x, y, z, 0.36, lit if here else unlit, here)


_PAINTERS: dict[str, Callable[..., None]] = {
    "vehicle": _draw_vehicle,
    "person": _draw_person,
    "signal": _draw_signal,
}
