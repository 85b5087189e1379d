"""A decoder whose target is on another host, and an event draft here, or none: then torch is not needed."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from crossspec_ros.captioning.health import Reading
from crossspec_ros.captioning.settings import CaptionerSettings
from crossspec_ros.errors import InputError
from crossspec_ros.files import read_small
from crossspec_ros.models.base import InputSpec
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import NO_DRAFT
from crossspec_ros.windows.grid import WindowGrid

if TYPE_CHECKING:
    from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
    from crossspec_ros.drafting.draft_model import DraftModel
    from crossspec_ros.engine.link import Address
    from crossspec_ros.engine.remote_target import RemoteTarget

_CONNECT_S = 15.0
"""Within which the server must answer when the node starts."""


def is_remote(target: str) -> bool:
    """Whether a target is named by the address of its server."""
    return "://" in target


def server_address(settings: CaptionerSettings) -> Address:
    """Where the server of these parameters is, and what this robot says it is.

    Raises InputError for an address or files that are none, and without the packages for it.
    """
    try:
        from crossspec_ros.engine.link import Address, split_url
    except ImportError as error:
        raise InputError(f"a target on another host needs the package grpcio ({error}): install it") from None

    split_url(settings.target)
    token = ""
    if settings.link_token_file:
        try:
            token = read_small(Path(settings.link_token_file)).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"the token '{settings.link_token_file}' cannot be read ({error}): name the file that has it"
            ) from None
    robot = settings.link_robot or socket.gethostname()
    phase_ns = WindowGrid.at(settings.window_phase_s).phase_ns
    return Address(settings.target, robot, token, settings.link_ca_file, phase_ns=phase_ns)


def remote_spec(settings: CaptionerSettings) -> InputSpec:
    """What the target on its server takes; raises InputError where that is not reached."""
    from crossspec_ros.engine.remote import RemoteEngine
    from crossspec_ros.engine.remote_target import RemoteTarget

    engine = RemoteEngine(server_address(settings), settings.link_timeout_s, _CONNECT_S)
    try:
        return RemoteTarget(settings.target, engine.welcome).spec
    finally:
        engine.close()


def load_remote_decoder(settings: CaptionerSettings) -> PrefillHiddenDecoder:
    """A decoder that is connected and warm; raises InputError where the server is not reached, and for what
    its target does not allow."""
    from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
    from crossspec_ros.drafting.policy import Policy
    from crossspec_ros.drafting.proposers.event_draft import EventDraftProposer
    from crossspec_ros.engine.remote import RemoteEngine
    from crossspec_ros.engine.remote_target import RemoteTarget

    if settings.handoff != "off":
        raise InputError("event features cannot stand in for frames on another host: set handoff to off")
    engine = RemoteEngine(server_address(settings), settings.link_timeout_s, _CONNECT_S)
    try:
        target = RemoteTarget(settings.target, engine.welcome)
        pair, drafts = _with_draft(settings, target)
        decoder = PrefillHiddenDecoder(
            pair,
            Policy((EventDraftProposer(),), None),
            settings.max_new_tokens,
            engine=engine,
            owns_engine=True,
            drafts=drafts,
        )
        decoder.warm_up(with_target=False)
    except BaseException:
        engine.close()
        raise
    return decoder


def link_reading(decoder: object) -> dict[str, Reading]:
    """What the diagnostics tell of the link to the target's server; nothing where the target is here."""
    engine = getattr(decoder, "engine", None)
    link = getattr(engine, "link", None)
    if engine is None or link is None:
        return {}
    values = {
        "server": engine.url,
        "streams": link.epoch,
        "sent_mb": f"{link.sent / 1e6:.1f}",
        "received_mb": f"{link.received / 1e6:.1f}",
        "emptiest_phase_s": f"{engine.welcome.phase_ns / 1e9:.3f}",
    }
    warnings = {"unreached": link.trouble} if link.trouble else {}
    return {"link": Reading(wrong=engine.counts, values=values, warnings=warnings)}


def _with_draft(settings: CaptionerSettings, target: RemoteTarget) -> tuple[ModelPair, DraftModel | None]:
    """The pair of the remote target and the event draft of the parameters, if there is to be one."""
    if settings.draft == NO_DRAFT:
        return ModelPair(target, None, None, 0), None  # type: ignore[arg-type]
    from crossspec_ros.captioning.model_loading import asked_placement, models_folder
    from crossspec_ros.drafting.draft_model import DraftModel
    from crossspec_ros.models.loading import load_draft
    from crossspec_ros.models.translation import Translation

    model = load_draft(models_folder(settings), settings.threads, asked_placement(settings), settings.draft)
    translation = Translation(
        model.tokenizer,
        target.tokenizer,
        model.eos_ids[0],
        target.spec.eos_ids[0],
        target.prompt_ids("")[1],
    )
    pair = ModelPair(target, model, translation, 0)  # type: ignore[arg-type]
    return pair, DraftModel(model, translation)
