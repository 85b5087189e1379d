"""Questions are answered in order, about captioned windows, or fail with a reason."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from dataclasses import replace

import pytest
from captioner_stage import OPTIONS, Stage, window
from fakes import FakeDecoder
from refusals import refused

from crossspec_ros.captioning.captioner import MAX_QUESTIONS
from crossspec_ros.captioning.standing import Standing
from crossspec_ros.errors import InputError
from crossspec_ros.windows.window import Window


def with_standing(*questions, first=()):
    standing = [Standing(question, ("yes", "no"), question in first) for question in (*questions, *first)]
    first, later = FakeDecoder().standing(standing)
    return replace(OPTIONS, first=first, later=later)


def test_questions_wait_for_windows_and_keep_their_order():
    def gate(what, cancel):
        if isinstance(what, Window) and what.index == 0:
            stage.ask("late?")
            stage.close(1)
            assert not stage.answers

    stage = Stage(FakeDecoder(gate))
    stage.ask("early?")
    assert not stage.captioner.step()
    stage.caption(0)
    # Both windows closed before the first answer.
    found = [(question, answer.text, index) for question, (answer, index) in stage.answers]
    assert found == [("early?", "answer to early?", 1), ("late?", "answer to late?", 1)]


def test_too_many_or_too_long_questions_are_refused():
    stage, cancel = Stage(), threading.Event()
    stage.ask("0?")
    stage.ask("cancelled?", cancel=cancel)
    stage.ask(*(f"{i}?" for i in range(2, MAX_QUESTIONS)))
    for question in ("one more?", 10_000_000 * "?"):
        with pytest.raises(InputError):
            stage.ask(question)
    # A cancelled question waits for no window, and does not count any more.
    cancel.set()
    stage.ask("one more?")
    stage.run()
    ((question, answer),) = stage.answers
    assert question == "cancelled?" and "cancelled" in str(answer)
    stage.caption(0)
    assert len(stage.answers) == MAX_QUESTIONS + 1 and stage.captioner.stop() == []


def test_stop_answers_waiting_questions_once_in_order():
    def gate(what, cancel):
        if isinstance(what, str):
            assert not cancel.is_set()
            stage.captioner.stop()
            assert cancel.is_set()

    stage = Stage(FakeDecoder(gate))
    stage.ask("first?", "second?")
    stage.caption(3)
    assert [question for question, _ in stage.answers] == ["first?", "second?"]
    assert all("deactivated" in str(answer) for _, answer in stage.answers)
    with refused("captioner-deactivated"):
        stage.ask("third?")


def test_standing_answers_come_before_or_after_captions():
    published = []
    stage = Stage(options=with_standing("later?", first=("now?",)))
    stage.outcome = lambda outcome: published.append(outcome.window.index)
    stage.standing = lambda standing, answer, about: published.append((standing.question, about.index))
    # A window without frames has no standing answers.
    for one in (0, 1, window(2, 0)):
        stage.close(one)
        stage.run()
    both = [("now?", 0), 0, ("later?", 0), ("now?", 1), 1, ("later?", 1)]
    assert published == [*both, 2]
    assert stage.captioner.unanswered == 0


def test_failed_and_dropped_standing_questions_are_reported():
    class Decoder(FakeDecoder):
        def choose(self, choices, trace, on_answered):
            self.answer = lambda made: on_answered(list(zip(choices.standing, made, strict=True)))

    stage = Stage(Decoder(), options=with_standing("who?", "where?"))
    dropped, error = CancelledError(), RuntimeError("out of memory")
    for index, made in enumerate(([dropped] * 2, [error] * 2, ["me", "here"])):
        stage.caption(index)
        stage.decoder.answer(made)
    failed = [("who?", dropped, 0), ("where?", dropped, 0), ("who?", error, 1), ("where?", error, 1)]
    assert stage.standings == [*failed, ("who?", "me", 2), ("where?", "here", 2)]
    assert stage.captioner.unanswered == 2


def test_questions_alone_are_about_the_newest_window():
    stage = Stage(when="asked")
    stage.ask("early?")
    stage.show(0, 100)
    stage.show(1, 100)
    stage.ask("what?", "and?")
    stage.run()
    assert [(answer.text, index) for _, (answer, index) in stage.answers] == [
        ("2 frames, 2 event images: early?", 0),
        ("2 frames, 2 event images: what?", 1),
        ("answer to and?", 1),
    ]
    assert [(o.caption, o.holds, o.skipped, o.error) for o in stage.outcomes] == [(None, None, "", None)] * 2
    assert stage.decoder.streamed == []


def test_question_about_a_dark_window_fails():
    stage = Stage(when="asked")
    stage.show(0, 0)
    for _ in range(2):
        assert "rgb dark" in str(stage.answer("what?"))
    stage.decoder.fail = True
    stage.show(1, 100)
    assert "out of memory" in str(stage.answer("what?"))
    stage.decoder.fail = False
    assert stage.answer("what?").text == "2 frames, 2 event images: what?"
