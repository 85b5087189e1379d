"""Words that the frames of a window show, as what a vision tower learns before any caption.

The four tokens of a frame learn to lie where the language model's own words for what they show lie. So the
language model reads them from its first step on, and a caption has little left to teach.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, sin, tau

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from crossspec_lab.world.dataset import frame_times, scenes_of
from crossspec_lab.world.grammar import attributes
from crossspec_lab.world.render import DASHES_M
from crossspec_lab.world.scene import EGO_SPEED, Scene

TOKENS = 4
"""Tokens of a frame: its vehicle, its person, its surroundings, and its road."""
_NEAREST_M, _FURTHEST_M = 5.0, 25.0
_LENGTH = 0.6
"""Factor that gives a token of a few words about the length of one."""

Weights = dict[str, float]


def shown(scene: Scene, second: float) -> tuple[Weights, Weights, Weights, Weights]:
    """Words that a frame shows after `second` of its scene, by token, each with its weight."""
    told = attributes(scene)
    vehicle, person, road = {"traffic": 1.0}, {"nobody": 1.0}, {told["road"]: 1.0}
    if v := scene.vehicle:
        share = (v.z0 + (v.z1 - v.z0) * second - _NEAREST_M) / (_FURTHEST_M - _NEAREST_M)
        vehicle = {v.kind: 1.0, v.color: 1.0, v.place: 1.0, "far": share, "near": 1 - share}
    if p := scene.person:
        person = {"cyclist" if p.action == "cycling" else "person": 1.0, p.color: 1.0}
        person[p.action.split()[-1]] = 1.0
    if s := scene.signal:
        road |= {"signal": 1.0, s.color: 1.0}
    # Where the dashes of the lane are. Their mean over a second is short where we move fast.
    turn = tau * (scene.travelled + EGO_SPEED[scene.ego] * second) / DASHES_M
    road |= {"forward": cos(turn), "back": sin(turn)}
    return vehicle, person, {told["background"].split()[-1]: 1.0, told["light"]: 1.0}, road


class ShownWords:
    """Words that the frames of windows with these seeds show, among the `words` (vocabulary, width) of a
    language model."""

    def __init__(self, seeds: Sequence[int], words: Tensor, tokenizer: Tokenizer) -> None:
        rows = [_of_window(seed) for seed in seeds]
        names = sorted({name for row in rows for frame in row for token in frame for name in token})
        ids = [tokenizer.encode(f" {name}", add_special_tokens=False).ids for name in names]
        self._mean = words.mean(0)
        self._words = torch.stack([words[one].mean(0) for one in ids]) - self._mean
        at = {name: i for i, name in enumerate(names)}
        self._weights = torch.zeros(len(rows), len(rows[0]), TOKENS, len(names), dtype=torch.float16)
        for i, row in enumerate(rows):
            for j, frame in enumerate(row):
                for k, token in enumerate(frame):
                    for name, weight in token.items():
                        self._weights[i, j, k, at[name]] = _LENGTH * weight

    def loss(self, features: Tensor, rows: NDArray[np.int64]) -> Tensor:
        """Squared distance of (batch, frames, tokens, width) features from the words of these windows, as a
        share of what these words differ from the mean of all."""
        wanted = self._weights[rows].to(features) @ self._words
        missed = (features - self._mean - wanted).square().sum(-1)
        return missed.mean() / wanted.square().sum(-1).mean()


def _of_window(seed: int) -> list[tuple[Weights, ...]]:
    scene = scenes_of(seed)[-2]
    return [shown(scene, second) for second in frame_times(seed)]
