"""Standing questions: a single pass chooses as `generate` does under the same constraint."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest
import torch
from plain_target import QUESTION, generated, logits, prompt, settled, stream
from refusals import refused

from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.standing import Answered, Standing, StandingAnswers, read_standing
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
def test_invalid_standing_question_is_refused(text, code):
    with refused(code, text=f"'{text}'"):
        read_standing([text])


def test_too_many_or_duplicate_questions_are_refused():
    with refused("questions-twice"):
        read_standing(["Who? [a, b]", "Where? [a, b]", "Who? [c, d] first"])
    with refused("questions-too-many"):
        read_standing(["Who? [a, b]"] * 17)


def chosen(decoder, choices, trace=None):
    """Wait for the answers of a pass."""
    answered: Future[StandingAnswers] = Future()
    decoder.choose(choices, trace or Trace(), answered.set_result)
    answers = tuple(answer for _, answer in answered.result(WAIT_S))
    assert all(isinstance(answer, Answered) for answer in answers)
    return answers


@pytest.mark.parametrize("listed", LISTS)
@torch.inference_mode()
def test_choice_equals_constrained_generate(pair, windows, decoder, listed):
    _, (choices,) = decoder.standing([Standing(PERSON, listed)])
    begin = len(prompt(pair, pair.target.spec.frames, PERSON))
    written = _written(pair, listed)

    def allowed(batch, ids):
        prefix = ids[begin:].tolist()
        spellings = [ids for group in written for ids in group if ids[: len(prefix)] == prefix]
        return list({ids[len(prefix)] for ids in spellings})

    for window in windows[:3]:
        decoder.caption(window, Options(QUESTION), Trace())
        (answered,) = chosen(decoder, choices)
        assert answered.caption.token_ids == generated(
            pair, window, 64, PERSON, prefix_allowed_tokens_fn=allowed
        )
        assert answered.caption.text in listed and answered.caption.target_passes == 1
        assert answered.probabilities == pytest.approx(_probabilities(pair, window, listed), rel=1e-3)
    # The pass leaves the window unchanged.
    assert decoder.ask(Options(QUESTION), Trace()).token_ids == generated(pair, windows[2])


@pytest.mark.parametrize("begun", ["not", "early", "about other frames", "without the questions"])
def test_first_answers_come_before_the_caption(pair, windows, decoder, begun):
    shown = window = replace(windows[0], index=0)
    if begun == "about other frames":
        window = replace(shown, frames=shown.frames[1:], frame_stamps_ns=shown.frame_stamps_ns[1:])
    questions = [Standing(PERSON, listed, is_first=True) for listed in LISTS[:2]]
    first, _ = decoder.standing(questions)
    # A begun answer is compared by these objects.
    assert decoder.standing(questions)[0] is first
    decoder.caption(window, Options(QUESTION), Trace())
    wanted = chosen(decoder, first[0])
    options = Options(QUESTION, first=first)
    if begun != "not":
        stream(decoder, shown)
        decoder.begin(0, Options(QUESTION) if begun == "without the questions" else options)
        settled(decoder)
    trace, published = Trace(), list[object]()
    caption = decoder.caption(
        window,
        options,
        trace,
        published.append,
        on_first=lambda answers: published.append([(one, answer.caption) for one, answer in answers]),
    )
    assert published[0] == list(zip(questions, (one.caption for one in wanted), strict=True))
    assert published[-1] == caption.text and caption.token_ids == generated(pair, window)
    # One pass about the final frames, and a further question about the same frames.
    stages = [span.stage for span in trace.spans]
    assert stages.count("standing") == 1 + (begun == "about other frames")
    assert decoder.ask(Options(QUESTION), Trace()).token_ids == caption.token_ids


def _probabilities(pair, window, listed):
    """Return the probability of each choice, from one pass of the target per spelling."""
    found = []
    for spellings in _written(pair, listed):
        rows = [logits(pair, window, ids, PERSON).float().softmax(-1) for ids in spellings]
        pairs = zip(rows, spellings, strict=True)
        found.append(sum(float(row[range(len(ids)), ids].prod()) for row, ids in pairs))
    return found


def _written(pair, listed):
    """Return the spellings of each choice, with the end-of-sequence token."""
    tokenizer, end = pair.target.tokenizer, pair.target.spec.eos_ids[0]
    texts = [
        {tuple(tokenizer.encode(text, add_special_tokens=False).ids) for text in (one, f" {one}")}
        for one in listed
    ]
    return [
        [[*ids, end] for ids in spellings if tokenizer.decode(ids).strip() == choice]
        for choice, spellings in zip(listed, texts, strict=True)
    ]


def test_shared_pass_answers_as_each_alone(pair, windows, decoder):
    questions = [Standing(f"{i} {PERSON} {PERSON}", LISTS[i % len(LISTS)]) for i in range(16)]
    decoder.caption(windows[0], Options(QUESTION), Trace())
    trace = Trace()
    _, shared = decoder.standing(questions)
    together = [one for choices in shared for one in chosen(decoder, choices, trace)]
    assert 1 < len(shared) < 8, "as few passes as possible"
    assert [span.stage for span in trace.spans].count("standing") == len(shared)
    for standing, answered in zip(questions, together, strict=True):
        _, (choices,) = decoder.standing([standing])
        (alone,) = chosen(decoder, choices)
        assert alone.caption == answered.caption
        assert alone.probabilities == pytest.approx(answered.probabilities, rel=1e-3)


def test_impossible_choices_are_refused(decoder, monkeypatch):
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
    def fail(*args):
        raise MemoryError("no memory")

    first, _ = decoder.standing([Standing(PERSON, LISTS[0], is_first=True)])
    options = Options(QUESTION, first=first)
    monkeypatch.setattr(loop, "score_nodes", fail)
    for index, window in enumerate(windows[:2]):
        answered, window = list[object](), replace(window, index=index)
        stream(decoder, window)
        if index:
            decoder.begin(index, options)
        caption = decoder.caption(
            window, options, Trace(), on_first=lambda answers, found=answered: found.extend(answers)
        )
        assert caption.token_ids == generated(pair, window)
        assert [str(error) for _, error in answered] == ["no memory"]
