"""Standing questions: the target answers each one about every captioned window, with one of its choices.

Several questions share a forward pass. A caption waits for one such pass at most, and for all passes with
questions marked first about its own window.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossspec_ros.captioning.caption import Caption, check_question
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.errors import InputError, plain_text, tried
from crossspec_ros.models.base import TEXT_ROOM
from crossspec_ros.telemetry.pulse import waited

if TYPE_CHECKING:
    from crossspec_ros.engine.protocols import Engine
    from crossspec_ros.models.base import VideoTarget

MAX_STANDING = 16
"""Maximum number of standing questions."""
MAX_SHARED_TOKENS = 128
"""Maximum tokens of questions and choices in one pass, equal to that of a draft tree."""
MAX_TOKENS = TEXT_ROOM * 3 // 4
"""Maximum tokens of one question and its choices."""
_WITH_CHOICES = re.compile(r"([^\[\]]*\S)\s*\[([^\[\]]*)\]\s*(first)?", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Standing:
    """A question and its choices. The target answers it before the caption if `is_first`."""

    question: str
    choices: tuple[str, ...]
    is_first: bool = False


@dataclass(frozen=True)
class Answered:
    """An answer, and the probabilities of the choices in order."""

    caption: Caption
    probabilities: tuple[float, ...]

    def line(self, standing: Standing) -> str:
        """Return question and answer as one readable line."""
        probability = self.probabilities[standing.choices.index(self.caption.text)]
        return plain_text(f"{standing.question} {self.caption.text} (probability {probability:.2g})")


StandingAnswers = list[tuple[Standing, Answered | Exception]]
"""The questions of a pass, each with its answer or error."""
OnAnswered = Callable[[StandingAnswers], None]


def read_standing(questions: Iterable[str]) -> tuple[Standing, ...]:
    """Parse questions, each with its choices in brackets: `Is a person on the road? [yes, no]`.

    The target answers a question with `first` after the brackets before the caption. Raises InputError for
    too many questions, a duplicate, and a question without words or without several choices.
    """
    found = tuple(_standing(text.strip()) for text in questions)
    if len(found) > MAX_STANDING:
        raise InputError(f"questions has {len(found)} questions: set at most {MAX_STANDING}")
    words = [one.question for one in found]
    if twice := next((one for one in words if words.count(one) > 1), ""):
        raise InputError(f"questions has '{twice[:100]}' twice: put all its choices into one entry")
    return found


def _standing(text: str) -> Standing:
    match = _WITH_CHOICES.fullmatch(text)
    question, listed, first = match.groups() if match else ("", "", None)
    choices = tuple(dict.fromkeys(one for part in listed.split(",") if (one := part.strip())))
    if len(choices) < 2:
        raise InputError(
            f"'{text[:100]}' in questions is not a question with choices: write it as 'Is a person on the "
            f"road? [yes, no]', optionally with the word first after the brackets, or use ~/ask"
        )
    if question.lower().endswith(" first"):
        raise InputError(
            f"'{text[:100]}' in questions ends with first: write it after the brackets, or end the question "
            f"with a question mark"
        )
    return Standing(question, choices, first is not None)


class Choices:
    """Standing questions of one pass, as a token tree that follows a window's frames.

    Each question is a path to its choices. Each choice ends with an end-of-sequence token.
    """

    def __init__(self, encoded: Sequence[_Encoded]) -> None:
        self.standing = tuple(one.standing for one in encoded)
        self.tree = _tree(encoded)
        self._encoded = encoded

    def answered(self, scores: Future[tuple[float, ...]]) -> StandingAnswers:
        """Wait for the log-probabilities of the tree's nodes, and return the likeliest choices."""
        made = tried(lambda: waited(scores))
        return [
            (one.standing, made if isinstance(made, Exception) else self._answer(one, made))
            for one in self._encoded
        ]

    def _answer(self, one: _Encoded, scores: Sequence[float]) -> Answered:
        begin, scored = len(one.question), []
        for choice, ids in one.spellings:
            nodes = _path(self.tree, one.question + ids)[begin:]
            scored.append(([scores[node] for node in nodes], choice, ids))
        # Lists compare choices with a common prefix by the first token that differs.
        _, text, ids = max(scored, key=lambda spelling: spelling[0])
        probabilities = tuple(
            sum(math.exp(sum(tokens)) for tokens, other, _ in scored if other == choice)
            for choice in one.standing.choices
        )
        return Answered(Caption(text, ids, "target", 1, accept_lengths=(len(ids),)), probabilities)


def shared_passes(
    questions: Sequence[Standing], target: VideoTarget, engine: Engine
) -> tuple[tuple[Choices, ...], tuple[Choices, ...]]:
    """Pack questions into as few passes as possible; return the passes before a caption and those after it.

    Raises InputError for an engine without scores, and for a choice that the target cannot spell. The same
    holds for a question that is too long with its choices.
    """
    if questions and not engine.supports_scores:
        raise InputError(
            "standing questions need draft trees: use a local target in torch or in float32, or leave "
            "questions empty"
        )
    first, later = (
        tuple(_packed([_encode(one, target) for one in questions if one.is_first == is_first]))
        for is_first in (True, False)
    )
    return first, later


@dataclass(frozen=True)
class _Encoded:
    """Tokens of a question, and the `spellings` of its choices, each with an end-of-sequence token."""

    standing: Standing
    question: tuple[int, ...]
    spellings: tuple[tuple[str, tuple[int, ...]], ...]


def _encode(standing: Standing, target: VideoTarget) -> _Encoded:
    question = standing.question
    try:
        check_question(target, question)
    except InputError as error:
        raise InputError(f"'{question[:100]}' in questions: {error}") from None
    spellings = [(choice, ids) for choice in standing.choices for ids in _spellings(target, choice)]
    encoded = _Encoded(standing, target.prompt_ids(question)[1], tuple(spellings))
    if (tokens := len(_tree([encoded]))) > MAX_TOKENS:
        raise InputError(
            f"'{question[:100]}' and its choices have {tokens} tokens, but the maximum is {MAX_TOKENS}: use "
            f"fewer or shorter choices"
        )
    return encoded


def _spellings(target: VideoTarget, choice: str) -> Iterable[tuple[int, ...]]:
    """Return the token ids of a choice with and without a leading space, because targets differ."""
    tokenizer, end = target.tokenizer, target.spec.eos_ids[0]
    found = [tokenizer.encode(text, add_special_tokens=False).ids for text in (choice, f" {choice}")]
    spellings = dict.fromkeys((*ids, end) for ids in found if ids and tokenizer.decode(ids).strip() == choice)
    if not spellings:
        raise InputError(f"the target cannot spell the choice '{choice}': use another word")
    return spellings


def _packed(encoded: Sequence[_Encoded]) -> Iterator[Choices]:
    """Yield the passes of the questions in order."""
    begin = 0
    for end in range(1, len(encoded) + 1):
        if end == len(encoded) or len(_tree(encoded[begin : end + 1])) > MAX_SHARED_TOKENS:
            yield Choices(encoded[begin:end])
            begin = end


def _tree(encoded: Sequence[_Encoded]) -> DraftTree:
    chains = (one.question + ids for one in encoded for _, ids in one.spellings)
    return DraftTree.merged(DraftTree.chain(ids, [1.0] * len(ids), "choices") for ids in chains)


def _path(tree: DraftTree, tokens: Sequence[int]) -> list[int]:
    """Return the nodes of these tokens, which the tree contains."""
    path = [ROOT]
    for token in tokens:
        child = tree.child(path[-1], token)
        assert child is not None
        path.append(child)
    return path[1:]
