"""Frames show words, and a tower learns where these lie."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from crossspec_lab.train.shown_words import TOKENS, ShownWords, shown
from crossspec_lab.world.dataset import FRAMES, frame_times, scenes_of

SEEDS = range(40)


def encoded(text: str, add_special_tokens: bool) -> SimpleNamespace:
    """Letters as tokens."""
    return SimpleNamespace(ids=[ord(letter) for letter in text])


def test_features_where_the_words_lie_cost_nothing() -> None:
    words = torch.randn(128, 16, generator=torch.Generator().manual_seed(0))
    tokenizer = SimpleNamespace(encode=encoded)
    learned = ShownWords(SEEDS, words, tokenizer)  # type: ignore[arg-type]
    mean, rows = words.mean(0), np.array([3, 5])

    def word(name: str) -> torch.Tensor:
        return words[[ord(letter) for letter in f" {name}"]].mean(0) - mean

    wanted = torch.zeros(len(rows), FRAMES, TOKENS, 16)
    for i, row in enumerate(rows.tolist()):
        for j, second in enumerate(frame_times(row)):
            for k, token in enumerate(shown(scenes_of(row)[-2], second)):
                wanted[i, j, k] = mean + 0.6 * sum(weight * word(name) for name, weight in token.items())
    assert float(learned.loss(wanted, rows)) < 1e-5
    blind = mean.expand_as(wanted)
    assert abs(float(learned.loss(blind, rows)) - 1) < 1e-3


def test_dashes_tell_how_fast_we_are() -> None:
    lengths: dict[str, list[float]] = {}
    for seed in SEEDS:
        scene = scenes_of(seed)[-2]
        roads = [shown(scene, second)[3] for second in frame_times(seed)]
        mean = np.mean([[road["forward"], road["back"]] for road in roads], 0)
        lengths.setdefault(scene.ego, []).append(float(np.hypot(*mean)))
    assert min(lengths["still"]) > max(lengths["slow"]) > min(lengths["slow"]) > max(lengths["fast"])
