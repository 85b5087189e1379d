"""llama.cpp's library from one of two packages, with the structs and results of the called functions.

llama.cpp changes its structs, so both packages are pinned. These two versions have equal structs.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int32, c_size_t, c_uint32, c_void_p
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from crossspec_ros.errors import InputError, first_line
from crossspec_ros.versions import installed_version

WHEEL = ("xllamacpp", "2026.9.11063")
_FILES = {("llama-cpp-python", "0.3.36"): "llama_cpp/lib/libmtmd.so", WHEEL: "xllamacpp/xllamacpp.abi3.so"}
"""Library of each package and version. The first was compiled for this processor, so it is faster."""
AXES_ROPE = 8, 40
"""RoPE types MROPE and IMROPE, whose positions have several axes."""
FLASH_ATTN_DISABLED = CHUNK_TYPE_TEXT = TYPE_F32 = 0
TYPE_F16, _LEVEL_ERROR = 1, 4


class _Pointer(c_void_p):
    """A pointer; ctypes converts a result of the base class to an int."""


def _struct(*groups: tuple[Any, str]) -> Any:
    """Return a type with these fields; a name that begins with _ covers unused fields."""
    fields = [(name, kind) for kind, names in groups for name in names.split()]
    return type("Struct", (ctypes.Structure,), {"_fields_": fields})


_MODEL_PARAMS = _struct(
    (c_void_p * 2, "_devices"), (c_int32, "n_gpu_layers"), (c_int32 * 4, "_modes"),
    (c_void_p * 4, "_callbacks"), (c_bool * 6, "_flags"),
)  # fmt: skip
_CONTEXT_PARAMS = _struct(
    (c_uint32, "n_ctx n_batch n_ubatch n_seq_max"), (c_uint32 * 3, "_outputs"),
    (c_int32, "n_threads n_threads_batch"), (c_int32 * 4, "_types"), (c_int32, "flash_attn_type"),
    (c_float * 8, "_rope"), (c_void_p * 2, "_evaluated"), (c_int32, "type_k type_v"),
    (c_void_p * 2, "_abort"), (c_bool * 5, "_flags"), (c_bool, "kv_unified"), (c_void_p * 3, "_samplers"),
)  # fmt: skip
_PROJECTOR_PARAMS = _struct(
    (c_bool, "use_gpu"), (c_void_p, "_device"), (c_bool, "print_timings"), (c_int32, "n_threads"),
    (c_void_p * 2, "_markers"), (c_int32, "_attention"), (c_bool, "warmup"), (c_int32, "_image_min_tokens"),
    (c_int32, "image_max_tokens"), (c_void_p * 2, "_evaluated"), (c_int32, "_batch_max_tokens"),
    (c_void_p * 2, "_progress"),
)  # fmt: skip
Batch = _struct((c_int32, "n_tokens"), (c_void_p, "token embd pos n_seq_id seq_id logits"))
Text = _struct((c_char_p, "text"), (c_size_t, "text_len"), (c_bool, "add_special parse_special"))
_RESULTS = {
    _MODEL_PARAMS: "llama_model_default_params",
    _CONTEXT_PARAMS: "llama_context_default_params",
    _PROJECTOR_PARAMS: "mtmd_context_params_default",
    _struct((c_uint32, "t x y z")): "mtmd_image_tokens_get_decoder_pos",
    _Pointer: "llama_model_load_from_file llama_model_get_vocab llama_init_from_model llama_get_memory "
    "mtmd_init_from_file mtmd_bitmap_init mtmd_input_chunks_init mtmd_input_chunks_get "
    "mtmd_input_chunk_get_tokens_image",
    POINTER(c_float): "llama_get_logits llama_get_logits_ith mtmd_get_output_embd",
    POINTER(c_int32): "mtmd_input_chunk_get_tokens_text",
    c_bool: "llama_model_is_recurrent llama_model_is_hybrid llama_vocab_is_eog llama_vocab_get_add_bos "
    "mtmd_support_vision mtmd_decode_use_non_causal",
    c_char_p: "llama_vocab_get_text mtmd_default_marker",
    c_size_t: "mtmd_input_chunks_size mtmd_input_chunk_get_n_tokens",
}
"""Functions by type of result. All others return int, or a result that is not used."""


def find_library() -> tuple[str, Path] | None:
    """Return the fastest installed library as `package==version` and its file, or None."""
    for (package, version), name in _FILES.items():
        if installed_version(package) == version:
            file = Path(str(distribution(package).locate_file(name)))
            # llama-cpp-python can be built without this library.
            if file.is_file():
                return f"{package}=={version}", file
    return None


@cache
def load_library() -> Any:
    """Initialize llama.cpp, which then prints errors only; raises InputError if that is impossible."""
    found = find_library()
    assert found is not None, "callers check the packages first"
    package, file = found
    try:
        library = ctypes.CDLL(str(file))
        for kind, names in _RESULTS.items():
            for name in names.split():
                getattr(library, name).restype = kind
        params, tower = library.llama_context_default_params(), library.mtmd_context_params_default()
        fields = params.n_ctx, params.type_v, *params._flags, params.kv_unified, tower.image_max_tokens
        expected = (512, TYPE_F16, False, True, True, True, True, False, -1)
        reason = "" if fields == expected else "its structs have other fields"
    # A library that this one needs may be missing, or a function.
    except (OSError, AttributeError) as error:
        reason = first_line(error)
    if reason:
        raise InputError(
            f"llama.cpp in '{file}' cannot be used ({reason}): run sudo apt install libgomp1 and pip install "
            f"--force-reinstall {package}"
        )
    for set_log in (library.llama_log_set, library.mtmd_log_set):
        set_log(_print_error, None)
    library.llama_backend_init()
    return library


@ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)
def _print_error(level: int, text: bytes, _: Any) -> None:
    if level == _LEVEL_ERROR:
        print(text.decode(errors="replace"), end="", file=sys.stderr, flush=True)
