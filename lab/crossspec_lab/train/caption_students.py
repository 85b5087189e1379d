"""The tiny target and the tiny event draft while they learn captions.

Captions teach a vision tower slowly, because most of their tokens need no image. So linear heads learn to
read the window's attributes off the vision features. The heads are dropped afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from crossspec_lab.heads.head import IGNORED
from crossspec_lab.train.reading import read_chunks
from crossspec_lab.world.dataset import Draw, event_window, frame_window, scenes_of
from crossspec_lab.world.phrases import COLOR_ATTRIBUTES, QUESTION, attributes, caption
from crossspec_lab.world.scene import Scene
from crossspec_ros.models.base import Chunk, VideoTarget
from crossspec_ros.models.eventgpt import draft_prompt_ids
from crossspec_ros.models.preprocess import clip_pixels
from crossspec_ros.models.registry import draft_architecture, target_architecture
from crossspec_ros.models.transformers_family import TransformersTarget

_HEADS_SHARE = 0.1
"""Weight of the attributes' loss; that of captions has 1."""
_SURVEYED = 300
"""Drives in which every value of every attribute occurs."""


class AttributeHeads(nn.Module):
    """Linear heads that read the attributes of a window off `width` numbers."""

    def __init__(self, width: int, with_color: bool) -> None:
        super().__init__()
        found = [attributes(scenes_of(seed)[-2]) for seed in range(_SURVEYED)]
        names = sorted({name for row in found for name in row if with_color or name not in COLOR_ATTRIBUTES})
        self._values = {name: sorted({row.get(name, "") for row in found}) for name in names}
        self.heads = nn.Linear(width, sum(map(len, self._values.values())))

    def loss(self, summary: Tensor, scenes: Sequence[Scene]) -> Tensor:
        """Return the mean cross entropy of the attributes of these scenes, in nats."""
        rows = [attributes(scene) for scene in scenes]
        guesses = self.heads(summary).float().split([*map(len, self._values.values())], 1)
        losses = [
            F.cross_entropy(guess, torch.tensor([values.index(row.get(name, "")) for row in rows]))
            for guess, (name, values) in zip(guesses, self._values.items(), strict=True)
        ]
        return torch.stack(losses).mean()


class CaptionStudent(nn.Module):
    """A tiny model that learns captions and, while `is_reading` is False, attributes alone."""

    draw: Draw
    begin = " "
    """Beginning of a caption."""

    def __init__(self, module: nn.Module, tokenizer: Tokenizer, eos_id: int) -> None:
        super().__init__()
        self.module, self.tokenizer, self.eos_id = module, tokenizer, eos_id
        self.is_reading = True

    def add_heads(self, with_color: bool) -> None:
        """Add the heads for attributes."""
        summary = self.summary(self.features(torch.from_numpy(self.draw(0)[None])))
        self.heads = AttributeHeads(summary.shape[1], with_color)

    def features(self, images: Tensor) -> Any:
        """Return the features of (batch, k, 64, W, 3) uint8 images by the vision tower."""
        raise NotImplementedError

    def logits(self, features: Any, captions: Tensor) -> Tensor:
        """Return the (batch, length, vocabulary) logits of every token of (batch, length) captions."""
        raise NotImplementedError

    def summary(self, features: Any) -> Tensor:
        """Return a (batch, n) description of the windows for the heads."""
        raise NotImplementedError

    def forward(self, images: Tensor, seeds: Tensor) -> dict[str, Tensor]:
        """Return the `loss` on windows; in evaluation it is that of the captions, in nats a token."""
        scenes = [scenes_of(seed)[-2] for seed in seeds.tolist()]
        features = self.features(images)
        if not (self.is_reading and not self.training):
            attribute_loss = self.heads.loss(self.summary(features), scenes)
        if not self.is_reading:
            return {"loss": attribute_loss}
        captions = pad_sequence([self._ids(scene) for scene in scenes], True, IGNORED)
        logits = self.logits(features, captions.clamp(min=0)).float()
        loss = F.cross_entropy(logits.flatten(0, 1), captions.flatten(), ignore_index=IGNORED)
        return {"loss": loss + _HEADS_SHARE * attribute_loss if self.training else loss}

    def _ids(self, scene: Scene) -> Tensor:
        ids = self.tokenizer.encode(self.begin + caption(scene), add_special_tokens=False).ids
        return torch.tensor([*ids, self.eos_id])


