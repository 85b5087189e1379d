"""Load models, engine and proposers from the captioner's settings."""

from __future__ import annotations

import gc
import re
import socket
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.models_digest import files_digest
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import make_proposers
from crossspec_ros.errors import InputError, chain, first_line
from crossspec_ros.files import read_small
from crossspec_ros.models.base import TEXT_ROOM
from crossspec_ros.models.hub import target_path
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import GGUF, Placement, available, is_remote
from crossspec_ros.paths import models_folder
from crossspec_ros.settings import LLAMA_CPP, NO_DRAFT, CaptionerSettings, PairSettings
from crossspec_ros.windows.grid import WindowGrid

if TYPE_CHECKING:
    # A robot with a remote target and without a draft needs no torch.
    from crossspec_ros.engine.remote import RemoteEngine
    from crossspec_ros.engine.runner import Runner
    from crossspec_ros.models.base import VideoTarget

_CONNECT_S = 15.0
"""Seconds to wait for a server's first answer."""
_REMEDY = "choose a smaller models.dtype, move the draft by models.draft_device, or end other programs"
NO_MEMORY = f"memory ran out: {_REMEDY}"
_NO_MEMORY = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|out of memory at line|ALLOC_FAILED"
    r"|can't allocate memory|not enough memory|dispatched on the CPU or the disk"
)
"""Messages of out-of-memory errors that have a general class."""


def load_decoder(settings: CaptionerSettings, is_live: bool = False) -> PrefillHiddenDecoder:
    """Load the decoder of these settings and warm it up.

    A live decoder stores the caption memory, and its target may be on a server. Raises InputError for a
    missing or damaged checkpoint, a missing device or server, and invalid sampling. A live decoder also
    raises it for too little memory.
    """
    if is_live and is_remote(settings.target):
        return _load_remote_decoder(settings)
    from crossspec_ros.drafting.memory_file import memory_path
    from crossspec_ros.models.loading import load_pair
    from crossspec_ros.models.text_tokenizer import tokenizer_digest

    placement = requested_placement(settings)
    models = models_folder(settings.models_folder)
    with enough_memory(placement) if is_live else nullcontext():
        pair = load_pair(models, settings.threads, placement, settings.target, settings.draft)
        folder = target_path(models, settings.target)
        digest = tokenizer_digest(pair.target.tokenizer)
        memory = memory_path(settings.memory, folder, digest) if is_live else None
        runner = placed_runner(pair.target, placement, settings.threads, folder, settings.max_new_tokens)
        return speculative_decoder(pair, memory, runner)


def _load_remote_decoder(settings: CaptionerSettings) -> PrefillHiddenDecoder:
    from crossspec_ros.engine.remote import RemoteTarget

    if settings.models_engine == LLAMA_CPP:
        raise InputError(
            "models.engine is llama.cpp, but the server's own setting decides its engine: set models.engine "
            "to torch"
        )
    engine = connect_target(settings, settings.link_robot or socket.gethostname())
    try:
        target: Any = RemoteTarget(settings.target, engine.link.welcome)
        pair = ModelPair(target)
        if settings.draft != NO_DRAFT:
            from crossspec_ros.models.loading import load_draft

            placement = requested_placement(settings)
            draft = load_draft(
                models_folder(settings.models_folder), settings.threads, placement, settings.draft
            )
            pair = ModelPair(target, draft, placement=placement)
        decoder = PrefillHiddenDecoder(pair, Policy((), None), engine, owns_engine=True)
        decoder.warm_up()
    except BaseException:
        engine.close()
        raise
    return decoder


def speculative_decoder(
    pair: ModelPair, memory: Path | None = None, runner: Runner | None = None
) -> PrefillHiddenDecoder:
    """Return a warmed-up decoder with measured costs and all proposers.

    The file `memory` stores the caption memory, see `MemoryFile`. The default runner is torch's.
    """
    from crossspec_ros.drafting.memory_file import MemoryFile
    from crossspec_ros.drafting.proposers.memory import CaptionMemory
    from crossspec_ros.engine.local import LocalEngine
    from crossspec_ros.models.text_tokenizer import tokenizer_digest

    engine = LocalEngine(pair.target, runner=runner)
    decoder = PrefillHiddenDecoder(pair, Policy((), None), engine, owns_engine=True)
    try:
        proposers = make_proposers()
        decoder.warm_up()
        decoder.policy = Policy(proposers, decoder.engine.measure())
        if memory is not None:
            digest = tokenizer_digest(pair.target.tokenizer)
            captions = next(one for one in proposers if isinstance(one, CaptionMemory))
            decoder.memory_file = MemoryFile(captions, memory, digest, pair.target.vocabulary)
    except BaseException:
        # Ends the decoder's threads.
        decoder.close()
        raise
    return decoder


def placed_runner(
    target: VideoTarget, placement: Placement, threads: int, folder: Path, max_new_tokens: int = 0
) -> Runner | None:
    """Return llama.cpp's runner with room for answers of this length, or None for torch's default runner.

    The target's file for llama.cpp is cached for the next start.
    """
    if placement.engine != LLAMA_CPP:
        return None
    from crossspec_ros.engine.llama_cpp import llama_runner

    digest = "" if placement.dtype == GGUF else files_digest(folder)
    room = max(TEXT_ROOM, TEXT_ROOM // 2 + max_new_tokens)
    return llama_runner(target, placement.dtype, threads, digest, frees=True, text_room=room)


def requested_placement(settings: CaptionerSettings) -> Placement:
    """Return the placement. Raises InputError if this machine does not support it."""
    # Without a draft, its device does not matter.
    draft_device = "" if settings.draft == NO_DRAFT else settings.models_draft_device
    return available(
        settings.models_dtype, settings.models_device, draft_device, settings.models_engine, settings.target
    )


def connect_target(settings: PairSettings, robot: str = "") -> RemoteEngine:
    """Return an engine connected to the target's server. Without a robot's name, it only reads the sizes.

    Raises InputError if the server does not answer, and for an invalid address, token or certificate.
    """
    try:
        from crossspec_ros.engine.link import Address
        from crossspec_ros.engine.remote import RemoteEngine
    except ImportError as error:
        raise InputError(f"a target on a server needs the package grpcio ({error}): install grpcio") from None

    token = ""
    if settings.link_token_file:
        try:
            token = read_small(Path(settings.link_token_file)).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"the token '{settings.link_token_file}' cannot be read ({error}): set link.token_file to "
                f"the token's file"
            ) from None
    phase_ns = WindowGrid.at(settings.window_phase_s).phase_ns
    address = Address(settings.target, robot, token, settings.link_ca_file, phase_ns=phase_ns)
    return RemoteEngine(address, settings.link_timeout_s, _CONNECT_S)


@contextmanager
def enough_memory(placement: Placement) -> Iterator[None]:
    """Raise InputError if memory runs out in the block."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        release(error)
        raise InputError(
            f"the models do not fit into memory as {placement} ({first_line(error)}): {_REMEDY}"
        ) from None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether this error, or one of its causes, shows that memory ran out."""
    return any(
        # By name, because a captioner without local models does not import torch.
        {"OutOfMemoryError", "MemoryError"} & {kind.__name__ for kind in type(link).__mro__}
        or _NO_MEMORY.search(str(link))
        for link in chain(error)
    )


def release(error: BaseException) -> None:
    """Free the memory that an error's traceback references."""
    for link in chain(error):
        traceback.clear_frames(link.__traceback__)
    free_memory()


def free_memory() -> None:
    """Collect garbage, and release torch's cached memory."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
