"""Perspective drawing with sub-pixel motion: polygons and discs in metres."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

Color = tuple[float, float, float]
Rgb = NDArray[np.uint8]
Point = tuple[float, float]

_SHIFT = 4
_ONE = 1 << _SHIFT
_FOCAL, HORIZON, _CAMERA_HEIGHT = 0.85, 0.44, 1.4


class Canvas:
    """A picture of a world with coordinates in metres: x right, y up from the road, z ahead."""

    def __init__(
        self, width: int, height: int, light: Color, curvature: float, shake: tuple[float, float]
    ) -> None:
        self.image: Rgb = np.empty((height, width, 3), np.uint8)
        self.width, self.height = width, height
        self.light, self.curvature, self.shake = light, curvature, shake

    def project(self, x: float, y: float, z: float) -> tuple[int, int]:
        """Return a point in fixed-point pixels; plain floats are faster than numpy for so few corners."""
        u = self.width / 2 + self.height * (_FOCAL * (x / z + self.curvature * z) + self.shake[0])
        v = self.height * (HORIZON + _FOCAL * (_CAMERA_HEIGHT - y) / z + self.shake[1])
        return round(min(max(u, -4000.0), 4000.0) * _ONE), round(min(max(v, -4000.0), 4000.0) * _ONE)

    def shade(self, color: Color, glowing: bool = False) -> Color:
        if glowing:
            return color
        return color[0] * self.light[0], color[1] * self.light[1], color[2] * self.light[2]

    def polygon(self, points: list[tuple[float, float, float]], color: Color, glowing: bool = False) -> None:
        pixels = np.array([self.project(*point) for point in points], np.int32)
        cv2.fillPoly(self.image, [pixels], self.shade(color, glowing), cv2.LINE_AA, _SHIFT)

    def upright(
        self, x: float, y: float, z: float, w: float, h: float, color: Color, glowing: bool = False
    ) -> None:
        """Draw a rectangle that faces the camera, centred on x, standing on y."""
        left, right, top = x - w / 2, x + w / 2, y + h
        self.polygon([(left, y, z), (right, y, z), (right, top, z), (left, top, z)], color, glowing)

    def trapezoid(self, x: float, z: float, low: Point, high: Point, color: Color) -> None:
        """Draw a trapezoid that faces the camera, from `low` to `high`, each half a width and a height."""
        (a, y0), (b, y1) = low, high
        self.polygon([(x - a, y0, z), (x + a, y0, z), (x + b, y1, z), (x - b, y1, z)], color)

    def wall(self, x: float, y: Point, z: Point, color: Color, glowing: bool = False) -> None:
        """Draw a rectangle along the road between two heights and two depths."""
        (y0, y1), (z0, z1) = y, z
        self.polygon([(x, y0, z0), (x, y0, z1), (x, y1, z1), (x, y1, z0)], color, glowing)

    def disc(self, x: float, y: float, z: float, radius: float, color: Color, glowing: bool = False) -> None:
        r = max(1, round(self.height * _FOCAL * radius / z * _ONE))
        cv2.circle(self.image, self.project(x, y, z), r, self.shade(color, glowing), -1, cv2.LINE_AA, _SHIFT)

    def fill(self, top: int, bottom: int, color: Color) -> None:
        cv2.rectangle(self.image, (0, top), (self.width, bottom), self.shade(color), -1)
