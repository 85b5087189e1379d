"""Standing questions: choices are made as `generate` makes them under the same constraint, in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from plain_target import QUESTION, generated, logits, prompt

from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.standing import Standing, read_standing
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.errors import InputError
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

PERSON = "Is a person on the road?"
LISTS = (
    ("red", "green"),
    ("a person", "a person in red crossing the road", "nobody"),
    ("car", "van", "cyclist"),
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        (f" {PERSON} [yes, no]|", (Standing(PERSON, ("yes", "no")),)),
        (
            f"Who? [a b,c]\n\n{PERSON}[ no,no , yes ]\n",
            (Standing("Who?", ("a b", "c")), Standing(PERSON, ("no", "yes"))),
        ),
        (
            f"{PERSON} [yes, no] first | Who came first? [a, b]",
            (Standing(PERSON, ("yes", "no"), True), Standing("Who came first?", ("a", "b"))),
        ),
    ],
)
def test_questions_stand_between_bars_and_lines_with_their_choices_behind(
    text: str, found: tuple[Standing, ...]
) -> None:
    assert read_standing(text) == found


@pytest.mark.parametrize(
    "ending", ["", " [yes]", " []", " [a|b]", " [yes, no].", " [yes, no] last", " [a] b [c, d]"]
)
def test_what_is_no_question_with_choices_is_refused(ending: str) -> None:
    for text in (PERSON + ending, "[yes, no]"):
        with pytest.raises(InputError, match=r"write it as in 'Is a person on the road\? \[yes, no\]'"):
            read_standing(text)


def test_too_many_questions_are_refused() -> None:
    with pytest.raises(InputError, match="questions has 17 questions, but at most 16"):
        read_standing("Who? [a, b]|" * 17)


@pytest.fixture
def decoder(pair: ModelPair) -> Iterator[PrefillHiddenDecoder]:
    decoder = PrefillHiddenDecoder(pair, Policy((), None))
    yield decoder
    decoder.close()


@pytest.mark.parametrize("listed", LISTS)
@torch.inference_mode()
def test_a_choice_is_that_of_generate_within_the_same_tree(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder, listed: tuple[str, ...]
) -> None:
    choices = decoder.standing([Standing(PERSON, listed)]).later
    begin = len(prompt(pair, pair.frames, PERSON))
    written = _written(pair, listed)

    def allowed(batch: int, ids: torch.Tensor) -> list[int]:
        said = ids[begin:].tolist()
        ways = [way for ways in written for way in ways if way[: len(said)] == said]
        return list({way[len(said)] for way in ways})

    for window in windows[:3]:
        decoder.caption(window, QUESTION, Trace())
        (answered,) = decoder.choose(choices, Trace())
        assert answered.caption.token_ids == generated(
            pair, window, 64, PERSON, prefix_allowed_tokens_fn=allowed
        )
        assert answered.caption.text in listed and answered.caption.target_passes == 1
        assert answered.probabilities == pytest.approx(_probabilities(pair, window, listed), rel=1e-3)
    # A further question finds the window as it was.
    assert decoder.ask(QUESTION, Trace()).token_ids == generated(pair, windows[2])


@pytest.mark.parametrize("begun", ["not", "early", "about other frames", "without the questions"])
def test_what_is_asked_first_is_told_before_the_caption_and_changes_neither(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder, begun: str
) -> None:
    shown = window = replace(windows[0], index=0)
    if begun == "about other frames":
        window = replace(shown, frames=shown.frames[1:], frame_stamps_ns=shown.frame_stamps_ns[1:])
    asked = [Standing(PERSON, listed, is_first=True) for listed in LISTS[:2]]
    choices = decoder.standing(asked).first
    decoder.caption(window, QUESTION, Trace())
    wanted = [one.caption.token_ids for one in decoder.choose(choices, Trace())]
    decoder.first = None if begun == "without the questions" else choices
    if begun != "not":
        for frame, stamp_ns in zip(shown.frames, shown.frame_stamps_ns, strict=True):
            decoder.stream_frame(0, frame, stamp_ns)
        decoder.begin(0, QUESTION)
        while decoder.advance(0):
            pass
    decoder.first = choices
    trace, told = Trace(), list[object]()
    caption = decoder.caption(
        window,
        QUESTION,
        trace,
        told.append,
        on_first=lambda one, answered: told.append((one, answered.caption.token_ids)),
    )
    assert told[:2] == list(zip(asked, wanted, strict=True))
    assert told[-1] == caption.text and caption.token_ids == generated(pair, window)
    # A pass each, and those that were begun for nothing.
    passes = [
        span.name for span in trace.spans if span.name.startswith(f"target_prefill[{len(window.frames)}]")
    ]
    assert len(passes) == {"without the questions": 3}.get(begun, 2)
    assert decoder.ask(QUESTION, Trace()).token_ids == caption.token_ids


def _probabilities(pair: ModelPair, window: Window, listed: tuple[str, ...]) -> list[float]:
    """Probability of each choice, a pass of the target for each of its ways to be written."""
    found = []
    for ways in _written(pair, listed):
        rows = [logits(pair, window, ids, PERSON).float().softmax(-1) for ids in ways]
        pairs = zip(rows, ways, strict=True)
        found.append(sum(float(row[range(len(ids)), ids].prod()) for row, ids in pairs))
    return found


def _written(pair: ModelPair, listed: tuple[str, ...]) -> list[list[list[int]]]:
    """The ways to write each choice, with the end of sequence."""
    tokenizer, end = pair.target.tokenizer, pair.target.spec.eos_ids[0]
    texts = [
        {tuple(tokenizer.encode(text, add_special_tokens=False).ids) for text in (one, f" {one}")}
        for one in listed
    ]
    return [
        [[*ids, end] for ids in ways if tokenizer.decode(ids).strip() == choice]
        for choice, ways in zip(listed, texts, strict=True)
    ]


def test_questions_of_one_pass_are_answered_as_each_alone(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    asked = [Standing(f"{i} {PERSON} {PERSON}", LISTS[i % len(LISTS)]) for i in range(16)]
    decoder.caption(windows[0], QUESTION, Trace())
    trace = Trace()
    together = decoder.choose(decoder.standing(asked).later, trace)
    passes = [span.name for span in trace.spans if span.name.startswith("target_prefill")]
    assert 1 < len(passes) < 4, "as few as have room"
    for standing, answered in zip(asked, together, strict=True):
        (alone,) = decoder.choose(decoder.standing([standing]).later, Trace())
        assert alone.caption == answered.caption
        assert alone.probabilities == pytest.approx(answered.probabilities, rel=1e-3)


def test_choices_are_refused_where_they_cannot_be_made(
    decoder: PrefillHiddenDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(reason: str, *choices: str, question: str = PERSON) -> None:
        with pytest.raises(InputError, match=reason):
            decoder.standing([Standing(question, choices)])

    refused("of questions, ' ': the question is empty", "red", "green", question=" ")
    refused("the target cannot write the choice '</s>'", "red", "</s>")
    refused(r"and its choices have \d+ tokens, but at most 384", "red", " ".join(["green car"] * 180))
    refused(r"and its choices have \d{3} tokens", "red", "green", question="car " * 520)
    monkeypatch.setattr(decoder.engine.runner, "branches", False)  # type: ignore[attr-defined]
    refused("standing questions need draft trees", "red", "green")
