"""Picture of a window and its caption."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

if TYPE_CHECKING:
    from crossspec_ros.windows.window import Window

_HEIGHT, _MAX_WIDTH, _TEXT, _MARGIN = 240, 960, 16, 6
_BACKGROUND, _INK, _ABSENT = (24, 24, 24), (240, 240, 240), (70, 70, 70)


def annotated(window: Window, lines: Sequence[str]) -> np.ndarray:
    """Draw a window's last frame and last event image side by side, over these lines.

    A missing image is grey. Returns (H, W, 3) uint8 RGB.
    """
    panels = [_panel(images) for images in (window.frames, window.event_images)]
    width = sum(panel.width for panel in panels) + 3 * _MARGIN
    font = ImageFont.load_default(_TEXT)
    columns = max(1, int((width - 2 * _MARGIN) / font.getlength("n")))
    text = [row for line in lines for row in textwrap.wrap(line, columns) or [""]]
    step = _TEXT * 5 // 4
    picture = Image.new("RGB", (width, _HEIGHT + 3 * _MARGIN + step * len(text)), _BACKGROUND)
    left = _MARGIN
    for panel in panels:
        picture.paste(panel, (left, _MARGIN))
        left += panel.width + _MARGIN
    draw = ImageDraw.Draw(picture)
    for i, row in enumerate(text):
        draw.text((_MARGIN, _HEIGHT + 2 * _MARGIN + step * i), row, _INK, font)
    return np.asarray(picture)


def _panel(images: np.ndarray) -> Image.Image:
    if not len(images):
        return Image.new("RGB", (_HEIGHT * 4 // 3, _HEIGHT), _ABSENT)
    # The maximum aspect ratio of an image is 200.
    return ImageOps.contain(Image.fromarray(images[-1]), (_MAX_WIDTH, _HEIGHT))
