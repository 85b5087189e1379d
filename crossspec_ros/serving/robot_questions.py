"""Check a robot's question, and convert its parameters and hint."""

from __future__ import annotations

from crossspec_ros.captioning.caption import check_question
from crossspec_ros.drafting.proposer import Draft
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import VideoTarget
from crossspec_ros.wire import MAX_HINT
from crossspec_ros.wire import captions_pb2 as wire

MAX_NEW_TOKENS = 2048
HINT_PROB = 0.9
"""Assumed probability of each token of a hint, before the policy has measured it."""


class QuestionError(InputError):
    """The question or its parameters are invalid for the target."""


def check_ask(ask: wire.Ask, target: VideoTarget) -> None:
    """Raise QuestionError for a question, a length or sampling parameters that are invalid."""
    if ask.temperature > 0 and not (ask.temperature <= 100 and 0 < ask.top_p <= 1):
        raise QuestionError(
            "temperature or top_p is invalid: set temperature to at most 100, and top_p above 0 and at most 1"
        )
    try:
        check_question(target, ask.question)
        sampling_of(ask)
    except InputError as error:
        raise QuestionError(str(error)) from None
    used = sum(map(len, target.prompt_ids(ask.question)))
    room = target.spec.most_tokens - target.spec.frame_tokens
    if not 1 <= ask.max_new_tokens <= min(MAX_NEW_TOKENS, room - used):
        raise QuestionError(
            f"question and answer have {used} and {ask.max_new_tokens} tokens, but the frames leave room for "
            f"{room}: shorten them"
        )


def sampling_of(ask: wire.Ask) -> Sampling | None:
    """Return the sampling parameters of an answer, or None for greedy decoding."""
    return Sampling(ask.temperature, ask.top_p, ask.seed) if ask.temperature > 0 else None


def hint_draft(ask: wire.Ask, target: VideoTarget) -> Draft:
    """Return the text of a robot's event draft as a draft of the answer."""
    tokens = hint_ids(target, ask.hint[:MAX_HINT])
    return Draft(tokens, (HINT_PROB,) * len(tokens))


def hint_ids(target: VideoTarget, text: str) -> tuple[int, ...]:
    """Return the token ids of a text that follows the target's prompt."""
    if not text:
        return ()
    before = target.tokenizer.decode(target.prompt_ids("")[1])
    # After white space, as in ChatML, a response begins without a space.
    space = " " if before[-1:].strip() else ""
    prompt, complete = (
        target.tokenizer.encode(part, add_special_tokens=False).ids
        for part in (before, f"{before}{space}{text}")
    )
    ids = complete[len(prompt) :]
    # No response begins with a token of white space.
    is_space = bool(ids) and not target.tokenizer.decode(ids[:1]).strip()
    return tuple(ids[is_space:])
