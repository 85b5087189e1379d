"""Words that the frames of a window show, as what a vision tower learns before any caption.

Each of the sixteen tokens of a frame learns to lie where one of the language model's own words lies, as in a
list of what is there. So the language model reads them from its first step on. A token that stands for more
than one word is no text that it knows: with four tokens a frame it learned colours and backgrounds in 450
steps, but neither places nor what changes from frame to frame. The distance from the word alone teaches
slowly too: a token that doubts lies between the words. So it must be nearer to its own word than to others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from crossspec_lab.world.dataset import frame_times, scenes_of
from crossspec_lab.world.phrases import attributes
from crossspec_lab.world.render import DASHES_M
from crossspec_lab.world.scene import EGO_SPEED, Scene

_SHARPNESS = 12.0
"""Logit between two words of mean length, at one of them, where they have nothing in common."""
TOKENS = 16
"""Tokens of a frame: four of its vehicle, of its person, of its surroundings, and of signal and dashes."""
_NEAREST_M, _FURTHEST_M = 5.0, 25.0
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
_END = {".": 1.0}

Weights = dict[str, float]


def shown(scene: Scene, second: float) -> tuple[Weights, ...]:
    """Words that a frame shows after `second` of its scene, by token, each with its weight."""
    told = attributes(scene)
    vehicle: list[Weights] = [{"none": 1.0}] * 4
    if v := scene.vehicle:
        share = (v.z0 + (v.z1 - v.z0) * second - _NEAREST_M) / (_FURTHEST_M - _NEAREST_M)
        last = len(_NUMBERS) - 1
        vehicle = [{v.kind: 1.0}, {v.color: 1.0}, {v.place: 1.0}, _number(min(max(share, 0.0), 1.0) * last)]
    person: list[Weights] = [{"nobody": 1.0}] * 3
    if p := scene.person:
        kind = "cyclist" if p.action == "cycling" else "person"
        person = [{kind: 1.0}, {p.color: 1.0}, {p.action.split()[-1]: 1.0}]
    around = [{told["background"].split()[-1]: 1.0}, {told["light"]: 1.0}, {told["road"]: 1.0}]
    signal = [{"signal": 1.0}, {scene.signal.color: 1.0}] if scene.signal else [{"none": 1.0}] * 2
    # Where the dashes of the lane are: how fast that changes is how fast we are.
    travelled = scene.travelled + EGO_SPEED[scene.ego] * second
    dashes = _number(travelled % DASHES_M / DASHES_M * len(_NUMBERS))
    return (*vehicle, *person, _END, *around, _END, *signal, dashes, _END)


def _number(value: float) -> Weights:
    """Words of the numbers beside a value; the last is followed by the first."""
    whole, part = int(value), value % 1
    names = (_NUMBERS[i % len(_NUMBERS)] for i in (whole, whole + 1))
    return dict(zip(names, (1 - part, part), strict=True))


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
                        self._weights[i, j, k, at[name]] = weight

    def loss(self, features: Tensor, rows: NDArray[np.int64], frames: NDArray[np.int64]) -> Tensor:
        """Loss of (batch, frames, tokens, width) features as the words of these windows' frames.

        It is the sum of their squared distance, as a share of what the words differ from the mean of all, and
        of the cross entropy of the nearest word, in nats a token.
        """
        weights = self._weights[rows][:, frames].to(features)
        wanted, seen = weights @ self._words, features - self._mean
        missed = (seen - wanted).square().sum(-1).mean() / wanted.square().sum(-1).mean()
        lengths = self._words.square().sum(-1)
        nearness = _SHARPNESS / lengths.mean() * (seen @ self._words.T - 0.5 * lengths)
        return missed - (weights * nearness.log_softmax(-1)).sum(-1).mean()


def _of_window(seed: int) -> list[tuple[Weights, ...]]:
    scene = scenes_of(seed)[-2]
    return [shown(scene, second) for second in frame_times(seed)]
