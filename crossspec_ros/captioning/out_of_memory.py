"""Errors that mean too little memory for the models, as one sentence."""

from __future__ import annotations

import gc
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from crossspec_ros.errors import InputError, chain, first_line
from crossspec_ros.models.placement import Placement

_LESS = "choose a smaller models.dtype, give the draft another device by models.draft_device"
_OTHERS = "end what else uses this one"
NO_MEMORY = f"memory ran out: {_LESS}, or {_OTHERS}"

_COMPLAINTS = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|out of memory at line|ALLOC_FAILED"
    r"|can't allocate memory|not enough memory|dispatched on the CPU or the disk"
)
"""Messages of errors that mean out of memory, where the class of the error does not say so."""


@contextmanager
def enough_memory(placement: Placement) -> Iterator[None]:
    """Raise InputError if memory runs out inside it."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        release(error)
        raise InputError(
            f"the models do not fit into memory as {placement} ({first_line(error)}): {_LESS}, or {_OTHERS}"
        ) from None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this, or what it was raised from, says that no memory was left."""
    return any(
        # By name, because a captioner without models need not wait for torch.
        {"OutOfMemoryError", "MemoryError"} & {kind.__name__ for kind in type(link).__mro__}
        or _COMPLAINTS.search(str(link))
        for link in chain(error)
    )


def release(error: BaseException) -> None:
    """Give back the memory that the frames hold which an error came through."""
    for link in chain(error):
        traceback.clear_frames(link.__traceback__)
    free_memory()


def free_memory() -> None:
    """Collect what nobody holds any more, and give back what torch keeps for later."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
