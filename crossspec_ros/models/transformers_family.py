"""Base classes of the families that are modules of transformers; weights alone need torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from crossspec_ros.errors import InputError
from crossspec_ros.models.base import Chunk, InputSpec, to_device
from crossspec_ros.models.config_files import eos_ids, no_config, read_config
from crossspec_ros.models.placement import Placement

if TYPE_CHECKING:
    import numpy as np
    import torch
    from tokenizers import Tokenizer
    from typing_extensions import Self


Prompt = tuple[tuple[int, ...], tuple[int, ...]]
_QUESTIONS = 64


class TransformersModel:
    """Part of `base.LanguageModel` for a `module` with the head `lm_head` and the decoder `body`."""

    axes = 1
    """Axes of a position."""

    def __init__(self, module: Any, body: Any, tokenizer: Tokenizer) -> None:
        self.module, self.body, self.tokenizer = module, body, tokenizer
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

    def own(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return pixels on the model's device, in its dtype."""
        return to_device(pixels, self.device).to(self.dtype)


class TransformersVideoModel(TransformersModel, ABC):
    """A target whose frames stand between two texts."""

    language: ClassVar[str] = "model.language_model"
    """Name of the decoder in the module."""

    def __init__(self, module: Any, tokenizer: Tokenizer, spec: InputSpec) -> None:
        super().__init__(module, attrgetter(self.language)(module), tokenizer)
        self.spec = spec
        # The question is the same for most windows.
        self._prompt_ids = lru_cache(_QUESTIONS)(partial(self.texts, tokenizer))

    @staticmethod
    @abstractmethod
    def texts(tokenizer: Tokenizer, question: str) -> Prompt:
        """Return the token ids of both texts, see `base.VideoTarget.prompt_ids`."""

    def prompt_ids(self, question: str) -> Prompt:
        return self._prompt_ids(question)

    def opening(self) -> Chunk:
        return self.words(self.prompt_ids("")[0])

    def closing(self, question: str) -> Chunk:
        return self.words(self.prompt_ids(question)[1])


class FrameByFrameModel(TransformersVideoModel):
    """A target whose tower sees each frame alone: `encode` gives (tokens, width) of each."""

    @abstractmethod
    def pixels(self, frames: np.ndarray) -> torch.Tensor:
        """Return the (n, 3, S, S) input of the tower for (n, H, W, 3) uint8 RGB frames."""

    def around(self, i: int) -> tuple[int, ...]:
        """Return the token ids around the `i`-th frame: the last stands behind it, all others before it."""
        return ()

    def unit(self, features: torch.Tensor, i: int) -> Chunk:
        import torch

        if not (around := self.around(i)):
            return Chunk.in_a_row(features)
        embeds = self.words(around).embeds
        return Chunk.in_a_row(torch.cat([embeds[:-1], features, embeds[-1:]]))


Values = Mapping[str, Any]
"""A config's values."""
Only = tuple[str, str, tuple[Any, ...]]
"""Part of a config (empty for all of it), a value's name, and its allowed values, the default first."""


