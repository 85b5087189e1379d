"""Standing questions: asked about every captioned window, each with the choices of which one is its answer.

All are read in one pass of the target, so that no caption waits longer for them than that; that of their own
window waits for those that come first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossspec_ros.captioning.caption import Caption, check_question
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.errors import InputError
from crossspec_ros.models.base import TEXT_ROOM
from crossspec_ros.plain_text import plain_text

if TYPE_CHECKING:
    from crossspec_ros.captioning.open_windows import OpenWindow
    from crossspec_ros.engine.session import Engine
    from crossspec_ros.models.base import VideoTarget
    from crossspec_ros.telemetry.trace import Trace

MOST_STANDING = 16
"""Standing questions of a captioner, at most."""
MOST_NODES = TEXT_ROOM * 3 // 4
"""Tokens of questions and their choices that are read in one pass, at most."""
_WITH_CHOICES = re.compile(r"([^\[\]]*\S)\s*\[([^\[\]]*)\]\s*(first)?", re.DOTALL)


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


def read_standing(text: str) -> tuple[Standing, ...]:
    """Questions of a text with bars or ends of lines between them, each with its choices in brackets behind
    it: `Is a person on the road? [yes, no]`. With `first` behind them it is asked before the caption.

    Raises InputError for too many, and for a question without words or without several choices.
    """
    parts = [part.strip() for part in text.replace("\n", "|").split("|")]
    found = tuple(_standing(part) for part in parts if part)
    if len(found) > MOST_STANDING:
        raise InputError(
            f"questions has {len(found)} questions, but at most {MOST_STANDING} are taken: name fewer"
        )
    return found


def _standing(text: str) -> Standing:
    match = _WITH_CHOICES.fullmatch(text)
    question, listed, first = match.groups() if match else ("", "", None)
    choices = tuple(dict.fromkeys(one for part in listed.split(",") if (one := part.strip())))
    if len(choices) < 2:
        raise InputError(
            f"'{text[:100]}' in questions is no question with choices: write it as in 'Is a person on the "
            f"road? [yes, no]', or ask it on the topic question"
        )
    return Standing(question, choices, first is not None)


class Choices:
    """Standing questions as trees of the target's tokens behind a window's frames: each question, and behind
    it each of its choices with an end of sequence. They are as few as have room, for each takes a pass.

    A text may begin with a space or not: targets differ in what they write behind a prompt.
    """

    def __init__(self, standing: Sequence[Standing], target: VideoTarget, engine: Engine) -> None:
        """Raises InputError for an engine that cannot score, for a choice that the target cannot write, and
        where a question and its choices are too long."""
        if standing and not engine.scores:
            raise InputError(
                "standing questions need draft trees: name a target on this machine, in torch or in float32, "
                "or leave questions empty"
            )
        self.standing = tuple(standing)
        self._passes: list[tuple[DraftTree, list[_Asked]]] = []
        asked: list[_Asked] = []
        for one in standing:
            asked.append(_Asked.of(one, target))
            if len(asked) > 1 and len(_tree(asked)) > MOST_NODES:
                self._add(asked[:-1])
                asked = asked[-1:]
        self._add(asked)

    def _add(self, asked: list[_Asked]) -> None:
        if asked:
            self._passes.append((_tree(asked), asked))

    def answer(self, opened: OpenWindow, trace: Trace) -> tuple[Answered, ...]:
        """The choices that the target makes about a window whose frames have come, question by question."""
        assert opened.session is not None
        found: list[Answered] = []
        for tree, asked in self._passes:
            scores = opened.session.score(tree, trace).result()
            found += [one.answered(tree, scores, opened.source) for one in asked]
        return tuple(found)


@dataclass(frozen=True)
class StandingQuestions:
    """Questions of a captioner: those that come before a caption, and those that come after it."""

    first: Choices
    later: Choices


@dataclass(frozen=True)
class _Asked:
    """A question's tokens, and of each choice the ways to write it, each with an end of sequence."""

    standing: Standing
    question: tuple[int, ...]
    ways: tuple[tuple[tuple[int, ...], ...], ...]

    @classmethod
    def of(cls, standing: Standing, target: VideoTarget) -> _Asked:
        """Raises InputError as `Choices`."""
        try:
            check_question(target, standing.question)
        except InputError as error:
            raise InputError(f"of questions, '{standing.question[:100]}': {error}") from None
        end = target.spec.eos_ids[0]
        ways = [tuple((*ids, end) for ids in _ways(target, choice)) for choice in standing.choices]
        asked = cls(standing, target.prompt_ids(standing.question)[1], tuple(ways))
        if (nodes := len(_tree([asked]))) > MOST_NODES:
            raise InputError(
                f"'{standing.question[:100]}' and its choices have {nodes} tokens, but at most {MOST_NODES} "
                f"are taken: name fewer choices, or shorter ones"
            )
        return asked

    def answered(self, tree: DraftTree, scores: Sequence[float], source: str) -> Answered:
        """The choice whose tokens are likeliest one by one, of the `scores` of the nodes of a tree."""
        told = [[self._scored(tree, scores, way) for way in ways] for ways in self.ways]
        # Those of texts that begin alike are equal up to where these part.
        best = max(range(len(told)), key=lambda i: max(told[i]))
        tokens = self.ways[best][told[best].index(max(told[best]))]
        text = self.standing.choices[best]
        caption = Caption(text, tokens, source, 1, accept_lengths=(len(tokens),))
        return Answered(caption, tuple(sum(math.exp(sum(way)) for way in ways) for ways in told))

    def _scored(self, tree: DraftTree, scores: Sequence[float], way: Sequence[int]) -> list[float]:
        node, found = ROOT, list[float]()
        for token in (*self.question, *way):
            child = tree.child(node, token)
            assert child is not None
            node = child
            found.append(scores[node])
        return found[len(self.question) :]


def _tree(asked: Sequence[_Asked]) -> DraftTree:
    """The tree of some questions and their choices."""
    chains = ((*one.question, *way) for one in asked for ways in one.ways for way in ways)
    return DraftTree.merged(DraftTree.chain(ids, [1.0] * len(ids), "choices") for ids in chains)


def _ways(target: VideoTarget, choice: str) -> list[tuple[int, ...]]:
    """Token ids of a choice, with a space before it and without."""
    found = [target.tokenizer.encode(text, add_special_tokens=False).ids for text in (choice, f" {choice}")]
    known = [tuple(ids) for ids in found if ids and target.tokenizer.decode(ids).strip() == choice]
    if not known:
        raise InputError(f"the target cannot write the choice '{choice}': name another word")
    return list(dict.fromkeys(known))
