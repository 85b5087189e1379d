"""Targets in llama.cpp's format: a GGUF of the language model, and its projector in the same folder.

llama.cpp prepares prompt and frames. Frames are pictures before the question; models that join two frames of
a video get pairs. llama.cpp loads both files to read their sizes. It ends the process with its own message
for some damaged files.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from crossspec_ros.errors import InputError, first_line
from crossspec_ros.files import check_file
from crossspec_ros.models.base import FRAMES, TEXT_ROOM, Chunk, InputSpec
from crossspec_ros.models.footprint import estimate, memory
from crossspec_ros.models.gguf_header import read_embeddings, read_header
from crossspec_ros.models.llama_library import MAX_TOKENS, LlamaModel, LlamaProjector, Part, Picture
from crossspec_ros.models.placement import Placement, available, check_llama_packages

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PROJECTOR = "*mmproj*.gguf"
"""Name of the projector's files, in the folder of the model."""
MARKER, QUESTION = "<__crossspec_frames__>", "<__crossspec_question__>"
_MAX_SIZE = 512
"""Largest height of a frame in pixels; towers shrink larger frames to `MAX_TOKENS`."""
_SHAPES = ((9, 16), (3, 4), (1, 1), (1, 2), (9, 21))
"""Aspect ratios of frames; the estimate uses the ratio with the most tokens."""
_ROUNDING = 1e-3
"""Largest difference of logits, as a share of the largest logit."""
_ALL_FLOAT32 = 0
"""File type of float32 weights."""
_SIGNIFICANDS = {_ALL_FLOAT32: 24, 1: 11, 32: 8}
"""Bits of the significand by file type: float32, float16, bfloat16."""
_COPY = "copy it again, or use a file that this version of llama.cpp supports"
_ANOTHER_FILE = "use another file of this model"
_LOG = logging.getLogger(__name__)


