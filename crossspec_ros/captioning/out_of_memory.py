"""Too little memory for the models: one sentence, or smaller numbers in place of those asked for."""

from __future__ import annotations

import gc
import logging
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from crossspec_ros.errors import InputError, chain, first_line
from crossspec_ros.models.placement import Placement, ladder

_LOG = logging.getLogger(__name__)

Loaded = TypeVar("Loaded")

_LESS = "choose a smaller models.dtype, give the draft another device by models.draft_device"
_OTHERS = "end what else uses this one"
NO_MEMORY = f"memory ran out: {_LESS}, or {_OTHERS}"

_COMPLAINTS = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|out of memory at line|ALLOC_FAILED"
    r"|can't allocate memory|not enough memory|dispatched on the CPU or the disk"
)
"""Messages of errors that mean out of memory, where the class of the error does not say so."""


@contextmanager
def enough_memory(asked: Placement, remedy: str = "") -> Iterator[None]:
    """Raise InputError where memory runs out inside it, with one more `remedy` if there is one."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        release(error)
        last = f"{_OTHERS}, or {remedy}" if remedy else f"or {_OTHERS}"
        raise InputError(
            f"the models do not fit into memory as {asked} ({first_line(error)}): {_LESS}, {last}"
        ) from None


def load_smaller(asked: Placement, load: Callable[[Placement], Loaded]) -> Loaded:
    """Call `load` with `asked`, then smaller choices until memory does; returns what it makes.

    Raises InputError with the last complaint when even the smallest does not fit, and whatever else `load`
    raises.
    """
    reason = ""
    for placement in ladder(asked):
        try:
            return load(placement)
        except Exception as error:
            # That these models cannot be quantised so is no end where nobody asked for it.
            if not is_out_of_memory(error) and (placement == asked or not isinstance(error, InputError)):
                raise
            release(error)
            reason = first_line(error)
        _LOG.warning("the models do not fit into memory as %s: %s", placement, reason)
    raise InputError(
        f"the models do not fit into this machine's memory, not even as {placement} ({reason}): end what "
        f"else uses its memory, or name smaller models"
    )


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
