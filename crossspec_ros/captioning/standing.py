"""Standing questions: asked about every captioned window, each with the choices of which one is its answer.

Several share a pass of the target, so that no caption waits longer for them than that; that of their own
window waits for those that come first.
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
from crossspec_ros.errors import InputError, tried
from crossspec_ros.models.base import TEXT_ROOM
from crossspec_ros.plain_text import plain_text
from crossspec_ros.telemetry.pulse import waited

if TYPE_CHECKING:
    from crossspec_ros.engine.protocols import Engine
    from crossspec_ros.models.base import VideoTarget

MOST_STANDING = 16
"""Standing questions of a captioner, at most."""
MOST_SHARED_TOKENS = 128
"""Tokens of questions and their choices that share a pass, at most: as many as of a draft tree."""
MOST_TOKENS = TEXT_ROOM * 3 // 4
"""Tokens of a question and its choices, at most."""
_WITH_CHOICES = re.compile(r"([^\[\]]*\S)\s*\[([^\[\]]*)\]\s*(first)?", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Standing:
    """A question, and the texts of which one is its answer; `is_first` before a window's caption."""

    question: str
    choices: tuple[str, ...]
    is_first: bool = False


@dataclass(frozen=True)
class Answered:
    """An answer, and the probability that the target gave each of the choices, in their order."""

    caption: Caption
    probabilities: tuple[float, ...]

    def line(self, standing: Standing) -> str:
        """Question and answer for people."""
        text = self.caption.text
        probability = self.probabilities[standing.choices.index(text)]
        return plain_text(f"{standing.question} {text} (probability {probability:.2g})")


def read_standing(questions: Iterable[str]) -> tuple[Standing, ...]:
    """Read questions, each with its choices in brackets: `Is a person on the road? [yes, no]`.

    The target answers one with `first` behind the brackets before the caption. Raises InputError for too many
    questions, for one without words or without several choices, and for one that is there twice.
    """
    found = tuple(_standing(text.strip()) for text in questions)
    if len(found) > MOST_STANDING:
        raise InputError(
            f"questions has {len(found)} questions, but at most {MOST_STANDING} are taken: name fewer"
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
            f"road? [yes, no]', with at most the word first behind the brackets, or ask it on the topic "
            f"question"
        )
    if question.lower().endswith(" first"):
        raise InputError(
            f"'{text[:100]}' in questions ends with first: write that behind the brackets, or end the "
            f"question with a question mark"
        )
    return Standing(question, choices, first is not None)


class Choices:
    """Standing questions that share a pass, as one tree of the target's tokens behind a window's frames: each
    question, and behind it each of its choices with an end of sequence.

    A text may begin with a space or not: targets differ in what they write behind a prompt.
    """

    def __init__(self, asked: Sequence[_Asked]) -> None:
        self.standing = tuple(one.standing for one in asked)
        self.tree = _tree(asked)
        self._asked = [(one, one.nodes(self.tree)) for one in asked]

    def answered(self, scores: Future[tuple[float, ...]]) -> Told:
        """Return the choices that the target makes by the tree's `scores`, question by question."""
        made = tried(lambda: waited(scores))
        if isinstance(made, Exception):
            return made
        return tuple(one.answered(nodes, made) for one, nodes in self._asked)


Told = tuple[Answered, ...] | Exception
"""Answers of a pass, question by question, or why there are none."""
OnAnswered = Callable[[Choices, Told], None]
"""Takes the answers of a pass."""


def paired(choices: Choices, told: Told) -> Iterator[tuple[Standing, Answered | Exception]]:
    """Each question of a pass with its answer, or why there is none."""
    answers = [told] * len(choices.standing) if isinstance(told, Exception) else told
    return zip(choices.standing, answers, strict=True)


