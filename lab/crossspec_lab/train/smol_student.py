"""SmolLM2 that learns to read frames: a small SigLIP tower, SmolVLM's connector, and low-rank changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peft import LoraConfig, get_peft_model
from peft.utils import get_peft_model_state_dict
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GenerationConfig, SmolVLMConfig, SmolVLMForConditionalGeneration

from crossspec_lab.train import smol_base
from crossspec_lab.train.packed_answers import IGNORED, AnswerIds, pack
from crossspec_lab.train.shown_words import ShownWords
from crossspec_lab.train.tiny_tower import ACTIVATION, HEADS, LAYERS, PATCH, WIDTH, copy_tiny_tower
from crossspec_lab.train.training import window_rng
from crossspec_lab.world import english
from crossspec_lab.world.dataset import FRAMES, SIDE, frame_window, scenes_of
from crossspec_lab.world.phrases import QUESTION
from crossspec_lab.world.questions import ANSWERS, answer
from crossspec_ros.models.smolvlm import AROUND, END, GLOBAL, IMAGE, SmolVLM, SmolVLMArchitecture
from crossspec_ros.paths import tiny_models

Answered = tuple[str, str]
"""A question and its answer."""

_LAYERS, _SCALE = LAYERS + 2, 1
_RANK, _ALPHA = 8, 16
_TOWER_FRAMES = 2
"""Frames of a window in a step of the tower alone: the others resemble them."""
_TOWER_LOSS_SHARE = 0.1
"""Share of the tower's loss beside that of captions."""
_STANDING = 2
"""Standing questions about a window besides its caption."""
_MEASURED = 64
"""Windows whose first frames adapt the tiny target's tower."""
_LINEAR = r"model\.text_model\.layers\.\d+\.(self_attn|mlp)\.\w+_proj"


def added_tokens(first: int) -> dict[str, int]:
    """Return SmolVLM2's tokens behind SmolLM2's own, by their ids."""
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    reserved = [f"<|reserved_special_token_{i}|>" for i in range(88)]
    names = [GLOBAL, *tiles, AROUND, IMAGE, *reserved, END]
    return {name: first + i for i, name in enumerate(names)}


class SmolStudent(nn.Module):
    """A SmolVLM2 with a frozen language model; its tower, connector, added tokens and low-rank changes learn.

    While `is_reading` is False, the tower and the connector learn alone.
    """

    draw = staticmethod(frame_window)

    def __init__(self, folder: Path, device: str) -> None:
        """Make the model, and write the files of its checkpoint besides the weights to `folder`."""
        super().__init__()
        self.is_reading = False
        base, tokenizer = smol_base.base_model()
        _write_configs(base.config, folder)
        self.tokenizer: Tokenizer = tokenizer.backend_tokenizer
        added = added_tokens(base.config.vocab_size)
        self.tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in added])
        known = SmolVLMArchitecture.of_folder(folder)
        module: Any = SmolVLMForConditionalGeneration(known.config)
        tensors = smol_base.base_tensors(base)
        words = tensors.pop(smol_base.EMBEDDINGS)
        module.load_state_dict(tensors, strict=False)
        module.requires_grad_(False)
        config = LoraConfig(r=_RANK, lora_alpha=_ALPHA, target_modules=_LINEAR)
        self._changed: tuple[Any, ...] = (get_peft_model(module, config),)
        self.target: SmolVLM = known.model(module, self.tokenizer)
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
        hidden, wanted = self._read(features, rows)
        chosen = wanted != IGNORED
        hidden = hidden[chosen]
        # One matrix of both would have a gradient for all words, of which only the added rows learn.
        logits = torch.cat([hidden @ self.words.T, hidden @ self.rows.T], 1)
        return F.cross_entropy(logits.float(), wanted[chosen])

    def _embedded(self, ids: Tensor) -> Tensor:
        """Return the (..., width) embeddings of (...) ids."""
        own = len(self.words)
        added = F.embedding((ids - own).clamp(min=0), self.rows)
        return torch.where((ids < own)[..., None], F.embedding(ids.clamp(max=own - 1), self.words), added)

    def _read(self, features: Tensor, rows: Sequence[Sequence[Answered]]) -> tuple[Tensor, Tensor]:
        before = self._before(features)
        packed = pack([[self._ids(*one) for one in row] for row in rows], before.shape[1], features.device)
        inputs = torch.cat([before, self._embedded(packed.tokens)], 1)
        body = self.target.module.model.text_model
        hidden = body(
            inputs_embeds=inputs,
            attention_mask=packed.mask,
            position_ids=packed.positions,
            use_cache=False,
        ).last_hidden_state
        return hidden, packed.wanted

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
        before = self.target.prompt_ids(question)[1]
        ids = self.tokenizer.encode(f" {answer}{END}", add_special_tokens=False).ids
        return AnswerIds([*before, *ids], [False] * len(before) + [True] * len(ids))

    def save(self, out: Path, configs: Path) -> None:
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
        options = {
            "peft_type": "LORA",
            "base_model_name_or_path": smol_base.BASE,
            "r": _RANK,
            "lora_alpha": _ALPHA,
            "target_modules": _LINEAR,
        }
        (out / smol_base.CONFIG).write_text(json.dumps(options, indent=1))
        for file in configs.glob("*.json"):
            shutil.copy(file, out)


def _answers(seed: int, rng: np.random.Generator) -> list[Answered]:
    """Return the caption of a window and its answers to some standing questions."""
    scene = scenes_of(seed)[-2]
    questions = rng.choice(list(ANSWERS), _STANDING, replace=False).tolist()
    return [(QUESTION, english.caption(scene, rng)), *((one, answer(one, scene)) for one in questions)]


def _write_configs(base: Any, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    added = added_tokens(base.vocab_size)
    text = {
        name: getattr(base, name)
        for name in (
            *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
            *("num_key_value_heads", "head_dim", "rms_norm_eps", "rope_parameters"),
            *("max_position_embeddings", "bos_token_id"),
        )
    }
    config = SmolVLMConfig(
        text_config={
            **text,
            "model_type": "llama",
            "vocab_size": base.vocab_size + len(added),
            "tie_word_embeddings": True,
            "eos_token_id": added[END],
            "pad_token_id": base.eos_token_id,
        },
        vision_config={
            "hidden_size": WIDTH,
            "intermediate_size": 4 * WIDTH,
            "num_hidden_layers": _LAYERS,
            "num_attention_heads": HEADS,
            "hidden_act": ACTIVATION,
            "image_size": SIDE,
            "patch_size": PATCH,
        },
        scale_factor=_SCALE,
        image_token_id=added[IMAGE],
        tie_word_embeddings=True,
    )
    config.save_pretrained(folder)
    GenerationConfig(eos_token_id=added[END], bos_token_id=base.bos_token_id).save_pretrained(folder)
    (folder / "added_tokens.json").write_text(json.dumps(added, indent=0))
    processor = {
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "resample": 1,
        "max_image_size": {"longest_edge": SIDE},
        "size": {"longest_edge": 4 * SIDE},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor, indent=1))
    assert FRAMES == 8, "SmolVLM's prompt names eight frames"
