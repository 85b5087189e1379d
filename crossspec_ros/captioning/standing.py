"""Standing questions about every captioned window. Each has choices, and one of them is the answer.

Several share one forward pass, and no caption waits for more than that one. The caption of their own window
waits for those marked first.
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
"""Maximum tokens of questions and choices that share a pass, as many as of a draft tree."""
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
    """An answer, and the probability of each choice in their order."""

    caption: Caption
    probabilities: tuple[float, ...]

    def line(self, standing: Standing) -> str:
        """Return question and answer as one readable line."""
        probability = self.probabilities[standing.choices.index(self.caption.text)]
        return plain_text(f"{standing.question} {self.caption.text} (probability {probability:.2g})")


Told = list[tuple[Standing, Answered | Exception]]
"""Questions that share a pass, each with its answer or the reason why there is none."""
OnAnswered = Callable[[Told], None]


def read_standing(questions: Iterable[str]) -> tuple[Standing, ...]:
    """Read questions, each with its choices in brackets: `Is a person on the road? [yes, no]`.

    The target answers one with `first` behind the brackets before the caption. Raises InputError for too many
    questions, for one without words or without several choices, and for one that is there twice.
    """
    found = tuple(_standing(text.strip()) for text in questions)
    if len(found) > MAX_STANDING:
        raise InputError(
            f"questions has {len(found)} questions, but at most {MAX_STANDING} are taken: name fewer"
        )
    words = [one.question for one in found]
    if twice := next((one for one in words if words.count(one) > 1), ""):
        raise InputError(f"'{twice[:100]}' is there twice in questions: name all its choices at once")
    return found


def _standing(text: str) -> Standing:
    match = _WITH_CHOICES.fullmatch(text)
    question, listed, first = match.groups() if match else ("", "", None)
    choices = tuple(dict.fromkeys(one for part in listed.split(",") if (one := part.strip())))
    if len(choices) < 2:
        raise InputError(
            f"'{text[:100]}' in questions is no question with choices: write it as in 'Is a person on the "
            f"road? [yes, no]', with at most the word first behind the brackets, or ask it with ~/ask"
        )
    if question.lower().endswith(" first"):
        raise InputError(
            f"'{text[:100]}' in questions ends with first: write that behind the brackets, or end the "
            f"question with a question mark"
        )
    return Standing(question, choices, first is not None)


class Choices:
    """Standing questions that share a pass, as one tree of tokens behind a window's frames.

    Each question leads to its choices. Each choice ends with an end of sequence.
    """

    def __init__(self, encoded: Sequence[_Encoded]) -> None:
        self.standing = tuple(one.standing for one in encoded)
        self.tree = _tree(encoded)
        self._encoded = encoded

    def answered(self, scores: Future[tuple[float, ...]]) -> Told:
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
        # Texts with a common beginning differ by the first token after that.
        _, text, ids = max(scored, key=lambda spelling: spelling[0])
        probabilities = tuple(
            sum(math.exp(sum(tokens)) for tokens, other, _ in scored if other == choice)
            for choice in one.standing.choices
        )
        return Answered(Caption(text, ids, "target", 1, accept_lengths=(len(ids),)), probabilities)


def shared_passes(
    questions: Sequence[Standing], target: VideoTarget, engine: Engine
) -> tuple[tuple[Choices, ...], tuple[Choices, ...]]:
    """Return questions in as few passes as possible: those before a caption, and those after it.

    Raises InputError for an engine that cannot score, for a choice that the target cannot write, and if a
    question and its choices are too long.
    """
    if questions and not engine.supports_scores:
        raise InputError(
            "standing questions need draft trees: name a target on this machine, in torch or in float32, "
            "or leave questions empty"
        )
    first, later = (
        tuple(_packed([_encode(one, target) for one in questions if one.is_first == is_first]))
        for is_first in (True, False)
    )
    return first, later


@dataclass(frozen=True)
class _Encoded:
    """Tokens of a question, and the `spellings` of its choices, each with an end of sequence."""

    standing: Standing
    question: tuple[int, ...]
    spellings: tuple[tuple[str, tuple[int, ...]], ...]


def _encode(standing: Standing, target: VideoTarget) -> _Encoded:
    question = standing.question
    try:
        check_question(target, question)
    except InputError as error:
        raise InputError(f"of questions, '{question[:100]}': {error}") from None
    spellings = [(choice, ids) for choice in standing.choices for ids in _spellings(target, choice)]
    encoded = _Encoded(standing, target.prompt_ids(question)[1], tuple(spellings))
    if (tokens := len(_tree([encoded]))) > MAX_TOKENS:
        raise InputError(
            f"'{question[:100]}' and its choices have {tokens} tokens, but at most {MAX_TOKENS} are taken: "
            f"name fewer choices, or shorter ones"
        )
    return encoded


def _spellings(target: VideoTarget, choice: str) -> Iterable[tuple[int, ...]]:
    """Return the token ids of a choice with a space before it and without: targets differ in that."""
    tokenizer, end = target.tokenizer, target.spec.eos_ids[0]
    found = [tokenizer.encode(text, add_special_tokens=False).ids for text in (choice, f" {choice}")]
    spellings = dict.fromkeys((*ids, end) for ids in found if ids and tokenizer.decode(ids).strip() == choice)
    if not spellings:
        raise InputError(f"the target cannot write the choice '{choice}': name another word")
    return spellings


def _packed(encoded: Sequence[_Encoded]) -> Iterator[Choices]:
    """Yield the passes of questions in their order."""
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