@dataclass(frozen=True)
class TransformersTarget(ABC):
    """A target known by its `config`, which is that of the checkpoint in `folder`."""

    config: Any
    spec: InputSpec
    folder: Path
    family: ClassVar[str]
    transformers_class: ClassVar[str]
    """Name of transformers' class of its module."""
    behind: ClassVar[type[TransformersVideoModel]]
    """Class that puts the module behind the contract."""
    unquantized: ClassVar[tuple[str, ...]] = ("lm_head", "model.vision_tower", "model.multi_modal_projector")
    needs: ClassVar[tuple[str, ...]]
    """Tokens of its prompt."""
    default_eos: ClassVar[Any] = None
    """transformers' default of the text's end of sequence."""
    only: ClassVar[tuple[Only, ...]] = ()
    """Values that were compared with transformers."""

    @classmethod
    def of_folder(cls, folder: Path) -> Self:
        """Return the architecture of the checkpoint in `folder`; raises InputError."""
        spec = cls.spec_of(folder)
        try:
            config = cls.module_class().config_class.from_dict(config_values(folder))
        # transformers' validation raises errors of its own kinds.
        except Exception as error:
            raise no_config(folder / "config.json", cls.family, error) from error
        return cls(config, spec, folder)

    @classmethod
    def spec_of(cls, folder: Path) -> InputSpec:
        """Return the spec of the model in `folder`, without torch.

        Raises InputError for an invalid config, and for one with other parts than the released ones.
        """
        values = config_values(folder)
        try:
            vision, text = values["vision_config"], values["text_config"]
            for part, name, allowed in cls.only:
                found = (values[part] if part else values).get(name, allowed[0])
                if found not in allowed:
                    raise ValueError(f"{name} is {found}, not {' or '.join(map(str, allowed))}")
            spec = cls.read_spec(folder, values, vision, text)
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            raise no_config(folder / "config.json", cls.family, error) from error
        return replace(spec, eos_ids=eos_ids(folder, text.get("eos_token_id", cls.default_eos)))

    @classmethod
    @abstractmethod
    def read_spec(cls, folder: Path, values: Values, vision: Values, text: Values) -> InputSpec:
        """Return the spec without its `eos_ids`; values that the config lacks are transformers' defaults.

        Raises the errors of Python for wrong values, and InputError where the folder's processor makes other
        pixels than this family.
        """

    @property
    def configs(self) -> tuple[Any, ...]:
        """Return the arguments of the module's class."""
        return (self.config,)

    @property
    def text(self) -> Any:
        """Return the config of the language model."""
        return self.config.get_text_config()

    def model(self, module: Any, tokenizer: Tokenizer) -> Any:
        return self.behind(module, tokenizer, self.spec)

    @classmethod
    def module_class(cls) -> Any:
        """Return the class of the module."""
        import transformers

        return getattr(transformers, cls.transformers_class)

    def tokenizer(self) -> Tokenizer:
        from crossspec_ros.models.text_tokenizer import load_tokenizer

        tokenizer = load_tokenizer(self.folder, self.text.vocab_size)
        added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        # No text becomes another entry of the vocabulary for certain.
        if lacking := [token for token in self.needs if token not in added]:
            raise InputError(
                f"the tokenizer in '{self.folder}' lacks '{lacking[0]}': take the one that came with the "
                f"weights"
            )
        return tokenizer

    def skeleton(self) -> Any:
        from crossspec_ros.models.checkpoint import skeleton

        return skeleton(self)

    def load(self, placement: Placement) -> Any:
        from crossspec_ros.models.checkpoint import load_module, read_tensors

        return load_module(self, read_tensors(self.folder), placement, placement.device)


def parted(tokenizer: Tokenizer, text: str, begin: str, tokens: int = 1) -> Prompt:
    """Return the ids of a text before the token `begin`, and behind it and the `tokens` - 1 that follow."""
    encoded = tokenizer.encode(text)
    at = encoded.tokens.index(begin)
    return tuple(encoded.ids[:at]), tuple(encoded.ids[at + tokens :])


def added_to_layers(layers: torch.Tensor | None) -> dict[str, Any]:
    """Return a body's arguments that add `layers` (k, batch, n, width) behind its first k layers.

    The names are those of Qwen3-VL in transformers.
    """
    import torch

    if layers is None:
        return {}
    return {
        "visual_pos_masks": torch.ones(layers.shape[1:3], dtype=torch.bool, device=layers.device),
        "deepstack_visual_embeds": list(layers.flatten(1, 2)),
    }


def config_values(folder: Path) -> dict[str, Any]:
    """Return the values of config.json, which has a text and a vision config; raises InputError."""
    return read_config(folder / "config.json", ["text_config", "vision_config"])
