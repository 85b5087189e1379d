"""Placement of the models: devices and numbers that may be asked for, and what takes less memory.

Nothing here needs torch until a placement is used, so that the CLI can refuse one before it starts a process.
"""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from crossspec_ros.errors import InputError

if TYPE_CHECKING:
    import torch
    from transformers import BitsAndBytesConfig

    from crossspec_ros.models.base import LanguageModel

Only = Literal["", "target", "draft"]
"""The model whose weights are loaded; empty for both."""
NO_DRAFT = "none"
"""In place of a draft's folder: the target is to do without."""
DTYPES = ("float32", "bf16", "int8", "nf4")
"""From the largest to the smallest."""
QUANTIZED = ("int8", "nf4")
ENGINES = ("torch", "llama.cpp")
"""Libraries that run a target's language model."""
DEVICES = ("cpu", "cuda", "cuda:N")
DEVICE = r"cpu|cuda(:\d+)?"
"""Pattern of `DEVICES`."""


@dataclass(frozen=True)
class Placement:
    """Numbers of both models and the devices they run on, as torch names them; the draft's empty: as the
    target's."""

    dtype: str = "float32"
    device: str = "cpu"
    draft_device: str = ""

    def __str__(self) -> str:
        apart = self.draft_on != self.device
        return f"{self.dtype} on {self.device}" + (f", draft on {self.draft_on}" if apart else "")

    @property
    def draft_on(self) -> str:
        """The device of the draft."""
        return self.draft_device or self.device

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of everything that is not quantised."""
        import torch

        return torch.float32 if self.dtype == "float32" else torch.bfloat16

    def quantizes(self, name: str, unquantized: tuple[str, ...]) -> bool:
        """Whether the weight of the linear layer of this name is, which the modules `unquantized` are not."""
        if self.dtype not in QUANTIZED:
            return False
        return not any(name == kept or name.startswith(f"{kept}.") for kept in unquantized)

    def quantization(self, unquantized: tuple[str, ...]) -> BitsAndBytesConfig | None:
        """Quantisation of all but these modules for `from_pretrained`; None where there is none."""
        from transformers import BitsAndBytesConfig

        skipped = list(unquantized)
        if self.dtype == "int8":
            # Else it tells of each product that its inputs are cast to float16.
            logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
            return BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=skipped)
        if self.dtype == "nf4":
            return BitsAndBytesConfig(
                load_in_4bit=True,
                llm_int8_skip_modules=skipped,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_compute_dtype=self.torch_dtype,
            )
        return None


def smaller(placement: Placement) -> Placement | None:
    """The next choice that takes less memory where it is scarce; None where there is none.

    First the smaller dtypes, as far as there is bitsandbytes, then the draft on the CPU, then both there.
    """
    following = DTYPES[DTYPES.index(placement.dtype) + 1 :]
    if following and (following[0] not in QUANTIZED or importlib.util.find_spec("bitsandbytes")):
        return replace(placement, dtype=following[0])
    if placement.draft_on != "cpu":
        return replace(placement, draft_device="cpu")
    return Placement("bf16", "cpu") if placement.device != "cpu" else None


def ladder(asked: Placement) -> Iterator[Placement]:
    """`asked`, and every smaller choice in turn."""
    choice: Placement | None = asked
    while choice:
        yield choice
        choice = smaller(choice)


def available(dtype: str, device: str = "auto", draft_device: str = "") -> Placement:
    """The placement on this machine; `device` "auto" is the first GPU, or the CPU where there is none.

    Raises InputError for what is no device or not there, and for a quantisation without its library.
    """
    if dtype in QUANTIZED and not importlib.util.find_spec("bitsandbytes"):
        raise InputError(
            f"models.dtype is {dtype}, but bitsandbytes is missing: pip install bitsandbytes, or take bf16"
        )
    target = _device("models.device", device)
    draft = _device("models.draft_device", draft_device) if draft_device else target
    return Placement(dtype, target, draft if draft != target else "")


def placement_of(target: LanguageModel, draft: LanguageModel | None) -> Placement:
    """Placement of loaded models, whatever was asked for."""
    kinds = {type(parameter).__name__ for parameter in target.module.parameters()}
    # Embeddings are never quantised.
    plain = "float32" if target.dtype.itemsize == 4 else "bf16"
    dtype = "nf4" if "Params4bit" in kinds else "int8" if "Int8Params" in kinds else plain
    device = str(target.device)
    draft_device = str(draft.device) if draft else device
    return Placement(dtype, device, draft_device if draft_device != device else "")


def _device(name: str, device: str) -> str:
    import torch

    if device != "auto" and not re.fullmatch(DEVICE, device):
        raise InputError(f"{name} is '{device}', which is no device: give one of {', '.join(DEVICES)}")
    number = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "cpu" or (device == "auto" and not number):
        return "cpu"
    if not number:
        raise InputError(
            f"{name} is {device}, but torch finds no CUDA device: set it to cpu, or check with "
            f"nvidia-smi that the driver works, and that torch is a CUDA build"
        )
    index = int(device.partition(":")[2] or 0)
    if index >= number:
        raise InputError(
            f"{name} is {device}, but the last CUDA device is cuda:{number - 1}: set it to one that is there"
        )
    return f"cuda:{index}"
