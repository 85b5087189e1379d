"""Facts that a GGUF and its projector tell of themselves, found out in a child process.

llama.cpp ends the process on some damaged files. So both are first loaded in a child, `main`, which tells
what is to be known before there are weights: sizes, ends of a response, the prompt, tokens of a frame.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from crossspec_ros.errors import InputError
from crossspec_ros.models.placement import INSTALL_LLAMA, has_llama

PROJECTOR = "*mmproj*.gguf"
"""Name of a projector's file, beside the model's."""
FRAMES = 8
"""Frames of a window."""
MARKER, QUESTION = "<__crossspec_frames__>", "<__crossspec_question__>"
_LIMIT_S = 300.0
_STEP = 32
"""Step in pixels of the heights that are tried."""
_SHAPES = ((9, 16), (3, 4), (1, 1))
_ALL_FLOAT32 = "0"
"""Value of a file's type."""


@dataclass(frozen=True)
class GgufFacts:
    """Facts of both files; `prompt` are the texts before and behind the frames, the second with `QUESTION`
    in it."""

    name: str
    bytes: int
    width: int
    added_layers: int
    axes: int
    layers: int
    heads: int
    cached: int
    vocabulary: int
    most_tokens: int
    eos_ids: tuple[int, ...]
    prompt: tuple[str, str]
    image_size: int
    unit_tokens: int
    frames_per_unit: int
    is_float32: bool


def projector_of(file: Path) -> Path:
    """The projector beside a model; raises InputError where there is none, or several."""
    found = sorted(file.parent.glob(PROJECTOR))
    if file in found:
        raise InputError(f"'{file}' is a projector: name the model's own file, which stands beside it")
    if len(found) != 1:
        lies = "several lie" if found else "none lies"
        raise InputError(
            f"'{file}' needs one projector beside it, a file whose name has mmproj in it, but {lies} there: "
            f"give the model a folder of its own with the projector that was published with it"
        )
    return found[0]


def gguf_facts(file: Path) -> GgufFacts:
    """Facts of the model in `file` and of its projector; raises InputError for what is no such pair."""
    if not has_llama():
        raise InputError(
            f"'{file}' is for llama.cpp, whose packages are missing: {INSTALL_LLAMA}, which compiles for "
            f"minutes, or name a target in transformers' format"
        )
    if not file.is_file():
        raise InputError(f"there is no file '{file}': check the path of target")
    files = file, projector_of(file)
    return _facts(files, tuple((one.stat().st_size, one.stat().st_mtime_ns) for one in files))


@lru_cache
def _facts(files: tuple[Path, Path], stamps: tuple[tuple[int, int], ...]) -> GgufFacts:
    names = " and ".join(f"'{file}'" for file in files)
    try:
        told = subprocess.run(
            [sys.executable, "-c", _CODE, json.dumps(sys.path), *map(str, files)],
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"llama.cpp did not load {names} within {_LIMIT_S:.0f} s: copy them again"
        ) from error
    try:
        values: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise InputError(
            f"llama.cpp ends when it loads {names}, for one is damaged or of another kind: copy both again"
        ) from None
    if "refused" in values:
        raise InputError(values["refused"])
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return GgufFacts(**values)