class GgufTarget:
    """`VideoTarget` in llama.cpp, without torch."""

    body: Any = None
    module: Any = None

    def __init__(self, model: LlamaModel, tokenizer: Tokenizer, architecture: GgufArchitecture) -> None:
        self.llama, self.tokenizer = model, tokenizer
        self.architecture, self.spec = architecture, architecture.spec
        self.vocabulary: int = architecture.text.vocab_size
        self.device: Any = "cpu"
        self.dtype: Any = "float32"
        self._embeddings = read_embeddings(architecture.file)

    def words(self, token_ids: tuple[int, ...]) -> Chunk:
        return Chunk.in_a_row(self._embeddings(token_ids), self.spec.axes)

    def prompt_ids(self, question: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        before, behind = self.architecture.prompt
        return self.llama.ids(before, True), self.llama.ids(behind.replace(QUESTION, question), False)

    def opening(self) -> Chunk:
        return self.words(self.prompt_ids("")[0])

    def closing(self, question: str) -> Chunk:
        return self.words(self.prompt_ids(question)[1])

    def encode(self, frames: np.ndarray) -> list[list[Part]]:
        per_unit = self.spec.frames_per_unit
        return [self._projector.parts([*frames[i : i + per_unit]]) for i in range(0, len(frames), per_unit)]

    def unit(self, features: Sequence[Part], i: int) -> Chunk:
        return Chunk.joined(
            [self._picture(part) if isinstance(part, Picture) else self.words(part) for part in features]
        )

    @cached_property
    def _projector(self) -> LlamaProjector:
        """The projector; the first frame loads it, and the model closes it."""
        return LlamaProjector(self.architecture.projector, self.llama)

    def _picture(self, picture: Picture) -> Chunk:
        embeds, *layers = np.split(picture.inputs, 1 + self.spec.added_layers, 1)
        positions = picture.positions[:, : self.spec.axes].T
        return Chunk(embeds, positions, np.stack(layers) if layers else None)


@dataclass(frozen=True)
class GgufArchitecture:
    """A target in a GGUF, described by the file and its `projector`, which have `bytes` bytes.

    `text` has the values of the language model's config by transformers' names. `prompt` has the texts before
    and after the frames; the second contains `QUESTION`.
    """

    file: Path
    projector: Path
    bytes: int
    spec: InputSpec
    text: Any
    prompt: tuple[str, str]
    is_float32: bool

    @classmethod
    def of_folder(cls, file: Path) -> GgufArchitecture:
        """Return the architecture of the model in this file; raises InputError for an invalid pair."""
        if not file.is_file():
            raise InputError(f"there is no file '{file}': correct the path in target")
        check_file(file)
        check_llama_packages(f"'{file}' is a GGUF")
        files = file, *_projectors(file)
        return _read(files, tuple((one.stat().st_size, one.stat().st_mtime_ns) for one in files))

    @classmethod
    def spec_of(cls, file: Path) -> InputSpec:
        """Return the spec of the model in this file; raises InputError as `of_folder`."""
        return cls.of_folder(file).spec

    @property
    def folder(self) -> Path:
        return self.file

    def tokenizer(self) -> Tokenizer:
        from transformers.integrations.gguf import GGUF_TOKENIZER_MAPPING, convert_gguf_tokenizer

        metadata, names = read_header(self.file)[0], GGUF_TOKENIZER_MAPPING["tokenizer"]
        values = {name: metadata[of] for key, name in names.items() if (of := f"tokenizer.{key}") in metadata}
        try:
            return convert_gguf_tokenizer(metadata["general.architecture"], values)[0]
        # The libraries raise errors of many kinds for an unsupported vocabulary.
        except Exception as error:
            raise _error(self.file, f"has an unsupported vocabulary ({first_line(error)})") from error

    def load(self, placement: Placement) -> LlamaModel:
        return LlamaModel(self.file, _COPY)

    def model(self, module: LlamaModel, tokenizer: Tokenizer) -> GgufTarget:
        return GgufTarget(module, tokenizer, self)


FAMILY = GgufArchitecture


def _projectors(file: Path) -> list[Path]:
    """Return the projectors in a model's folder, the most precise first.

    Raises InputError unless there is one, or several that differ only in the types of their weights.
    """
    if fnmatch(file.name, PROJECTOR):
        raise _error(file, "is a projector", "set target to the file of the language model")
    found = {one: _weights(one) for one in sorted(file.parent.glob(PROJECTOR))}
    types, shapes = {kind for kind, _ in found.values()}, {shapes for _, shapes in found.values()}
    if len(shapes) != 1 or len(types) != len(found):
        raise _error(
            file,
            f"needs one projector in its folder, a file with mmproj in its name for each precision, but has "
            f"{', '.join(one.name for one in found) or 'none'}",
            "put the model and its published projector into a folder of their own",
        )
    # A quantised file is larger if its weights have more bits.
    rank = {one: (_SIGNIFICANDS.get(kind, 0), one.stat().st_size) for one, (kind, _) in found.items()}
    return sorted(found, key=lambda one: rank[one], reverse=True)


def _weights(projector: Path) -> tuple[int, frozenset[tuple[str, tuple[int, ...]]]]:
    """Return the file type, and the tensors' names and shapes; raises InputError for a damaged file."""
    check_file(projector)
    try:
        metadata, tensors = read_header(projector)
        shapes = frozenset((name, shape) for name, (shape, _, _) in tensors.items())
        return int(metadata.get("general.file_type", -1)), shapes
    # The reader expects a valid file, and raises errors of many kinds for others.
    except Exception as error:
        raise _error(projector, "is damaged", _COPY) from error


@lru_cache
def _read(files: tuple[Path, ...], stamps: tuple[tuple[int, int], ...]) -> GgufArchitecture:
    file, *projectors = files
    with closing(LlamaModel(file, _COPY)) as model:
        metadata = read_header(file)[0]
        sizes = _sizes(model, metadata)
        projector = projectors[0] if len(projectors) == 1 else _fitting(model, file, projectors, sizes)
        return _architecture(model, file, projector, metadata, sizes)


def _fitting(model: LlamaModel, file: Path, projectors: Sequence[Path], sizes: dict[str, Any]) -> Path:
    """Return the first projector that fits the machine's memory with the model, or else the last.

    llama.cpp counts a frame's tokens only after loading a projector, so the estimate has `MAX_TOKENS` each.
    Free memory changes between starts, so it has no effect.
    """
    spec = SimpleNamespace(frame_tokens=FRAMES * MAX_TOKENS, added_layers=model.added_layers)
    total, count = memory("cpu")[1], len(projectors)
    for projector in projectors:
        target: Any = SimpleNamespace(spec=spec, bytes=_bytes(file, projector), **sizes)
        if estimate(available(target=file.name), target, None).target.total <= total:
            _LOG.info("using projector '%s', the most precise of %d that fits the memory", projector, count)
            return projector
    _LOG.warning("none of %d projectors fits the memory: using the smallest, '%s'", count, projector)
    return projector


def _bytes(*files: Path) -> int:
    return sum(file.stat().st_size for file in files)


def _sizes(model: LlamaModel, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the values of `GgufArchitecture` that determine the memory of the language model."""
    library, handle = model.library, model.handle
    text = SimpleNamespace(
        hidden_size=library.llama_model_n_embd(handle),
        num_hidden_layers=library.llama_model_n_layer(handle),
        num_attention_heads=library.llama_model_n_head(handle),
        num_key_value_heads=library.llama_model_n_head_kv(handle),
        head_dim=metadata.get(f"{metadata['general.architecture']}.attention.key_length"),
        vocab_size=model.words,
    )
    return {"text": text, "is_float32": metadata.get("general.file_type") == _ALL_FLOAT32}


def _architecture(
    model: LlamaModel, file: Path, projector_file: Path, metadata: dict[str, Any], sizes: dict[str, Any]
) -> GgufArchitecture:
    library, handle = model.library, model.handle
    if library.llama_model_is_recurrent(handle) or library.llama_model_is_hybrid(handle):
        raise _error(file, "has recurrent layers, which cannot roll back")
    if metadata.get("split.count", 1) > 1:
        raise _error(file, "is a part of a model", "join the parts with llama.cpp's llama-gguf-split --merge")
    if not _takes_embeddings(file, model):
        raise _error(file, "gives other logits for embeddings than for token ids")
    projector = LlamaProjector(projector_file, model)
    image_size = min(read_header(projector_file)[0]["clip.vision.image_size"] or _MAX_SIZE, _MAX_SIZE)

    def parts(frames: int, shape: tuple[int, int] = _SHAPES[0]) -> Sequence[Part]:
        blank = np.zeros((image_size, image_size * shape[1] // shape[0], 3), np.uint8)
        return projector.parts([blank] * frames, encodes=False)

    def tokens(shape: tuple[int, int]) -> int:
        return sum(len(one.positions if isinstance(one, Picture) else one) for one in parts(1, shape))

    single, double = ([one for one in parts(frames) if isinstance(one, Picture)] for frames in (1, 2))
    per_unit = 2 if len(double) == len(single) else 1
    if not all(picture.is_causal for picture in single):
        raise _error(file, "has frames that attend to later frames, so it cannot prefill them one by one")
    unit_tokens = max(map(tokens, _SHAPES))
    most_tokens = library.llama_model_n_ctx_train(handle)
    frame_tokens = FRAMES // per_unit * unit_tokens
    if frame_tokens + TEXT_ROOM > most_tokens:
        raise _error(file, f"was trained with {most_tokens} tokens, but {FRAMES} frames need {frame_tokens}")
    return GgufArchitecture(
        file=file,
        projector=projector_file,
        spec=InputSpec(
            frames=FRAMES,
            frames_per_unit=per_unit,
            image_size=image_size,
            frame_tokens=frame_tokens,
            most_tokens=most_tokens,
            eos_ids=_eos_ids(file, model),
            axes=3 if model.axes > 1 else 1,
            added_layers=model.added_layers,
        ),
        prompt=_prompt(file, model, metadata.get("tokenizer.chat_template")),
        bytes=_bytes(file, projector_file),
        **sizes,
    )


def _eos_ids(file: Path, model: LlamaModel) -> tuple[int, ...]:
    """Return the ids that end a response, the language model's own first."""
    library, vocabulary = model.library, model.vocabulary
    own = library.llama_vocab_eos(vocabulary), library.llama_vocab_eot(vocabulary)
    # llama.cpp may also mark other tokens as the end of a turn.
    others = (i for i in range(model.words) if library.llama_vocab_is_eog(vocabulary, i))
    ends = tuple(dict.fromkeys(end for end in (*own, *others) if end >= 0))
    if not ends:
        raise _error(file, "has no token that ends a response", "use the file of a chat model")
    return ends


def _takes_embeddings(file: Path, model: LlamaModel) -> bool:
    """Return whether the model gives the same logits for token ids and for their embeddings."""
    library, ids = model.library, np.arange(min(4, model.words), dtype=np.int32)
    shape = library.llama_context_default_params()
    shape.n_ctx = shape.n_batch = shape.n_ubatch = 256
    shape.n_threads = shape.n_threads_batch = 1
    words = read_embeddings(file)(ids.tolist())
    embeds = np.pad(words, ((0, 0), (0, model.width - words.shape[1]))).astype(np.float32)
    positions = np.tile(ids, (model.axes, 1))
    positions[3:] = 0
    context = library.llama_init_from_model(model.handle, shape)
    if not context:
        return False
    try:
        by_ids = model.read(context, ids, positions, len(ids) - 1).copy()
        library.llama_memory_clear(library.llama_get_memory(context), False)
        by_embeddings = model.read(context, embeds, positions, len(ids) - 1)
        return bool(np.abs(by_ids - by_embeddings).max() <= _ROUNDING * np.abs(by_ids).max())
    except RuntimeError:
        return False
    finally:
        library.llama_free(context)


def _prompt(file: Path, model: LlamaModel, template: str | None) -> tuple[str, str]:
    """Return the texts before and after the frames, from the chat template in the file."""
    from transformers.utils.chat_template_utils import render_jinja_template

    library, vocabulary = model.library, model.vocabulary

    def text(token: int) -> str:
        return library.llama_vocab_get_text(vocabulary, token).decode() if token >= 0 else ""

    if not template:
        raise _error(file, "has no chat template", _ANOTHER_FILE)
    # llama.cpp adds the first token itself if the file has this flag.
    begin = "" if library.llama_vocab_get_add_bos(vocabulary) else text(library.llama_vocab_bos(vocabulary))
    end, message, reason = text(library.llama_vocab_eos(vocabulary)), MARKER + QUESTION, "it changes the text"
    # Some templates expect strings, others lists of parts.
    for content in (message, [{"type": "text", "text": message}]):
        chat = [{"role": "user", "content": content}]
        try:
            prompt = render_jinja_template(
                [chat], chat_template=template, add_generation_prompt=True, bos_token=begin, eos_token=end
            )[0][0]
        # A template is a program and may raise any error.
        except Exception as error:
            reason = first_line(error)
            continue
        if prompt.count(MARKER) == prompt.count(QUESTION) == 1:
            before, behind = prompt.split(MARKER)
            return before, behind
    raise _error(file, f"has a chat template that does not take a question ({reason})", _ANOTHER_FILE)


def _error(file: Path, reason: str, remedy: str = "use another target") -> InputError:
    return InputError(f"'{file}' {reason}: {remedy}")
