"""SmolLM2 that learns to read frames: a small SigLIP tower, SmolVLM's connector, and low-rank changes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peft import LoraConfig, get_peft_model
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import SmolVLMForConditionalGeneration

from crossspec_lab.train import smol_base
from crossspec_lab.train.reading import AnswerIds, read_answers
from crossspec_lab.train.shown_words import ShownWords
from crossspec_lab.train.training import window_rng
from crossspec_lab.world import english
from crossspec_lab.world.dataset import FRAMES, frame_window, scenes_of
from crossspec_lab.world.phrases import QUESTION
from crossspec_lab.world.questions import ANSWERS, answer
from crossspec_ros.models.config_files import CLIP_MEAN, CLIP_STD
from crossspec_ros.models.smolvlm import END, SmolVLM, SmolVLMArchitecture
from crossspec_ros.paths import tiny_models

Answered = tuple[str, str]
"""A question and its answer."""

_TOWER_FRAMES = 2
"""Frames of a window in a step of the tower alone: the others resemble them."""
_TOWER_LOSS_SHARE = 0.1
"""Weight of the tower's loss; that of captions has 1."""
_STANDING = 2
"""Standing questions about a window besides its caption."""
_MEASURED = 64
"""Windows whose first frames adapt the tiny target's tower."""
LAYERS = 3
"""Layers to copy: Video-LLaVA does not read the fourth of CLIP's tower."""
_PREFIX = "video_tower."


class SmolStudent(nn.Module):
    """A SmolVLM2 with a frozen language model; its tower, connector, added tokens and low-rank changes learn.

    It has the architecture and the tokens of the checkpoint in `source`, which has changes of the same base.
    While `is_reading` is False, the tower and the connector learn alone.
    """

    draw = staticmethod(frame_window)

    def __init__(self, source: Path, device: str) -> None:
        super().__init__()
        self.source, self.is_reading = source, False
        base, tokenizer = smol_base.base_model()
        self.tokenizer: Tokenizer = tokenizer.backend_tokenizer
        ids = json.loads((source / "added_tokens.json").read_text())
        added = sorted(ids, key=ids.__getitem__)
        self.tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in added])
        architecture = SmolVLMArchitecture.of_folder(source)
        module: Any = SmolVLMForConditionalGeneration(architecture.config)
        tensors = smol_base.base_tensors(base)
        words = tensors.pop(smol_base.EMBEDDINGS)
        module.load_state_dict(tensors, strict=False)
        module.requires_grad_(False)
        options = json.loads((source / smol_base.CONFIG).read_text())
        config = LoraConfig(**{name: options[name] for name in ("r", "lora_alpha", "target_modules")})
        self._changed: tuple[Any, ...] = (get_peft_model(module, config),)
        self.target: SmolVLM = architecture.model(module, self.tokenizer)
        self.tower, self.connector = module.model.vision_model, module.model.connector
        self.tower.requires_grad_(True)
        self.connector.requires_grad_(True)
        low_rank = {n: p for n, p in self._changed[0].named_parameters() if ".lora_" in n}
        self.low_rank = nn.ParameterDict({n.replace(".", "-"): p for n, p in low_rank.items()})
        self.words: Tensor
        """(vocabulary, width) embeddings of the base's own words."""
        self.register_buffer("words", words, persistent=False)
        rows = words.mean(0).repeat(len(added), 1) + 0.02 * torch.randn(len(added), words.shape[1])
        # The base has an end of a turn already.
        rows[-1] = words[base.config.eos_token_id]
        self.rows = nn.Parameter(rows)
        self.shown = ShownWords(words, self.tokenizer)
        module.to(device)
        self.to(device)

    def begin_as_tiny_tower(self) -> None:
        """Copy the tiny target's vision tower."""
        frames = np.stack([frame_window(seed)[0] for seed in range(_MEASURED)])
        copy_tiny_tower(self.tower, tiny_models() / "target", self.target.pixels(frames))

    def tower_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of the tower and the connector."""
        return [*self.tower.parameters(), *self.connector.parameters()]

    def language_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of the language model's changes."""
        return [*self.low_rank.parameters(), self.rows]

    def forward(self, images: Tensor, seeds: Tensor) -> dict[str, Tensor]:
        """Return the `loss` on windows; in evaluation of captions it is theirs, in nats a token."""
        drives = seeds.tolist()
        rngs = [window_rng(seed, self.training) for seed in drives]
        frames = list(range(FRAMES))
        if not self.is_reading:
            frames = rngs[0].permutation(FRAMES)[:_TOWER_FRAMES].tolist()
        features = self.features(images[:, frames].cpu().numpy())
        tower_loss = self.shown(features, drives, frames)
        if not self.is_reading:
            return {"loss": tower_loss}
        loss = self.caption_loss(features, [_answers(*one) for one in zip(drives, rngs, strict=True)])
        return {"loss": loss + _TOWER_LOSS_SHARE * tower_loss if self.training else loss}

    def features(self, windows: NDArray[np.uint8]) -> Tensor:
        """Return the (batch, frames, tokens, width) features of (batch, frames, H, W, 3) uint8 frames."""
        pixels = self.target.pixels(windows.reshape(-1, *windows.shape[2:]))
        features = self.target.module.model.get_image_features(pixels[:, None]).pooler_output
        return torch.stack(list(features)).float().unflatten(0, windows.shape[:2])

    def caption_loss(self, features: Tensor, rows: Sequence[Sequence[Answered]]) -> Tensor:
        """Return the cross entropy of the answers about each window, in nats a token."""
        hidden, wanted = self.read(features, rows)
        # One matrix of both would have a gradient for all words, of which only the added rows learn.
        logits = torch.cat([hidden @ self.words.T, hidden @ self.rows.T], 1)
        return F.cross_entropy(logits.float(), wanted)

    def _embedded(self, ids: Tensor) -> Tensor:
        """Return the (..., width) embeddings of (...) ids."""
        own = len(self.words)
        added = F.embedding((ids - own).clamp(min=0), self.rows)
        return torch.where((ids < own)[..., None], F.embedding(ids.clamp(max=own - 1), self.words), added)

    def read(self, features: Tensor, rows: Sequence[Sequence[Answered]]) -> tuple[Tensor, Tensor]:
        """Return the (n, width) states before each of the n tokens of the answers, and the tokens."""
        ids = [[self._ids(*one) for one in row] for row in rows]
        body = self.target.module.model.text_model
        return read_answers(body, self._before(features), self._embedded, ids)

    def _before(self, features: Tensor) -> Tensor:
        """Return the embeddings of the opening and of the frames between their markers."""
        batch = len(features)

        def words(ids: Sequence[int]) -> Tensor:
            return self._embedded(torch.tensor(ids, device=features.device)).expand(batch, -1, -1)

        parts = [words(self.target.prompt_ids("")[0])]
        for i in range(features.shape[1]):
            *ids, last = self.target.around(i)
            parts += [words(ids), features[:, i], words([last])]
        return torch.cat(parts, 1)

    def _ids(self, question: str, answer: str) -> AnswerIds:
        ids = self.tokenizer.encode(f" {answer}{END}", add_special_tokens=False).ids
        return AnswerIds.of(self.target.prompt_ids(question)[1], ids)

    def save(self, out: Path) -> None:
        """Write the checkpoint as changes of its base, in peft's format and bfloat16."""
        changed = self._changed[0]
        low_rank = get_peft_model_state_dict(changed, save_embedding_layers=False)
        state = {name: tensor for name, tensor in low_rank.items() if ".lora_" in name}
        module = self.target.module
        for part in ("model.vision_model", "model.connector"):
            for name, tensor in module.get_submodule(part).state_dict().items():
                state[f"{smol_base.PREFIX}{part}.{name}"] = tensor
        state[f"{smol_base.PREFIX}{smol_base.EMBEDDINGS}"] = self.rows.detach()
        out.mkdir(parents=True, exist_ok=True)
        stored = {name: tensor.to("cpu", torch.bfloat16).contiguous() for name, tensor in state.items()}
        save_file(stored, out / smol_base.WEIGHTS, metadata={"format": "pt"})
        for file in self.source.glob("*.json"):
            shutil.copyfile(file, out / file.name)


