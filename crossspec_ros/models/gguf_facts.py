"""Facts of a GGUF and its projector: sizes, ends of a response, the prompt, tokens of a frame.

llama.cpp loads both files for them. It ends the process on some damaged files, with a line of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.models.base import TEXT_ROOM, InputSpec
from crossspec_ros.models.gguf_header import Embeddings, gguf_header
from crossspec_ros.models.llama_library import LlamaModel
from crossspec_ros.models.llama_projector import LlamaProjector, Part, Picture
from crossspec_ros.models.placement import check_llama_packages

PROJECTOR = "*mmproj*.gguf"
"""Name of a projector's file, beside the model's."""
FRAMES = 8
"""Frames of a window."""
MARKER, QUESTION = "<__crossspec_frames__>", "<__crossspec_question__>"
_STEP = 32
"""Step in pixels of the heights that are tried."""
_SHAPES = ((9, 16), (3, 4), (1, 1), (1, 2), (9, 21))
"""Aspects of frames, of which the one with most tokens counts."""
_DEFAULT_SIZE = 448
"""Height in pixels of a frame, where the projector's file has none."""
_PROBED = 4
"""Tokens by which ids and embeddings are compared."""
_ROUNDING = 1e-3
"""Largest difference, as a share of the largest logit."""
_ALL_FLOAT32 = "0"
"""Value of a file's type."""


@dataclass(frozen=True)
class GgufFacts:
    """Facts of both files.

    `text` has the values of the language model's config by transformers' names. `prompt` are the texts before
    and behind the frames, the second with `QUESTION` in it.
    """

    bytes: int
    spec: InputSpec
    text: Any
    prompt: tuple[str, str]
    is_float32: bool


def projector_of(file: Path) -> Path:
    """Return the projector beside a model; raises InputError unless there is exactly one."""
    found = sorted(file.parent.glob(PROJECTOR))
    if file in found:
        raise InputError(f"'{file}' is a projector: name the model's own file, which stands beside it")
    if len(found) != 1:
        lie = " and ".join(f"'{one.name}'" for one in found) or "none"
        raise InputError(
            f"'{file}' needs one projector beside it, a file with mmproj in its name, but there lie {lie}: "
            f"give the model a folder of its own with the projector that was published with it"
        )
    return found[0]


def gguf_facts(file: Path) -> GgufFacts:
    """Return the facts of the model in `file` and of its projector; raises InputError for an invalid pair."""
    check_llama_packages(f"'{file}' is a GGUF")
    if not file.is_file():
        raise InputError(f"there is no file '{file}': check the path of target")
    files = file, projector_of(file)
    return _facts(files, tuple((one.stat().st_size, one.stat().st_mtime_ns) for one in files))


@lru_cache
def _facts(files: tuple[Path, Path], stamps: tuple[tuple[int, int], ...]) -> GgufFacts:
    model = LlamaModel(files[0], "copy it again, or take a file that this version of the library knows")
    try:
        return _found(model, *files)
    finally:
        model.close()


