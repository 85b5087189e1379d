"""Base classes of the families in transformers. Supported weights need torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from crossspec_ros.errors import InputError
from crossspec_ros.models.base import Chunk, InputSpec, to_device
from crossspec_ros.models.checkpoint import Checkpoint
from crossspec_ros.models.config_files import config_error, eos_ids, read_config

if TYPE_CHECKING:
    import numpy as np
    import torch
    from tokenizers import Tokenizer
    from typing_extensions import Self


Prompt = tuple[tuple[int, ...], tuple[int, ...]]
_QUESTIONS = 64


class TransformersModel:
    """`base.LanguageModel` for a `module` with the head `lm_head`."""

    axes = 1
    """Number of axes of a position."""

    def __init__(self, module: Any, tokenizer: Tokenizer) -> None:
        self.module, self.body, self.tokenizer = module, module.get_decoder(), tokenizer
        self._embeddings = module.get_input_embeddings()

    @property
    def vocabulary(self) -> int:
        return self._embeddings.num_embeddings

    @property
    def device(self) -> torch.device:
        return self._embeddings.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self._embeddings.weight.dtype

    def words(self, token_ids: tuple[int, ...]) -> Chunk:
        import torch

        ids = to_device(torch.tensor(token_ids, dtype=torch.long), self.device)
        return Chunk.in_a_row(self._embeddings(ids), self.axes)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.module.lm_head(hidden)

    def to_model(self, pixels: torch.Tensor) -> torch.Tensor:
        """Move pixels to the model's device and dtype."""
        return to_device(pixels, self.device).to(self.dtype)


class TransformersVideoModel(TransformersModel, ABC):
    """A target whose prompt has text before and after the frames."""

    def __init__(self, module: Any, tokenizer: Tokenizer, spec: InputSpec) -> None:
        super().__init__(module, tokenizer)
        self.spec = spec
        # Most windows have the same question.
        self.prompt_ids = lru_cache(_QUESTIONS)(partial(self.texts, tokenizer))

    @staticmethod
    @abstractmethod
    def texts(tokenizer: Tokenizer, question: str) -> Prompt:
        """Return the token ids of both texts, see `base.VideoTarget.prompt_ids`."""

    def opening(self) -> Chunk:
        return self.words(self.prompt_ids("")[0])

    def closing(self, question: str) -> Chunk:
        return self.words(self.prompt_ids(question)[1])


class FrameByFrameModel(TransformersVideoModel):
    """A target whose tower encodes each frame separately: `encode` returns (tokens, width) for each."""

    @abstractmethod
    def pixels(self, frames: np.ndarray) -> torch.Tensor:
        """Return the (n, 3, S, S) input of the tower for (n, H, W, 3) uint8 RGB frames."""

    def around(self, i: int) -> tuple[int, ...]:
        """Return the token ids around the `i`-th frame: the last one after it, all others before it."""
        return ()

    def unit(self, features: torch.Tensor, i: int) -> Chunk:
        import torch

        if not (around := self.around(i)):
            return Chunk.in_a_row(features)
        embeds = self.words(around).embeds
        return Chunk.in_a_row(torch.cat([embeds[:-1], features, embeds[-1:]]))


Values = Mapping[str, Any]
"""Values of a config."""
Supported = tuple[str, str, tuple[Any, ...]]
"""Part of a config (empty: the top level), name of a value, and allowed values, the default first."""