def _answers(seed: int, rng: np.random.Generator) -> list[Answered]:
    """Return the caption of a window and its answers to some standing questions."""
    scene = scenes_of(seed)[-2]
    questions = rng.choice(list(ANSWERS), _STANDING, replace=False).tolist()
    return [(QUESTION, english.caption(scene, rng)), *((one, answer(one, scene)) for one in questions)]


def copy_tiny_tower(tower: Any, folder: Path, pixels: Tensor) -> None:
    """Copy the weights of the target in `folder` into a SigLIP `tower` of at least as many layers.

    A SigLIP tower has neither the class token of CLIP's nor its norm before the layers. The norm becomes part
    of the patches' weights, with its mean deviation.

    Args:
        pixels: (n, 3, H, W) frames in -1..1, of which the mean deviation is measured.
    """
    stored = load_file(folder / "model.safetensors")
    tiny = {
        name.removeprefix(_PREFIX): tensor.float()
        for name, tensor in stored.items()
        if name.startswith(_PREFIX)
    }
    state = tower.state_dict()
    for name in state:
        if layer := re.match(r"encoder\.layers\.(\d+)\.", name):
            if int(layer[1]) < LAYERS:
                state[name] = tiny[name]
            elif "out_proj" in name or "fc2" in name:
                # A new layer changes little at first.
                state[name] = 0.1 * state[name]
    patches, positions = (tiny[f"embeddings.{name}_embedding.weight"] for name in ("patch", "position"))
    mean, deviation = torch.tensor(CLIP_MEAN), torch.tensor(CLIP_STD)
    offset = (patches * ((0.5 - mean) / deviation)[:, None, None]).sum((1, 2, 3))
    patches, positions = patches / (2 * deviation)[:, None, None], positions[1:]
    embedded = F.conv2d(pixels.cpu(), patches, offset, stride=patches.shape[-1]).flatten(2).mT + positions
    gain, added = tiny["pre_layrnorm.weight"], tiny["pre_layrnorm.bias"]
    spread = embedded.var(-1, unbiased=False).sqrt().mean()
    norm = gain[:, None] * (torch.eye(len(gain)) - 1 / len(gain)) / spread
    state["embeddings.patch_embedding.weight"] = torch.einsum("ij,j...->i...", norm, patches)
    state["embeddings.patch_embedding.bias"] = norm @ offset + added
    state["embeddings.position_embedding.weight"] = positions @ norm.T
    tower.load_state_dict(state)