_CODE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from crossspec_ros.models import gguf_facts
gguf_facts.main(*sys.argv[2:])
"""


def main(model: str, projector: str) -> None:
    """Print the facts of both files as JSON, or why they are refused."""
    try:
        print(json.dumps(asdict(_found(Path(model), Path(projector)))))
    except InputError as error:
        print(json.dumps({"refused": str(error)}))


def _found(file: Path, projector_file: Path) -> GgufFacts:
    from crossspec_ros.models.llama_library import LlamaModel
    from crossspec_ros.models.llama_projector import LlamaProjector, Picture

    model = LlamaModel(file, "copy it again, or take a file that this version of the library knows")
    library, handle = model.library, model.handle
    if library.llama_model_is_recurrent(handle) or library.llama_model_is_hybrid(handle):
        raise InputError(
            f"'{file}' has layers that cannot take back what was read, and so cannot verify drafts: take "
            f"another target"
        )
    projector = LlamaProjector(projector_file, model)

    def parts(frames: int, height: int, shape: tuple[int, int]) -> Sequence[Any]:
        blank = np.zeros((height, height * shape[1] // shape[0], 3), np.uint8)
        return projector.parts([blank] * frames, encodes=False)

    def tokens(height: int, shape: tuple[int, int] = _SHAPES[0]) -> int:
        return sum(
            len(part.positions) if isinstance(part, Picture) else len(part)
            for part in parts(1, height, shape)
        )

    def pictures(frames: int) -> list[Picture]:
        return [part for part in parts(frames, image_size, _SHAPES[-1]) if isinstance(part, Picture)]

    image_size = int(_meta(projector_file, "clip.vision.image_size"))
    heights = range(_STEP, image_size, _STEP)
    if heights and tokens(heights[0]) != (most := tokens(image_size)):
        # What a larger frame adds is not looked at.
        image_size = next((height for height in heights if tokens(height) == most), image_size)
    per_unit = 2 if len(pictures(2)) == len(pictures(1)) else 1
    if not all(picture.is_causal for picture in pictures(1)):
        raise InputError(
            f"the frames of '{file}' see one another in both directions, so that none can be read before the "
            f"last: take another target"
        )
    heads, kv_heads = library.llama_model_n_head(handle), library.llama_model_n_head_kv(handle)
    own_width, layers = library.llama_model_n_embd(handle), library.llama_model_n_layer(handle)
    head_width = int(
        model.told(f"{model.told('general.architecture')}.attention.key_length") or own_width // heads
    )
    return GgufFacts(
        name=model.told("general.name") or file.stem,
        bytes=file.stat().st_size + projector_file.stat().st_size,
        width=own_width,
        added_layers=model.width // own_width - 1,
        axes=3 if model.axes > 1 else 1,
        layers=layers,
        heads=heads,
        cached=2 * layers * kv_heads * head_width,
        vocabulary=model.words,
        most_tokens=library.llama_model_n_ctx_train(handle),
        eos_ids=_ends(model),
        prompt=_prompt(file, model),
        image_size=image_size,
        unit_tokens=max(tokens(image_size, shape) for shape in _SHAPES),
        frames_per_unit=per_unit,
        is_float32=model.told("general.file_type") == _ALL_FLOAT32,
    )


def _ends(model: Any) -> tuple[int, ...]:
    """Ids that end a response, that of the text itself first."""
    library, vocabulary = model.library, model.vocabulary
    ends = [i for i in range(model.words) if library.llama_vocab_is_eog(vocabulary, i)]
    own = library.llama_vocab_eot(vocabulary)
    if own < 0:
        own = library.llama_vocab_eos(vocabulary)
    return (own, *(end for end in ends if end != own))


def _prompt(file: Path, model: Any) -> tuple[str, str]:
    """Texts before and behind the frames by the chat template in the file."""
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    library, vocabulary = model.library, model.vocabulary

    def text(token: int) -> str:
        return library.llama_vocab_get_text(vocabulary, token).decode() if token >= 0 else ""

    template = model.told("tokenizer.chat_template")
    if not template:
        raise InputError(
            f"'{file}' has no chat template, so that nobody knows how it is asked: take a file that has one, "
            f"or write it anew by llama.cpp's convert_hf_to_gguf.py"
        )
    # The library puts it there itself where the file says so.
    begin = "" if library.llama_vocab_get_add_bos(vocabulary) else text(library.llama_vocab_bos(vocabulary))
    written = Jinja2ChatFormatter(template, text(library.llama_vocab_eos(vocabulary)), begin)
    asked = MARKER + QUESTION
    # Some templates know texts, others lists of parts.
    for content in (asked, [{"type": "text", "text": asked}]):
        try:
            prompt = written(messages=[{"role": "user", "content": content}]).prompt
        # A template is a program of others, and fails as it likes.
        except Exception:
            continue
        if prompt.count(MARKER) == prompt.count(QUESTION) == 1:
            before, behind = prompt.split(MARKER)
            return before, behind
    raise InputError(
        f"the chat template of '{file}' does not take a question: take another file of this model"
    )


def _meta(file: Path, key: str) -> str:
    from gguf import GGUFReader

    field = GGUFReader(file).get_field(key)
    if field is None:
        raise InputError(
            f"'{file}' does not say {key}: take the mmproj file that was published with the model"
        )
    return str(field.contents())