class TargetStudent(CaptionStudent):
    """A target with the architecture of the checkpoint in `folder` and new weights."""

    draw = staticmethod(frame_window)

    def __init__(self, folder: Path) -> None:
        architecture = cast(TransformersTarget, target_architecture(folder))
        tokenizer = architecture.tokenizer()
        module = architecture.module_class()(architecture.config)
        super().__init__(module, tokenizer, architecture.spec.eos_ids[0])
        self.target: VideoTarget = architecture.model(module, tokenizer)
        question = tokenizer.decode(self.target.prompt_ids(QUESTION)[1], skip_special_tokens=False)
        self.begin = "" if question[-1].isspace() else " "
        self.add_heads(with_color=True)

    def features(self, images: Tensor) -> list[Sequence[Any]]:
        batch = len(images)
        units = self.target.encode(images.flatten(0, 1).numpy())
        k = len(units) // batch
        return [units[i * k : (i + 1) * k] for i in range(batch)]

    def logits(self, features: list[Sequence[Any]], captions: Tensor) -> Tensor:
        opening, closing = self.target.opening(), self.target.closing(QUESTION)
        rows = [
            Chunk.joined([opening, *self._units(window), closing, self.target.words(tuple(tokens))])
            for window, tokens in zip(features, captions[:, :-1].tolist(), strict=True)
        ]
        hidden = read_chunks(self.target, rows).last_hidden_state
        return self.target.logits(hidden[:, -captions.shape[1] :])

    def summary(self, features: list[Sequence[Any]]) -> Tensor:
        units = torch.stack([torch.stack([u.embeds for u in self._units(window)]) for window in features])
        # The change from one unit to the next shows the speed of all things, wherever they are.
        moved = (units[:, 1:] - units[:, :-1]).abs().mean(1)
        return torch.cat([units.mean(1), units[:, -1] - units[:, 0], moved], 1).flatten(1)

    def _units(self, window: Sequence[Any]) -> list[Chunk]:
        return [self.target.unit(features, i) for i, features in enumerate(window)]


class DraftStudent(CaptionStudent):
    """An EventGPT with the architecture of the checkpoint in `folder` and new weights."""

    draw = staticmethod(event_window)
    module: Any

    def __init__(self, folder: Path) -> None:
        architecture = draft_architecture(folder)
        module = architecture.module_class()(architecture.config)
        super().__init__(module, architecture.tokenizer(), architecture.eos_ids[0])
        self._size = architecture.config.vision_config.image_size
        self._prompt = [torch.tensor(ids) for ids in draft_prompt_ids(self.tokenizer, QUESTION)]
        self.add_heads(with_color=False)

    def features(self, images: Tensor) -> Tensor:
        pixels = clip_pixels(images.flatten(0, 1).numpy(), self._size)
        return self.module.encode_events(pixels.unflatten(0, images.shape[:2]))

    def logits(self, features: Tensor, captions: Tensor) -> Tensor:
        embed = self.module.get_input_embeddings()
        before, after = (embed(ids).expand(len(captions), -1, -1) for ids in self._prompt)
        inputs = torch.cat([before, features, after, embed(captions[:, :-1])], 1)
        hidden = self.module.model(inputs_embeds=inputs, use_cache=False).last_hidden_state
        return self.module.lm_head(hidden[:, -captions.shape[1] :])

    def summary(self, features: Tensor) -> Tensor:
        return features.flatten(1)