@dataclass(frozen=True)
class TransformersTarget(Checkpoint):
    """Checkpoint of a target in transformers. Each family is a subclass.

    Attributes:
        family: name in messages.
        transformers_class: class of the module in transformers.
        model_class: class of the `VideoTarget`.
        special_tokens: special tokens of the prompt.
        default_eos: transformers' default for the end of sequence.
        supported: config values for which the family was compared with transformers.
    """

    spec: InputSpec
    family: ClassVar[str]
    transformers_class: ClassVar[str]
    model_class: ClassVar[type[TransformersVideoModel]]
    unquantized: ClassVar[tuple[str, ...]] = ("lm_head", "model.vision_tower", "model.multi_modal_projector")
    special_tokens: ClassVar[tuple[str, ...]]
    default_eos: ClassVar[Any] = None
    supported: ClassVar[tuple[Supported, ...]] = ()

    @classmethod
    def of_folder(cls, folder: Path) -> Self:
        """Return the architecture of the checkpoint in `folder`; raises InputError."""
        spec, kind = cls.spec_of(folder), cls.module_class().config_class
        return cls(make_config(kind, folder / "config.json", cls.family, config_values(folder)), folder, spec)

    @classmethod
    def spec_of(cls, folder: Path) -> InputSpec:
        """Return the spec of the model in `folder`, without torch; raises InputError."""
        values = config_values(folder)
        try:
            vision, text = values["vision_config"], values["text_config"]
            for part, name, allowed in cls.supported:
                found = (values[part] if part else values).get(name, allowed[0])
                if found not in allowed:
                    raise ValueError(f"{name} is {found}, not {' or '.join(map(str, allowed))}")
            spec = cls.read_spec(folder, values, vision, text)
            if spec.frame_tokens < 1:
                raise ValueError("a frame has no tokens")
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            raise config_error(folder / "config.json", cls.family, error) from error
        return replace(spec, eos_ids=eos_ids(folder, text.get("eos_token_id", cls.default_eos)))

    @classmethod
    @abstractmethod
    def read_spec(cls, folder: Path, values: Values, vision: Values, text: Values) -> InputSpec:
        """Return the spec without `eos_ids`; missing values are transformers' defaults.

        Raises Python's errors for invalid values, and InputError if the processor's settings differ from the
        family's.
        """

    def model(self, module: Any, tokenizer: Tokenizer) -> Any:
        return self.model_class(module, tokenizer, self.spec)

    @classmethod
    def module_class(cls) -> Any:
        import transformers

        return getattr(transformers, cls.transformers_class)

    def tokenizer(self) -> Tokenizer:
        from crossspec_ros.models.text_tokenizer import load_tokenizer

        tokenizer = load_tokenizer(self.folder, self.text.vocab_size)
        added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        # Text reliably becomes a token only if the token is an added one.
        if lacking := [token for token in self.special_tokens if token not in added]:
            raise InputError(
                f"the tokenizer in '{self.folder}' lacks '{lacking[0]}': copy it from the original checkpoint"
            )
        return tokenizer


def make_config(kind: type[Any], file: Path, family: str, values: Values) -> Any:
    """Return transformers' config with these values, from `file`; raises InputError."""
    try:
        config = kind.from_dict(values)
    # transformers' validation raises errors of many kinds.
    except Exception as error:
        raise config_error(file, family, error) from error
    # Other attention implementations do not support tree masks, or are downloaded code.
    config._attn_implementation = "sdpa"
    return config


def split_ids(tokenizer: Tokenizer, text: str, begin: str, tokens: int = 1) -> Prompt:
    """Encode a text, and return the ids before the token `begin` and after `tokens` tokens from there."""
    encoded = tokenizer.encode(text)
    at = encoded.tokens.index(begin)
    return tuple(encoded.ids[:at]), tuple(encoded.ids[at + tokens :])


def added_to_layers(layers: torch.Tensor | None) -> dict[str, Any]:
    """Return the arguments of Qwen3-VL's decoder that add `layers` (k, batch, n, width) after k layers."""
    import torch

    if layers is None:
        return {}
    return {
        "visual_pos_masks": torch.ones(layers.shape[1:3], dtype=torch.bool, device=layers.device),
        "deepstack_visual_embeds": list(layers.flatten(1, 2)),
    }


def config_values(folder: Path) -> dict[str, Any]:
    """Return the values of config.json; raises InputError if it lacks a text or vision config."""
    return read_config(folder / "config.json", ["text_config", "vision_config"])