def shared_passes(
    questions: Sequence[Standing], target: VideoTarget, engine: Engine
) -> tuple[tuple[Choices, ...], tuple[Choices, ...]]:
    """Return questions in as few passes as have room: those before a caption, and those after it.

    Raises InputError for an engine that cannot score, for a choice that the target cannot write, and where a
    question and its choices are too long.
    """
    if questions and not engine.scores:
        raise InputError(
            "standing questions need draft trees: name a target on this machine, in torch or in float32, "
            "or leave questions empty"
        )
    first, later = (
        tuple(_packed([_Asked.of(one, target) for one in questions if one.is_first == is_first]))
        for is_first in (True, False)
    )
    return first, later


@dataclass(frozen=True)
class _Asked:
    """A question's tokens, and of each choice the ways to write it, each with an end of sequence."""

    standing: Standing
    question: tuple[int, ...]
    ways: tuple[tuple[tuple[int, ...], ...], ...]

    @classmethod
    def of(cls, standing: Standing, target: VideoTarget) -> _Asked:
        """Raises InputError as `shared_passes`."""
        try:
            check_question(target, standing.question)
        except InputError as error:
            raise InputError(f"of questions, '{standing.question[:100]}': {error}") from None
        end = target.spec.eos_ids[0]
        ways = [tuple((*ids, end) for ids in _ways(target, choice)) for choice in standing.choices]
        asked = cls(standing, target.prompt_ids(standing.question)[1], tuple(ways))
        if (tokens := len(_tree([asked]))) > MOST_TOKENS:
            raise InputError(
                f"'{standing.question[:100]}' and its choices have {tokens} tokens, but at most "
                f"{MOST_TOKENS} are taken: name fewer choices, or shorter ones"
            )
        return asked

    def nodes(self, tree: DraftTree) -> list[list[list[int]]]:
        """Nodes of each way to write each choice, behind the question."""
        begin = len(self.question)
        return [[_path(tree, (*self.question, *way))[begin:] for way in ways] for ways in self.ways]

    def answered(self, nodes: list[list[list[int]]], scores: Sequence[float]) -> Answered:
        """The choice whose tokens are likeliest one by one, by the `scores` of a tree's nodes."""
        told = [[[scores[node] for node in way] for way in ways] for ways in nodes]
        # Those of texts that begin alike are equal up to where these part.
        best = max(range(len(told)), key=lambda i: max(told[i]))
        tokens = self.ways[best][told[best].index(max(told[best]))]
        text = self.standing.choices[best]
        caption = Caption(text, tokens, "target", 1, accept_lengths=(len(tokens),))
        return Answered(caption, tuple(sum(math.exp(sum(way)) for way in ways) for ways in told))


def _packed(asked: Sequence[_Asked]) -> Iterator[Choices]:
    """Questions in their order, as many in a pass as have room."""
    begin = 0
    for end in range(1, len(asked) + 1):
        if end == len(asked) or len(_tree(asked[begin : end + 1])) > MOST_SHARED_TOKENS:
            yield Choices(asked[begin:end])
            begin = end


def _tree(asked: Sequence[_Asked]) -> DraftTree:
    """The tree of some questions and their choices."""
    chains = ((*one.question, *way) for one in asked for ways in one.ways for way in ways)
    return DraftTree.merged(DraftTree.chain(ids, [1.0] * len(ids), "choices") for ids in chains)


def _path(tree: DraftTree, tokens: Sequence[int]) -> list[int]:
    path = [ROOT]
    for token in tokens:
        child = tree.child(path[-1], token)
        assert child is not None
        path.append(child)
    return path[1:]


def _ways(target: VideoTarget, choice: str) -> list[tuple[int, ...]]:
    """Token ids of a choice, with a space before it and without."""
    found = [target.tokenizer.encode(text, add_special_tokens=False).ids for text in (choice, f" {choice}")]
    known = [tuple(ids) for ids in found if ids and target.tokenizer.decode(ids).strip() == choice]
    if not known:
        raise InputError(f"the target cannot write the choice '{choice}': name another word")
    return list(dict.fromkeys(known))
