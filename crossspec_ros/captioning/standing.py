"""Standing questions: asked about every captioned window, some with the choices that an answer has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.errors import InputError

if TYPE_CHECKING:
    from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
    from crossspec_ros.captioning.open_windows import OpenWindow
    from crossspec_ros.models.base import VideoTarget
    from crossspec_ros.telemetry.trace import Trace

MOST_QUESTIONS = 16
"""Standing questions."""
MOST_NODES = 128
"""Tokens of all choices of a question, which are read in one pass."""
_WITH_CHOICES = re.compile(r"(.*?)\s*\[([^\[\]]*)\]", re.DOTALL)


@dataclass(frozen=True)
class Standing:
    """A question, and the `choices` of which one is its answer; where there are none it is free."""

    question: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answered:
    """An answer, and the probability that the target gave each of the choices, in their order."""

    caption: Caption
    probabilities: tuple[float, ...] = ()


def read_standing(text: str) -> tuple[Standing, ...]:
    """Questions of a text with bars or ends of lines between them, each with its choices in brackets behind
    it, if there are any: `Is a person on the road? [yes, no]`.

    Raises InputError for too many, and for a question without words or with a single choice.
    """
    parts = [part.strip() for part in text.replace("\n", "|").split("|")]
    found = tuple(_standing(part) for part in parts if part)
    if len(found) > MOST_QUESTIONS:
        raise InputError(f"questions has {len(found)} questions, but at most {MOST_QUESTIONS} are taken")
    return found


def _standing(text: str) -> Standing:
    if not (match := _WITH_CHOICES.fullmatch(text)):
        return Standing(text)
    question, listed = match.groups()
    choices = tuple(dict.fromkeys(one for part in listed.split(",") if (one := part.strip())))
    if not question or len(choices) < 2:
        raise InputError(
            f"'{text}' is no question with choices: write it as in 'Is a person on the road? [yes, no]'"
        )
    return Standing(question, choices)


class Choices:
    """Choices of a question as one tree of the target's tokens, each with an end of sequence behind it.

    A text may begin with a space or not: targets differ in what they write behind a prompt.
    """

    def __init__(self, target: VideoTarget, choices: Sequence[str]) -> None:
        """Raises InputError for a choice that the target cannot write, and where all are too long."""
        self._choices = choices
        eos_id = target.spec.eos_ids[0]
        ways = [self._ways(target, choice) for choice in choices]
        chains = [[*ids, eos_id] for mine in ways for ids in mine]
        self.tree = DraftTree.merged(DraftTree.chain(ids, [1.0] * len(ids), "choices") for ids in chains)
        if len(self.tree) > MOST_NODES:
            raise InputError(
                f"the choices {', '.join(choices)} have {len(self.tree)} tokens, but at most {MOST_NODES} "
                f"are taken: name fewer, or shorter ones"
            )
        self._ends = [[self._end([*ids, eos_id]) for ids in mine] for mine in ways]

    @staticmethod
    def _ways(target: VideoTarget, choice: str) -> list[list[int]]:
        texts = choice, f" {choice}"
        found = [target.tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        known = [ids for ids in found if ids and target.tokenizer.decode(ids).strip() == choice]
        if not known:
            raise InputError(f"the target cannot write the choice '{choice}': name another word")
        return [list(ids) for ids in dict.fromkeys(map(tuple, known))]

    def _end(self, ids: Sequence[int]) -> int:
        node = ROOT
        for token in ids:
            child = self.tree.child(node, token)
            assert child is not None
            node = child
        return node

    def answer(self, opened: OpenWindow, question: str, trace: Trace) -> Answered:
        """The choice that the target makes about a window that was captioned, in one pass."""
        assert opened.session is not None
        opened.session.ask(question, trace, 0)
        step = opened.session.step(self.tree, is_within=True).result()
        pairs = zip(self._choices, self._ends, strict=True)
        text = next(choice for choice, ends in pairs if step.path[-1] in ends)
        caption = Caption(text, step.tokens, opened.source, 1, accept_lengths=(len(step.tokens),))
        paths = replace(self.tree, probs=step.probs).path_probs()
        return Answered(caption, tuple(sum(paths[end] for end in ends) for ends in self._ends))


def checked(standing: Standing, decoder: PrefillHiddenDecoder) -> Choices | None:
    """The choices of a standing question, if it has any; InputError where the decoder cannot be asked it."""
    decoder.check_question(standing.question)
    if not standing.choices:
        return None
    if not decoder.engine.chooses:
        raise InputError(
            f"'{standing.question}' has choices, which need draft trees: name a target on this machine, in "
            f"torch or in float32, or leave the choices out"
        )
    return Choices(decoder.pair.target, standing.choices)
