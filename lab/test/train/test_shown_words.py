"""A tower learns the positions of the words that frames show."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import torch
from crossspec_lab.train.shown_words import TOKENS, ShownWords, shown
from crossspec_lab.world.dataset import FRAMES, frame_times, scenes_of

SEEDS = range(40)


def encoded(text: str, add_special_tokens: bool) -> SimpleNamespace:
    """Letters as tokens."""
    return SimpleNamespace(ids=[ord(letter) for letter in text])


def test_loss_is_least_at_the_shown_words() -> None:
    words = torch.randn(128, 16, generator=torch.Generator().manual_seed(0))
    tokenizer = SimpleNamespace(encode=encoded)
    learned = ShownWords(words, tokenizer)  # type: ignore[arg-type]
    mean, rows = words.mean(0), [3, 5]

    def word(name: str) -> torch.Tensor:
        return words[[ord(letter) for letter in f" {name}"]].mean(0) - mean

    wanted = torch.zeros(len(rows), FRAMES, TOKENS, 16)
    for i, row in enumerate(rows):
        for j, second in enumerate(frame_times(row)):
            for k, token in enumerate(shown(scenes_of(row)[-2], second)):
                wanted[i, j, k] = mean + sum(weight * word(name) for name, weight in token.items())
    frames = [6, 1]
    least, blind, swapped = (
        float(learned(features[:, frames], rows, frames))
        for features in (wanted, mean.expand_as(wanted), wanted.flip(0))
    )
    assert 4 * least < min(blind, swapped)


def test_dashes_show_the_own_speed() -> None:
    for seed in SEEDS:
        scene = scenes_of(seed)[-2]
        numbers = [
            max(words := shown(scene, second)[14], key=words.__getitem__) for second in frame_times(seed)
        ]
        changes = sum(a != b for a, b in pairwise(numbers))
        assert changes == 0 if scene.ego == "still" else (3 <= changes <= 4) == (scene.ego == "slow"), numbers
