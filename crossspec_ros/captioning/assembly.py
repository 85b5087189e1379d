"""Decoders, made: `load_decoder` loads the models that a captioner's parameters ask for and warms them up;
the others take models that are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossspec_ros.captioning.asked_models import asked_placement, asked_sampling, models_folder
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.models_digest import models_digest
from crossspec_ros.captioning.out_of_memory import enough_memory
from crossspec_ros.captioning.target_server import connected_engine, is_remote
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import make_proposers
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import TEXT_ROOM
from crossspec_ros.models.hub import target_path
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import GGUF, Placement
from crossspec_ros.settings import LLAMA_CPP, NO_DRAFT, CaptionerSettings

if TYPE_CHECKING:
    # A robot whose target is elsewhere, and which has no event draft, needs no torch.
    from crossspec_ros.engine.protocols import Engine
    from crossspec_ros.engine.runner import Runner
    from crossspec_ros.models.base import VideoTarget


def load_decoder(settings: CaptionerSettings, is_live: bool = False) -> PrefillHiddenDecoder:
    """The decoder of the captioner's parameters, loaded and warm.

    A live one keeps the caption memory, and its target may be on a server.

    Raises InputError for checkpoints that are missing or damaged, devices that are not there, bad sampling
    and, where it is live, too little memory.
    """
    from crossspec_ros.drafting.memory_file import memory_path

    if is_live and is_remote(settings.target):
        return load_remote_decoder(settings)
    from crossspec_ros.models.loading import load_pair

    # Bad sampling is refused before the models load.
    asked_sampling(settings)
    placement, models = asked_placement(settings), models_folder(settings)
    with enough_memory(placement) if is_live else nullcontext():
        pair = load_pair(models, settings.threads, placement, settings.target, settings.draft)
        folder = target_path(models, settings.target)
        memory = memory_path(settings.memory, folder, vocabulary(pair)) if is_live else None
        engine = placed_engine(pair, settings.threads, [folder], settings.max_new_tokens)
        return speculative_decoder(pair, memory, engine)


def placed_engine(
    pair: ModelPair, threads: int, folders: Sequence[Path] = (), max_new_tokens: int = 0
) -> Engine | None:
    """The engine by the placement of the pair; None for torch's, which a decoder makes itself.

    What another engine needs of the target's `folders` is kept for the next time where they are named.
    Answers may have so many tokens, or as many as usual.
    """
    room = max(TEXT_ROOM, TEXT_ROOM // 2 + max_new_tokens)
    runner = placed_runner(pair.target, pair.placement, threads, folders, room)
    if runner is None:
        return None
    from crossspec_ros.engine.local import LocalEngine

    return LocalEngine(pair.target, runner=runner)


def placed_runner(
    target: VideoTarget,
    placement: Placement,
    threads: int,
    folders: Sequence[Path] = (),
    text_room: int = TEXT_ROOM,
) -> Runner | None:
    """The target's runner by its placement, likewise; beside its frames a window has room for `text_room`
    tokens."""
    if placement.engine != LLAMA_CPP:
        return None
    from crossspec_ros.engine.llama_cpp import llama_runner

    digest = models_digest(folders) if folders and placement.dtype != GGUF else ""
    return llama_runner(target, placement.dtype, threads, digest, frees=True, text_room=text_room)


def load_remote_decoder(settings: CaptionerSettings) -> PrefillHiddenDecoder:
    """The decoder whose target is on a server, connected and warm.

    Raises InputError where the server is not reached, and for what its target does not allow.
    """
    from crossspec_ros.engine.remote import RemoteTarget

    if settings.models_engine == LLAMA_CPP:
        raise InputError(
            "models.engine is llama.cpp, but the target runs on its server, by the server's engine: set it "
            "to torch"
        )
    engine = connected_engine(settings)
    try:
        target: Any = RemoteTarget(settings.target, engine.link.welcome)
        pair = ModelPair(target)
        if settings.draft != NO_DRAFT:
            from crossspec_ros.models.loading import load_draft

            placement = asked_placement(settings)
            draft = load_draft(models_folder(settings), settings.threads, placement, settings.draft)
            pair = ModelPair(target, draft, placement=placement)
        decoder = PrefillHiddenDecoder(pair, Policy((), None), engine, owns_engine=True)
        decoder.warm_up()
    except BaseException:
        engine.close()
        raise
    return decoder


def speculative_decoder(
    pair: ModelPair,
    memory: Path | None = None,
    engine: Engine | None = None,
) -> PrefillHiddenDecoder:
    """A decoder that is warm, knows its costs and has all proposers.

    The caption memory starts with what is in the file `memory`, if there is one, and is written there when
    the decoder closes and in between, see `MemoryFile`. The `engine` becomes the decoder's own.
    """
    from crossspec_ros.drafting.memory_file import MemoryFile
    from crossspec_ros.drafting.proposers.memory import CaptionMemory

    decoder = PrefillHiddenDecoder(pair, Policy((), None), engine, owns_engine=True)
    try:
        proposers = make_proposers()
        decoder.warm_up()
        decoder.policy = Policy(proposers, decoder.engine.measure())
        if memory is not None:
            captions = next(one for one in proposers if isinstance(one, CaptionMemory))
            ids = pair.target.vocabulary
            decoder.memory_file = MemoryFile(captions, memory, vocabulary(pair), ids)
    except BaseException:
        # Its threads must not stay behind.
        decoder.close()
        raise
    return decoder


def vocabulary(pair: ModelPair) -> str:
    """Digest that tells the tokenizer of a pair's target from others."""
    from crossspec_ros.models.text_tokenizer import tokenizer_digest

    return tokenizer_digest(pair.target.tokenizer)