def _found(model: LlamaModel, file: Path, projector_file: Path) -> GgufFacts:
    library, handle = model.library, model.handle
    if library.llama_model_is_recurrent(handle) or library.llama_model_is_hybrid(handle):
        raise InputError(
            f"'{file}' has layers that cannot take back what was read, and so cannot verify drafts: take "
            f"another target"
        )
    if model.metadata("split.count") not in ("", "0", "1"):
        raise InputError(
            f"'{file}' is a part of a model: join all by llama.cpp's llama-gguf-split --merge, and name the "
            f"result"
        )
    if not _takes_embeddings(file, model):
        raise InputError(
            f"llama.cpp reads the words of '{file}' otherwise where they come as embeddings, as here: take "
            f"another target"
        )
    projector = LlamaProjector(projector_file, model)

    def parts(frames: int, height: int, shape: tuple[int, int]) -> Sequence[Part]:
        blank = np.zeros((height, height * shape[1] // shape[0], 3), np.uint8)
        return projector.parts([blank] * frames, encodes=False)

    def tokens(height: int, shape: tuple[int, int] = _SHAPES[0]) -> int:
        return sum(
            len(part.positions) if isinstance(part, Picture) else len(part)
            for part in parts(1, height, shape)
        )

    def pictures(frames: int, height: int) -> list[Picture]:
        return [part for part in parts(frames, height, _SHAPES[0]) if isinstance(part, Picture)]

    with gguf_header(projector_file) as header:
        image_size = header.number("clip.vision.image_size")
    image_size = image_size or _DEFAULT_SIZE
    heights = range(_STEP, image_size, _STEP)
    is_cut = any(len(pictures(1, height)) > 1 for height in (*heights, image_size))
    if heights and not is_cut and tokens(heights[0]) != (most := tokens(image_size)):
        # The projector drops what a larger frame adds.
        image_size = next((height for height in heights if tokens(height) == most), image_size)
    per_unit = 2 if len(pictures(2, image_size)) == len(pictures(1, image_size)) else 1
    seen = pictures(1, image_size)
    if not all(picture.is_causal for picture in seen):
        raise InputError(
            f"the frames of '{file}' see one another in both directions, so that none can be read before the "
            f"last: take another target"
        )
    if model.axes > 1 and any(picture.positions[:, 3].any() for picture in seen):
        raise InputError(
            f"the frames of '{file}' have positions of a kind that is not known here: take another target"
        )
    unit_tokens = max(tokens(image_size, shape) for shape in _SHAPES)
    most_tokens = library.llama_model_n_ctx_train(handle)
    if FRAMES // per_unit * unit_tokens + TEXT_ROOM > most_tokens:
        raise InputError(
            f"{FRAMES} frames take {FRAMES // per_unit * unit_tokens} tokens, but '{file}' was trained with "
            f"{most_tokens} in all: take another target"
        )
    return GgufFacts(
        bytes=file.stat().st_size + projector_file.stat().st_size,
        spec=InputSpec(
            frames=FRAMES,
            frames_per_unit=per_unit,
            image_size=image_size,
            frame_tokens=FRAMES // per_unit * unit_tokens,
            most_tokens=most_tokens,
            eos_ids=_ends(file, model),
            axes=3 if model.axes > 1 else 1,
            added_layers=model.width // library.llama_model_n_embd(handle) - 1,
        ),
        text=_text(model),
        prompt=_prompt(file, model),
        is_float32=model.metadata("general.file_type") == _ALL_FLOAT32,
    )


def _text(model: LlamaModel) -> SimpleNamespace:
    """Return the values of the language model's config that memory depends on."""
    library, handle = model.library, model.handle
    head_dim = model.metadata(f"{model.metadata('general.architecture')}.attention.key_length")
    return SimpleNamespace(
        hidden_size=library.llama_model_n_embd(handle),
        num_hidden_layers=library.llama_model_n_layer(handle),
        num_attention_heads=library.llama_model_n_head(handle),
        num_key_value_heads=library.llama_model_n_head_kv(handle),
        head_dim=int(head_dim) if head_dim else None,
        vocab_size=model.words,
    )


def _ends(file: Path, model: LlamaModel) -> tuple[int, ...]:
    """Return the ids that end a response, the text's own first."""
    library, vocabulary = model.library, model.vocabulary
    ends = [i for i in range(model.words) if library.llama_vocab_is_eog(vocabulary, i)]
    # The library may take any of them for the end of a turn.
    own = [library.llama_vocab_eos(vocabulary), library.llama_vocab_eot(vocabulary), *ends]
    if not (known := [end for end in own if end >= 0]):
        raise InputError(f"'{file}' names no token that ends a text: take another file of this model")
    return tuple(dict.fromkeys(known))


def _takes_embeddings(file: Path, model: LlamaModel) -> bool:
    """Whether the model gives the same logits for token ids and for their embeddings."""
    library, ids = model.library, list(range(min(_PROBED, model.words)))
    shape = library.llama_context_default_params()
    shape.n_ctx = shape.n_batch = shape.n_ubatch = 256
    shape.n_threads = shape.n_threads_batch = 1
    embeds = Embeddings(file).of(ids)
    embeds = np.pad(embeds, ((0, 0), (0, model.width - embeds.shape[1]))).astype(np.float32)
    places = np.tile(np.arange(len(ids), dtype=np.int32), (model.axes, 1))
    places[3:] = 0
    logits: list[np.ndarray] = []
    for inputs in (np.array(ids, np.int32), embeds):
        context = library.llama_init_from_model(model.handle, shape)
        if not context:
            return False
        try:
            logits.append(model.read(context, inputs, places, len(ids) - 1).copy())
        except RuntimeError:
            return False
        finally:
            library.llama_free(context)
    by_ids, by_embeddings = logits
    return bool(np.abs(by_ids - by_embeddings).max() <= _ROUNDING * np.abs(by_ids).max())


def _prompt(file: Path, model: LlamaModel) -> tuple[str, str]:
    """Return the texts before and behind the frames, by the chat template in the file."""
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    library, vocabulary = model.library, model.vocabulary

    def text(token: int) -> str:
        return library.llama_vocab_get_text(vocabulary, token).decode() if token >= 0 else ""

    template = model.metadata("tokenizer.chat_template")
    if not template:
        raise InputError(
            f"'{file}' has no chat template, so that nobody knows how it is asked: take a file that has one, "
            f"or write it anew by llama.cpp's convert_hf_to_gguf.py"
        )
    # The library puts it there itself where the file says so.
    begin = "" if library.llama_vocab_get_add_bos(vocabulary) else text(library.llama_vocab_bos(vocabulary))
    written = Jinja2ChatFormatter(template, text(library.llama_vocab_eos(vocabulary)), begin)
    message = MARKER + QUESTION
    # Some templates take texts, others lists of parts.
    for content in (message, [{"type": "text", "text": message}]):
        try:
            prompt = written(messages=[{"role": "user", "content": content}]).prompt
        # A template is a program, and may raise anything.
        except Exception:
            continue
        if prompt.count(MARKER) == prompt.count(QUESTION) == 1:
            before, behind = prompt.split(MARKER)
            return before, behind
    raise InputError(
        f"the chat template of '{file}' does not take a question: take another file of this model"
    )
