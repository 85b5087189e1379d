"""Placement of the models: devices, dtypes and engines.

The CLI checks a placement before it starts a process, so this file imports torch only if needed.
"""

from __future__ import annotations

import importlib.util
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossspec_ros.errors import InputError
from crossspec_ros.models.llama_calls import WHEEL, find_library
from crossspec_ros.settings import DEVICE, DEVICES, DTYPES, LLAMA_CPP, TORCH

if TYPE_CHECKING:
    import torch
    from transformers import BitsAndBytesConfig

QUANTIZED = ("int8", "nf4")
GGUF = "gguf"
"""Suffix of llama.cpp's files, and dtype of such a target, whose file has its own types."""
LLAMA_KINDS = {"float32": "F32", "bf16": "BF16", "int8": "Q8_0"}
"""llama.cpp's weight types by dtype."""
_INSTALL_LLAMA = f"pip install {'=='.join(WHEEL)} gguf==0.19.0"


@dataclass(frozen=True)
class Placement:
    """Dtype of both models, their devices by torch's names, and the engine of the target's language model.

    An empty `draft_device` means the target's device.
    """

    dtype: str = "float32"
    device: str = "cpu"
    draft_device: str = ""
    engine: str = TORCH

    def __str__(self) -> str:
        by = f" by {self.engine}" if self.engine != TORCH else ""
        apart = f", draft on {self.draft_on}" if self.draft_on != self.device else ""
        return f"{self.dtype} on {self.device}{by}{apart}"

    @property
    def draft_on(self) -> str:
        """Return the device of the draft."""
        return self.draft_device or self.device

    @property
    def of_draft(self) -> Placement:
        """Return the placement of the draft, which always runs in torch.

        If the target runs in llama.cpp, a draft on the CPU is float32: bfloat16 may take ten times as long.
        """
        of_llama = "float32" if self.draft_on == "cpu" else "bf16"
        return Placement(self.dtype if self.engine == TORCH else of_llama, self.draft_on)

    @property
    def torch_dtype(self) -> torch.dtype:
        """Return the dtype of weights that are not quantised."""
        import torch

        return torch.float32 if self.dtype == "float32" else torch.bfloat16

    @property
    def is_quantized(self) -> bool:
        """Whether torch quantises linear layers."""
        return self.dtype in QUANTIZED and self.engine == TORCH

    def quantization(self, unquantized: tuple[str, ...]) -> BitsAndBytesConfig | None:
        """Return the argument of `from_pretrained` that quantises all other modules, or None."""
        from transformers import BitsAndBytesConfig

        if not self.is_quantized:
            return None
        # In int8 bitsandbytes logs the cast to float16 for every product.
        logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
        return BitsAndBytesConfig(
            load_in_8bit=self.dtype == "int8",
            load_in_4bit=self.dtype == "nf4",
            llm_int8_skip_modules=list(unquantized),
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=self.torch_dtype,
        )


def is_gguf(name: str) -> bool:
    """Return whether this is the name of a file in llama.cpp's format."""
    return name.lower().endswith(f".{GGUF}")


def is_remote(target: str) -> bool:
    """Return whether a target is the address of a server."""
    return "://" in target


def available(
    dtype: str = DTYPES[0],
    device: str = "auto",
    draft_device: str = "",
    engine: str = TORCH,
    target: str = "",
) -> Placement:
    """Return the placement on this machine; `device` "auto" means the first GPU, or else the CPU.

    A `target` in llama.cpp's format sets engine and dtype. Raises InputError for an invalid or missing
    device, a dtype without its library, and unsupported options.
    """
    if is_gguf(target) or engine == LLAMA_CPP:
        reason = f"'{target}' is a GGUF" if is_gguf(target) else "models.engine is llama.cpp"
        # Weights in a GGUF have dtypes of their own.
        dtypes = DTYPES[:1] if is_gguf(target) else tuple(LLAMA_KINDS)
        if dtype not in dtypes or device not in ("auto", "cpu"):
            raise InputError(
                f"{reason}, which runs on the CPU in {' or '.join(dtypes)}, but models.device is {device} "
                f"and models.dtype is {dtype}: set models.device to cpu and models.dtype to {dtypes[0]}"
            )
        engine, device, dtype = LLAMA_CPP, "cpu", GGUF if is_gguf(target) else dtype
    elif dtype in QUANTIZED and not importlib.util.find_spec("bitsandbytes"):
        raise InputError(
            f"models.dtype is {dtype}, but bitsandbytes is missing: run pip install bitsandbytes, or set "
            f"models.dtype to bf16"
        )
    main = _device("models.device", device)
    draft = _device("models.draft_device", draft_device) if draft_device else main
    return Placement(dtype, main, draft if draft != main else "", engine)


def has_llama() -> bool:
    """Return whether llama.cpp and the writer of its files are installed."""
    return find_library() is not None and importlib.util.find_spec("gguf") is not None


def check_llama_packages(reason: str) -> None:
    """Raise InputError if llama.cpp, which is needed for this `reason`, is not installed."""
    if not has_llama():
        raise InputError(
            f"{reason}, but llama.cpp's packages are missing: run {_INSTALL_LLAMA}, or set another target or "
            f"engine"
        )


def _device(name: str, device: str) -> str:
    if device == "cpu":
        return device
    import torch

    if device != "auto" and not re.fullmatch(DEVICE, device):
        raise InputError(
            f"{name} is '{device}', which is not a device: set it to one of {', '.join(DEVICES)}"
        )
    number = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto" and not number:
        return "cpu"
    index = int(device.partition(":")[2] or 0)
    if index >= number:
        raise InputError(
            f"{name} is {device}, but torch finds {number} CUDA devices: set it to cpu or to one of these, "
            f"or check the driver with nvidia-smi and that torch is a CUDA build"
        )
    return f"cuda:{index}"
