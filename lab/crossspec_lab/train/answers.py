"""`crossspec train answers`: the tiny target learns to fill in forms and to answer standing questions.

Its vision tower is frozen, because it reads all that the answers need. The projector and the language model
learn, and practise the captions that they know. Forms are JSON of any of the schema's fields. A schema forces
the keys, so the values alone are learned. The form of its own question is learned with its keys.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from crossspec_lab.train.reading import AnswerIds, read_answers
from crossspec_lab.train.training import Recipe, train_on_windows, window_rng, write_model
from crossspec_lab.world import questions
from crossspec_lab.world.dataset import frame_window, scenes_of
from crossspec_lab.world.phrases import QUESTION, caption
from crossspec_lab.world.questions import ANSWERS, YES_OR_NO, answer, yes_or_no
from crossspec_lab.world.scene import Scene
from crossspec_ros.models.base import Chunk
from crossspec_ros.models.placement import Placement
from crossspec_ros.models.registry import target_architecture
from crossspec_ros.paths import tiny_models

_RECIPE = Recipe(12_000, 2_000, 8, 4e-4)
_STANDING = 3
"""Standing questions about a window, besides its caption and its forms."""
_VALUE = re.compile(r'": "([^"]*)"')


def run(args: argparse.Namespace) -> int:
    """Train into `args.out`; `args.work` keeps windows and checkpoints, from which a run resumes."""
    source = tiny_models() / "target"
    torch.manual_seed(7)
    student = AnswerStudent(source)
    train_on_windows(student, _RECIPE.shrunk(args.shrink), args.work, "checkpoints")
    write_model(student.module, source, args.out)
    print(f"trained: {args.out}")
    return 0


class AnswerStudent(nn.Module):
    """The target of a checkpoint that learns answers; its vision tower does not learn."""

    draw = staticmethod(frame_window)

    def __init__(self, folder: Path) -> None:
        super().__init__()
        architecture = target_architecture(folder)
        module: Any = architecture.load(Placement())
        self.target: Any = architecture.model(module, architecture.tokenizer())
        self.module = module.requires_grad_(True)
        module.model.video_tower.requires_grad_(False)
        self._end = self.target.spec.eos_ids[0]

    def forward(self, images: Tensor, seeds: Tensor) -> dict[str, Tensor]:
        """Return the `loss` of the answers about windows, in nats a token."""
        rows = [self.answers(scenes_of(seed)[-2], window_rng(seed, self.training)) for seed in seeds.tolist()]
        return {"loss": F.cross_entropy(*self.logits(images.numpy(), rows))}

    def logits(self, images: NDArray[np.uint8], rows: Sequence[Sequence[AnswerIds]]) -> tuple[Tensor, Tensor]:
        """Return the (n, vocabulary) logits of the n learned tokens, and the (n,) tokens.

        Args:
            images: (batch, frames, H, W, 3) uint8 frames.
            rows: answers about each window.
        """
        units = self.target.encode(images.reshape(-1, *images.shape[2:]))
        opening, count = self.target.opening(), images.shape[1]
        before = torch.stack(
            [
                Chunk.joined(
                    [opening, *(self.target.unit(u, k) for k, u in enumerate(units[i : i + count]))]
                ).embeds
                for i in range(0, len(units), count)
            ]
        )
        hidden, wanted = read_answers(self.target.body, before, self._embedded, rows)
        return self.target.logits(hidden), wanted

    def _embedded(self, tokens: Tensor) -> Tensor:
        return self.target.words(tuple(tokens.flatten().tolist())).embeds.unflatten(0, tokens.shape)

    def answers(self, scene: Scene, rng: np.random.Generator) -> list[AnswerIds]:
        """Return the caption, two forms and the answers to some standing questions about a window."""
        standing = rng.choice([*ANSWERS, *YES_OR_NO], _STANDING, replace=False).tolist()
        truth = questions.truth(scene)
        fields = rng.permutation(list(truth)).tolist()[: rng.integers(1, len(truth) + 1)]
        # Users combine a schema with any question, most often with the caption's.
        question = QUESTION if rng.random() < 0.5 else str(rng.choice([questions.FORM_QUESTION, *standing]))
        return [
            self._answer(QUESTION, f" {caption(scene)}"),
            self._answer(questions.FORM_QUESTION, json.dumps(truth)),
            self._form(question, {name: truth[name] for name in fields}),
            *(
                self._answer(one, " " + (yes_or_no if one in YES_OR_NO else answer)(one, scene))
                for one in standing
            ),
        ]

    def _answer(self, question: str, text: str) -> AnswerIds:
        ids = [*self.target.tokenizer.encode(text, add_special_tokens=False).ids, self._end]
        return AnswerIds.of(self.target.prompt_ids(question)[1], ids)

    def _form(self, question: str, fields: dict[str, str]) -> AnswerIds:
        """Answer as JSON, of which the values are learned."""
        text = json.dumps(fields)
        encoded = self.target.tokenizer.encode(text, add_special_tokens=False)
        values = [match.span(1) for match in _VALUE.finditer(text)]
        learned = [any(start < b and a < end for a, b in values) for start, end in encoded.offsets]
        return AnswerIds.of(self.target.prompt_ids(question)[1], encoded.ids, learned)
