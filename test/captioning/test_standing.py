"""Standing questions: choices are made as `generate` makes them under the same constraint, in one pass."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest
import torch
from plain_target import QUESTION, generated, logits, prompt, settled, stream
from refusals import refused

from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.standing import Answered, Standing, Told, read_standing
from crossspec_ros.engine import loop
from crossspec_ros.telemetry.trace import Trace

WAIT_S = 60
PERSON = "Is a person on the road?"
LISTS = (
    ("red", "green"),
    ("a person", "a person in red crossing the road", "nobody"),
    ("car", "van", "cyclist"),
)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([], ()),
        ([f" {PERSON} [yes, no]"], (Standing(PERSON, ("yes", "no")),)),
        (
            ["Who? [a b,c]", f"{PERSON}[ no,no , yes ]\n"],
            (Standing("Who?", ("a b", "c")), Standing(PERSON, ("no", "yes"))),
        ),
        (
            [f"{PERSON} [yes, no] first", "Who came first? [a, b]"],
            (Standing(PERSON, ("yes", "no"), True), Standing("Who came first?", ("a", "b"))),
        ),
    ],
)
def test_standing_questions_are_read_with_their_choices(texts, found):
    assert read_standing(texts) == found


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[yes, no]", "choices-without-question"),
        *((PERSON + end, "choices-malformed") for end in ("", " [yes]", " []", " [yes, no].")),
        *((PERSON + end, "choices-malformed") for end in (" [yes, no] last", " [a] b [c, d]")),
        (PERSON + " [a|b]", "choices-with-bar"),
        ("", "choices-malformed"),
        (f"{PERSON} first [yes, no]", "choices-after-first"),
    ],
)
def test_what_is_no_question_with_choices_is_refused(text, code):
    with refused(code, text=f"'{text}'"):
        read_standing([text])


def test_too_many_questions_and_one_twice_are_refused():
    with refused("questions-twice"):
        read_standing(["Who? [a, b]", "Where? [a, b]", "Who? [c, d] first"])
    with refused("questions-too-many"):
        read_standing(["Who? [a, b]"] * 17)


def chosen(decoder, choices, trace=None):
    """Wait for the answers that share a pass."""
    told: Future[Told] = Future()
    decoder.choose(choices, trace or Trace(), told.set_result)
    answers = tuple(answer for _, answer in told.result(WAIT_S))
    assert all(isinstance(answer, Answered) for answer in answers)
    return answers


@pytest.mark.parametrize("listed", LISTS)
@torch.inference_mode()
def test_choice_equals_constrained_generate(pair, windows, decoder, listed):
    _, (choices,) = decoder.standing([Standing(PERSON, listed)])
    begin = len(prompt(pair, pair.target.spec.frames, PERSON))
    written = _written(pair, listed)

    def allowed(batch, ids):
        said = ids[begin:].tolist()
        ways = [way for ways in written for way in ways if way[: len(said)] == said]
        return list({way[len(said)] for way in ways})

    for window in windows[:3]:
        decoder.caption(window, Options(QUESTION), Trace())
        (answered,) = chosen(decoder, choices)
        assert answered.caption.token_ids == generated(
            pair, window, 64, PERSON, prefix_allowed_tokens_fn=allowed
        )
        assert answered.caption.text in listed and answered.caption.target_passes == 1
        assert answered.probabilities == pytest.approx(_probabilities(pair, window, listed), rel=1e-3)
    # A further question finds the window as it was.
    assert decoder.ask(Options(QUESTION), Trace()).token_ids == generated(pair, windows[2])


@pytest.mark.parametrize("begun", ["not", "early", "about other frames", "without the questions"])
def test_first_answers_come_before_the_caption(pair, windows, decoder, begun):
    shown = window = replace(windows[0], index=0)
    if begun == "about other frames":
        window = replace(shown, frames=shown.frames[1:], frame_stamps_ns=shown.frame_stamps_ns[1:])
    asked = [Standing(PERSON, listed, is_first=True) for listed in LISTS[:2]]
    first, _ = decoder.standing(asked)
    # An answer that has begun is about these objects.
    assert decoder.standing(asked)[0] is first
    decoder.caption(window, Options(QUESTION), Trace())
    wanted = chosen(decoder, first[0])
    options = Options(QUESTION, first=first)
    if begun != "not":
        stream(decoder, shown)
        decoder.begin(0, Options(QUESTION) if begun == "without the questions" else options)
        settled(decoder)
    trace, told = Trace(), list[object]()
    caption = decoder.caption(
        window,
        options,
        trace,
        told.append,
        on_first=lambda answers: told.append([(one, answer.caption) for one, answer in answers]),
    )
    assert told[0] == list(zip(asked, (one.caption for one in wanted), strict=True))
    assert told[-1] == caption.text and caption.token_ids == generated(pair, window)
    # Once about these frames, and so it is with what is asked after it.
    stages = [span.stage for span in trace.spans]
    assert stages.count("standing") == 1 + (begun == "about other frames")
    assert decoder.ask(Options(QUESTION), Trace()).token_ids == caption.token_ids


def _probabilities(pair, window, listed):
    """Probability of each choice, a pass of the target for each of its ways to be written."""
    found = []
    for ways in _written(pair, listed):
        rows = [logits(pair, window, ids, PERSON).float().softmax(-1) for ids in ways]
        pairs = zip(rows, ways, strict=True)
        found.append(sum(float(row[range(len(ids)), ids].prod()) for row, ids in pairs))
    return found


def _written(pair, listed):
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


def test_shared_pass_answers_as_each_alone(pair, windows, decoder):
    asked = [Standing(f"{i} {PERSON} {PERSON}", LISTS[i % len(LISTS)]) for i in range(16)]
    decoder.caption(windows[0], Options(QUESTION), Trace())
    trace = Trace()
    _, shared = decoder.standing(asked)
    together = [one for choices in shared for one in chosen(decoder, choices, trace)]
    assert 1 < len(shared) < 8, "as few as have room"
    assert [span.stage for span in trace.spans].count("standing") == len(shared)
    for standing, answered in zip(asked, together, strict=True):
        _, (choices,) = decoder.standing([standing])
        (alone,) = chosen(decoder, choices)
        assert alone.caption == answered.caption
        assert alone.probabilities == pytest.approx(answered.probabilities, rel=1e-3)


def test_choices_are_refused_where_they_cannot_be_made(decoder, monkeypatch):
    for code, question, choices in (
        ("choices-of-no-question", " ", ("red", "green")),
        ("choice-unwritable", PERSON, ("red", "</s>")),
        ("choices-too-long", PERSON, ("red", " ".join(["green car"] * 180))),
        ("choices-of-long-question", "car " * 520, ("red", "green")),
    ):
        with refused(code):
            decoder.standing([Standing(question, choices)])
    monkeypatch.setattr(decoder.engine, "supports_scores", False)
    with refused("choices-without-branches"):
        decoder.standing([Standing(PERSON, ("red", "green"))])


def test_failed_first_questions_cost_no_caption(pair, windows, decoder, monkeypatch):
    def fail(*given):
        raise MemoryError("no memory")

    first, _ = decoder.standing([Standing(PERSON, LISTS[0], is_first=True)])
    options = Options(QUESTION, first=first)
    monkeypatch.setattr(loop, "score_nodes", fail)
    for index, window in enumerate(windows[:2]):
        told, window = list[object](), replace(window, index=index)
        stream(decoder, window)
        if index:
            decoder.begin(index, options)
        caption = decoder.caption(
            window, options, Trace(), on_first=lambda answers, told=told: told.extend(answers)
        )
        assert caption.token_ids == generated(pair, window)
        assert [str(error) for _, error in told] == ["no memory"]
