"""Words that the frames of a window show, as what a vision tower learns before any caption.

Each of the sixteen tokens of a frame learns to lie where one of the language model's own words lies. So the
language model reads them from its first step on. Four tokens a frame, each for several words, taught colours
and backgrounds in 450 steps, but neither places nor changes. The distance from the word alone teaches slowly,
because a doubtful token lies between words. So a token must also be nearer to its own word than to others.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

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
_SURVEYED = 1000
"""Drives in which every word occurs."""

Weights = dict[str, float]


def shown(scene: Scene, second: float) -> tuple[Weights, ...]:
    """Return the weights of the words that a frame shows by token; `second` counts from the scene's start."""
    truth = attributes(scene)
    vehicle: list[Weights] = [{"none": 1.0}] * 4
    if v := scene.vehicle:
        share = (v.z0 + (v.z1 - v.z0) * second - _NEAREST_M) / (_FURTHEST_M - _NEAREST_M)
        last = len(_NUMBERS) - 1
        vehicle = [{v.kind: 1.0}, {v.color: 1.0}, {v.place: 1.0}, _number(min(max(share, 0.0), 1.0) * last)]
    person: list[Weights] = [{"nobody": 1.0}] * 3
    if p := scene.person:
        kind = "cyclist" if p.action == "cycling" else "person"
        person = [{kind: 1.0}, {p.color: 1.0}, {p.action.split()[-1]: 1.0}]
    around = [{truth["background"].split()[-1]: 1.0}, {truth["light"]: 1.0}, {truth["road"]: 1.0}]
    signal = [{"signal": 1.0}, {scene.signal.color: 1.0}] if scene.signal else [{"none": 1.0}] * 2
    # The positions of the lane's dashes; their change from frame to frame shows the own speed.
    travelled = scene.travelled + EGO_SPEED[scene.ego] * second
    dashes = _number(travelled % DASHES_M / DASHES_M * len(_NUMBERS))
    return (*vehicle, *person, _END, *around, _END, *signal, dashes, _END)


def _number(value: float) -> Weights:
    """Return the words of the numbers around a value; the first follows the last."""
    lower, part = int(value), value % 1
    names = (_NUMBERS[i % len(_NUMBERS)] for i in (lower, lower + 1))
    return dict(zip(names, (1 - part, part), strict=True))


class ShownWords(nn.Module):
    """Words that frames show, among the `words` (vocabulary, width) of a language model."""

    def __init__(self, words: Tensor, tokenizer: Tokenizer) -> None:
        super().__init__()
        scenes = (scenes_of(seed)[-2] for seed in range(_SURVEYED))
        names = sorted({name for scene in scenes for token in shown(scene, 0.0) for name in token})
        self._index = {name: i for i, name in enumerate(names)}
        ids = [tokenizer.encode(f" {name}", add_special_tokens=False).ids for name in names]
        self._mean: Tensor
        self._words: Tensor
        self.register_buffer("_mean", words.mean(0), persistent=False)
        named = torch.stack([words[one].mean(0) for one in ids])
        self.register_buffer("_words", named - self._mean, persistent=False)

    def forward(self, features: Tensor, seeds: Sequence[int], frames: Sequence[int]) -> Tensor:
        """Return the loss of (batch, frames, tokens, width) features of these frames of windows.

        It is the sum of their squared distance from the words, as a share of the words' variance, and of the
        cross entropy of the nearest word, in nats a token.
        """
        weights = self._weights(seeds, frames).to(features)
        wanted, found = weights @ self._words, features - self._mean
        missed = (found - wanted).square().sum(-1).mean() / wanted.square().sum(-1).mean()
        lengths = self._words.square().sum(-1)
        nearness = _SHARPNESS / lengths.mean() * (found @ self._words.T - 0.5 * lengths)
        return missed - (weights * nearness.log_softmax(-1)).sum(-1).mean()

    def _weights(self, seeds: Sequence[int], frames: Sequence[int]) -> Tensor:
        """Return the (batch, frames, tokens, names) weights of the words."""
        weights = torch.zeros(len(seeds), len(frames), TOKENS, len(self._index))
        for i, seed in enumerate(seeds):
            scene, times = scenes_of(seed)[-2], frame_times(seed)
            for j, frame in enumerate(frames):
                for k, token in enumerate(shown(scene, times[frame])):
                    for name, weight in token.items():
                        weights[i, j, k, self._index[name]] = weight
        return weights
