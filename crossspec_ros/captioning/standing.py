"""Standing questions: asked about every captioned window, each with the choices of which one is its answer.

A choice takes one pass, so that no caption waits longer for it than that; the caption of its own window waits
for those that come first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
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
MOST_NODES = 128
"""Tokens of all choices of a question, which are read in one pass, at most."""
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
    """Choices of a standing question as one tree of the target's tokens, each with an end of sequence behind.

    A text may begin with a space or not: targets differ in what they write behind a prompt.
    """

    def __init__(self, standing: Standing, target: VideoTarget, engine: Engine) -> None:
        """Raises InputError for an engine that cannot choose, for a choice that the target cannot write, and
        where question and choices are too long."""
        self.standing = standing
        try:
            check_question(target, standing.question)
        except InputError as error:
            raise InputError(f"of questions, '{standing.question[:100]}': {error}") from None
        if not engine.chooses:
            raise InputError(
                "standing questions need draft trees: name a target on this machine, in torch or in float32, "
                "or leave questions empty"
            )
        ends = [[[*ids, target.spec.eos_ids[0]] for ids in _ways(target, one)] for one in standing.choices]
        self.tree = DraftTree.merged(
            DraftTree.chain(ids, [1.0] * len(ids), "choices") for ways in ends for ids in ways
        )
        used = len(target.prompt_ids(standing.question)[1]) + len(self.tree)
        if len(self.tree) > MOST_NODES or used > TEXT_ROOM:
            raise InputError(
                f"the choices of '{standing.question[:100]}' have {len(self.tree)} tokens, {used} with the "
                f"question, but at most {MOST_NODES} and {TEXT_ROOM} are taken: name fewer, or shorter ones"
            )
        self._ends = [[self._end(ids) for ids in ways] for ways in ends]

    def _end(self, ids: list[int]) -> int:
        node = ROOT
        for token in ids:
            child = self.tree.child(node, token)
            assert child is not None
            node = child
        return node

    def answer(self, opened: OpenWindow, trace: Trace) -> Answered:
        """The choice that the target makes about a window that was captioned, in one pass."""
        assert opened.session is not None
        opened.session.ask(self.standing.question, trace, 0)
        step = opened.session.step(self.tree, is_within=True).result()
        pairs = zip(self.standing.choices, self._ends, strict=True)
        text = next(choice for choice, ends in pairs if step.path[-1] in ends)
        caption = Caption(text, step.tokens, opened.source, 1, accept_lengths=(len(step.tokens),))
        paths = replace(self.tree, probs=step.probs).path_probs()
        return Answered(caption, tuple(sum(paths[end] for end in ends) for ends in self._ends))


def _ways(target: VideoTarget, choice: str) -> list[tuple[int, ...]]:
    """Token ids of a choice, with a space before it and without."""
    found = [target.tokenizer.encode(text, add_special_tokens=False).ids for text in (choice, f" {choice}")]
    known = [tuple(ids) for ids in found if ids and target.tokenizer.decode(ids).strip() == choice]
    if not known:
        raise InputError(f"the target cannot write the choice '{choice}': name another word")
    return list(dict.fromkeys(known))
