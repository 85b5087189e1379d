"""Targets in llama.cpp's own format: a GGUF of the language model, and the projector of frames beside it.

llama.cpp makes prompt and frames as it does for itself: frames are pictures in a row before the question, and
those models that join two frames of a video get them in pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.errors import InputError, first_line
from crossspec_ros.models.base import Chunk, InputSpec
from crossspec_ros.models.gguf_facts import QUESTION, GgufFacts, gguf_facts, projector_of
from crossspec_ros.models.gguf_header import Embeddings, GgufHeader, gguf_header
from crossspec_ros.models.llama_library import LlamaModel
from crossspec_ros.models.llama_projector import LlamaProjector, Part, Picture
from crossspec_ros.models.placement import Placement

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

_QUESTIONS = 64
_COPY = "copy it again"
_SPECIAL = (3, 4)
"""Types of tokens that control, and that users have defined."""


class GgufTarget:
    """A target in llama.cpp behind `VideoTarget`; nothing of it is in torch."""

    body: Any = None
    module: Any = None

    def __init__(self, model: LlamaModel, tokenizer: Tokenizer, known: GgufArchitecture) -> None:
        self.llama, self.tokenizer, self.spec, self.facts = model, tokenizer, known.spec, known.facts
        self.vocabulary: int = known.text.vocab_size
        self.device: Any = "cpu"
        self.dtype: Any = "float32"
        self._file = known.file
        self._embeddings = Embeddings(known.file)
        self._prompt_ids = lru_cache(_QUESTIONS)(self._texts)

    def words(self, token_ids: tuple[int, ...]) -> Chunk:
        return Chunk.in_a_row(self._embeddings.of(token_ids), self.spec.axes)

    def prompt_ids(self, question: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self._prompt_ids(question)

    def opening(self) -> Chunk:
        return self.words(self.prompt_ids("")[0])

    def closing(self, question: str) -> Chunk:
        return self.words(self.prompt_ids(question)[1])

    def encode(self, frames: np.ndarray) -> list[list[Part]]:
        per_unit = self.spec.frames_per_unit
        return [self._projector.parts([*frames[i : i + per_unit]]) for i in range(0, len(frames), per_unit)]

    def unit(self, features: Sequence[Part], i: int) -> Chunk:
        return Chunk.joined(
            [self._seen(part) if isinstance(part, Picture) else self.words(part) for part in features]
        )

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("llama.cpp gives logits itself")

    @cached_property
    def _projector(self) -> LlamaProjector:
        """The projector, which is loaded for the first frame and closed with the model."""
        return LlamaProjector(projector_of(self._file), self.llama)

    def _seen(self, picture: Picture) -> Chunk:
        embeds, *layers = np.split(picture.inputs, 1 + self.spec.added_layers, 1)
        positions = picture.positions[:, : self.spec.axes].T
        return Chunk(embeds, positions, np.stack(layers) if layers else None)

    def _texts(self, question: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        before, behind = self.facts.prompt
        return self.llama.ids(before, True), self.llama.ids(behind.replace(QUESTION, question), False)


@dataclass(frozen=True)
class GgufArchitecture:
    """The target in a GGUF, known by its facts."""

    file: Path
    facts: GgufFacts

    unquantized = ()

    @classmethod
    def of_folder(cls, file: Path) -> GgufArchitecture:
        """Return the architecture of the model in this file; raises InputError for an invalid one."""
        return cls(file, gguf_facts(file))

    @classmethod
    def spec_of(cls, file: Path) -> InputSpec:
        """Return the spec of the model in this file; raises InputError as `of_folder`."""
        return cls.of_folder(file).spec

    @property
    def folder(self) -> Path:
        return self.file

    @property
    def spec(self) -> InputSpec:
        return self.facts.spec

    @property
    def text(self) -> Any:
        return self.facts.text

    def tokenizer(self) -> Tokenizer:
        with gguf_header(self.file) as header:
            if header.text("tokenizer.ggml.model") == "gpt2":
                return _byte_level(header)
        # transformers reconstructs the merges of the other kinds.
        from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer

        try:
            kind, values, _ = get_gguf_tokenizer(str(self.file))
            return convert_gguf_tokenizer(kind, values)[0]
        # The libraries raise errors of many kinds for an unknown vocabulary.
        except Exception as error:
            raise InputError(
                f"transformers cannot read the vocabulary of '{self.file}' ({first_line(error)}): take "
                f"another target"
            ) from error

    def skeleton(self) -> LlamaModel:
        return LlamaModel(self.file, _COPY, only_words=True)

    def load(self, placement: Placement) -> LlamaModel:
        return LlamaModel(self.file, _COPY)

    def model(self, module: LlamaModel, tokenizer: Tokenizer) -> GgufTarget:
        return GgufTarget(module, tokenizer, self)


FAMILY = GgufArchitecture


def _byte_level(header: GgufHeader) -> Tokenizer:
    """Byte-level BPE of a header's vocabulary; a text is cut as GPT-2's, for only drafts are cut by it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    words = header.texts("tokenizer.ggml.tokens")
    merges = [merge.partition(" ")[::2] for merge in header.texts("tokenizer.ggml.merges")]
    vocabulary = {word: i for i, word in enumerate(words)}
    # BPE refuses merges that make no word.
    known = [merge for merge in merges if "".join(merge) in vocabulary]
    tokenizer = Tokenizer(models.BPE(vocabulary, known))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    types = header.numbers("tokenizer.ggml.token_type")
    special = [word for word, kind in zip(words, types, strict=True) if kind in _SPECIAL]
    tokenizer.add_special_tokens([AddedToken(word, normalized=False, special=True) for word in special])
    return tokenizer
