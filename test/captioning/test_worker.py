"""Every window has one outcome, in order, however slow the models are; and the end never waits for them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest
from fakes import FakeDecoder

from crossspec_ros.captioning.standing import Standing
from crossspec_ros.captioning.worker import CaptionWorker
from crossspec_ros.errors import InputError
from crossspec_ros.windows.change import ChangeGate, GateSettings
from crossspec_ros.windows.window import Window

WAIT_S = 20.0
PIXELS = np.zeros((2, 2, 3), np.uint8)


def ignore(text):
    pass


def window(index, frames=1):
    pixels = (
        np.full((frames, 2, 2, 3), 100, np.uint8) + np.arange(frames, dtype=np.uint8)[:, None, None, None]
    )
    return Window(index, index * 10**9, (index + 1) * 10**9, pixels, pixels)


class Outcomes:
    def __init__(self):
        self.all = []
        self._changed = threading.Condition()

    def __call__(self, outcome, index=None):
        with self._changed:
            self.all.append(outcome)
            self._changed.notify()

    def wait(self, number):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.all) >= number, WAIT_S)
        return self.all


def test_the_newest_window_wins_and_the_skipped_ones_are_told_in_order():
    started, released = threading.Event(), threading.Event()

    def gate(window, cancel):
        started.set()
        released.wait(WAIT_S)

    outcomes, words = Outcomes(), []
    worker = CaptionWorker(FakeDecoder(gate), "what?", ignore, words.append, outcomes)
    worker.submit(window(0), time.perf_counter_ns())
    assert started.wait(WAIT_S)
    for index in (1, 2, 3):
        worker.submit(window(index), time.perf_counter_ns())
    released.set()
    outcomes.wait(4)
    worker.stop()
    assert [(o.window.index, o.skipped) for o in outcomes.all] == [
        (0, False),
        (1, True),
        (2, True),
        (3, False),
    ]
    assert outcomes.all[3].caption.text == "1 frames, 1 event images: what?"
    assert words == ["1 frames, 1 event images: what?"] * 2
    stages = outcomes.all[3].trace.stages
    assert stages["queue"] <= stages["total"] and stages["first_token"] <= stages["total"]


def test_a_failure_is_an_outcome_and_the_next_window_is_captioned():
    decoder, outcomes = FakeDecoder(fail=True), Outcomes()
    worker = CaptionWorker(decoder, "", ignore, ignore, outcomes)
    worker.submit(window(0), 0)
    assert str(outcomes.wait(1)[0].error) == "out of memory"
    decoder.fail = False
    worker.submit(window(1), 0)
    assert outcomes.wait(2)[1].caption is not None
    worker.stop()


def test_stopping_cancels_the_window_in_work_and_nothing_is_told_afterwards():
    started = threading.Event()

    def gate(window, cancel):
        started.set()
        assert cancel.wait(WAIT_S)

    decoder, outcomes, told = FakeDecoder(gate), Outcomes(), []
    worker = CaptionWorker(decoder, "", told.append, told.append, outcomes)
    worker.submit(window(0), 0)
    assert started.wait(WAIT_S)
    worker.submit(window(1), 0)
    worker.stop(WAIT_S)
    for _ in range(4):
        worker.stream_event_image(2, PIXELS)
    assert decoder.cancelled == [True] and outcomes.all == [] and told == []


def film(worker, index, frames):
    for i in range(frames):
        worker.stream_frame(index, PIXELS, index * 10**9 + i)


def test_frames_go_to_the_decoder_as_they_come_unless_their_window_was_captioned():
    decoder, outcomes = FakeDecoder(), Outcomes()
    worker = CaptionWorker(decoder, "", ignore, ignore, outcomes)
    film(worker, 3, 2)
    worker.submit(window(3), 0)
    outcomes.wait(1)
    # Too late, early again because the clock has gone back, and the next window.
    for index in (3, 2, -20, 4):
        film(worker, index, 1)
    worker.stop()
    assert decoder.streamed == [(3, "frame"), (3, "frame"), (-20, "frame"), (4, "frame")]


def test_an_answer_begins_with_as_many_frames_as_the_window_before_had():
    class Decoder(FakeDecoder):
        passes = 3
        is_over = threading.Event()

        def advance(self, index, more):
            assert index == self.begun[-1]
            self.passes -= 1
            if not self.passes:
                self.is_over.set()
            return self.passes > 0

    decoder, outcomes = Decoder(), Outcomes()
    worker = CaptionWorker(decoder, "", ignore, ignore, outcomes)
    film(worker, 0, 3)
    worker.submit(window(0, 3), 0)
    outcomes.wait(1)
    film(worker, 1, 2)
    assert not decoder.is_over.wait(0.05) and decoder.begun == []
    film(worker, 1, 1)
    assert decoder.is_over.wait(WAIT_S) and decoder.begun == [1]
    worker.submit(window(1, 3), 0)
    outcomes.wait(2)
    # A window without frames tells nothing of the next one.
    worker.submit(window(2, 0), 0)
    outcomes.wait(3)
    film(worker, 3, 8)
    worker.submit(window(3, 8), 0)
    outcomes.wait(4)
    worker.stop()
    assert decoder.begun == [1]


def test_preparing_goes_on_piece_by_piece_until_there_is_other_work():
    class Decoder(FakeDecoder):
        asked, pieces = 0, 5

        def prepare(self, index, question):
            self.asked += 1
            if self.asked == 3:
                worker.submit(window(0), 0)
            if self.asked >= self.pieces:
                done.set()
            return self.asked < self.pieces

        def caption(self, *args):
            before.append(self.asked)
            return super().caption(*args)

    before, done = [], threading.Event()
    decoder, outcomes = Decoder(), Outcomes()
    worker = CaptionWorker(decoder, "", ignore, ignore, outcomes)
    worker.stream_frame(1, PIXELS, 0)
    outcomes.wait(1)
    assert done.wait(WAIT_S)
    worker.stop(WAIT_S)
    assert before == [3] and decoder.asked == 5


def test_a_closed_window_goes_before_the_passes_of_one_that_is_open():
    class Decoder(FakeDecoder):
        def advance(self, index, more):
            if not worker._waiting:
                time.sleep(0.001)
            return True  # it never ends by itself

    decoder, outcomes = Decoder(), Outcomes()
    worker = CaptionWorker(decoder, "", ignore, ignore, outcomes)
    worker.submit(window(0), 0)
    outcomes.wait(1)
    film(worker, 1, 1)
    worker.submit(window(1), 0)
    outcomes.wait(2)
    worker.stop(WAIT_S)
    assert not worker._thread.is_alive()


def test_what_cannot_be_read_or_begun_early_is_told_and_costs_nothing(caplog):
    class Decoder(FakeDecoder):
        def stream_frame(self, index, frame, stamp_ns, is_last):
            if stamp_ns % 10**9 == 0:
                self.streamed.append((index, "frame"))
                raise RuntimeError("out of memory")
            read = super().stream_frame(index, frame, stamp_ns, is_last)
            if read is not None:
                read = Future()
                read.set_exception(RuntimeError("no place"))
            return read

        def begin(self, index, question):
            super().begin(index, question)
            raise RuntimeError("no session")

    decoder, outcomes = Decoder(), Outcomes()
    worker = CaptionWorker(decoder, "", ignore, ignore, outcomes)
    film(worker, 0, 2)
    worker.submit(window(0, 2), 0)
    assert outcomes.wait(1)[0].caption is not None
    film(worker, 1, 2)
    while not decoder.begun:
        time.sleep(0.01)
    worker.submit(window(1, 2), 0)
    assert outcomes.wait(2)[1].caption is not None
    worker.stop()
    for reason in ("read ahead", "out of memory", "no place", "begun early", "no session"):
        assert reason in caplog.text


def test_an_outcome_that_cannot_be_told_does_not_end_the_captions(caplog):
    outcomes = Outcomes()

    def tell(outcome):
        outcomes(outcome)
        if outcome.window.index == 0:
            raise RuntimeError("no publisher")

    worker = CaptionWorker(FakeDecoder(), "", ignore, ignore, tell)
    for index in (0, 1):
        worker.submit(window(index), 0)
        outcomes.wait(index + 1)
    worker.stop()
    assert "outcome of window 0 could not be told" in caplog.text


def test_a_window_whose_telling_outlasts_the_end_is_left_to_be_told_otherwise():
    begun, released = threading.Event(), threading.Event()

    def tell(outcome):
        begun.set()
        assert released.wait(WAIT_S)
        raise KeyError("report")

    worker = CaptionWorker(FakeDecoder(), "", ignore, ignore, tell)
    worker.submit(window(0), 0)
    assert begun.wait(WAIT_S)
    left = worker.stop(0.05)
    released.set()
    assert worker.is_over(WAIT_S)
    assert [one.index for one in left] == [0]


def test_a_window_that_closes_twice_has_two_outcomes():
    """As after a step back of the clock."""
    begun, released = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]
    count = iter(range(2))

    def gate(window, cancel):
        i = next(count)
        begun[i].set()
        released[i].wait(WAIT_S)

    outcomes = Outcomes()
    worker = CaptionWorker(FakeDecoder(gate), "what?", ignore, ignore, outcomes)
    worker.submit(window(5), time.perf_counter_ns())
    assert begun[0].wait(WAIT_S)
    worker.submit(window(5, frames=2), time.perf_counter_ns())
    released[0].set()
    assert begun[1].wait(WAIT_S)
    assert len(outcomes.all) == 1 and [left.index for left in worker.stop(0.1)] == [5]
    released[1].set()


def test_a_caption_is_late_by_the_time_since_its_window_closed():
    outcomes = Outcomes()
    worker = CaptionWorker(FakeDecoder(), "", ignore, ignore, outcomes, deadline_s=0.5)
    for index, closed_ago_s in enumerate((1, -1)):
        worker.submit(window(index), time.perf_counter_ns() - closed_ago_s * 10**9)
        outcomes.wait(index + 1)
    worker.stop()
    assert [outcome.caption.late for outcome in outcomes.all] == [True, False]


def test_questions_wait_for_a_window_and_are_answered_in_order_when_no_window_waits():
    started, released = threading.Event(), threading.Event()

    def gate(what, cancel):
        started.set()
        assert released.wait(WAIT_S)

    outcomes, answers = Outcomes(), Outcomes()
    worker = CaptionWorker(FakeDecoder(gate), "what?", ignore, ignore, outcomes)
    worker.ask("early?", answers)
    worker.submit(window(0), 0)
    assert started.wait(WAIT_S)
    worker.ask("late?", answers)
    worker.submit(window(1), 0)
    assert answers.all == []
    released.set()
    answers.wait(2)
    # Both windows came before the first answer.
    assert len(outcomes.all) == 2
    assert [answer.text for answer in answers.all] == ["answer to early?", "answer to late?"]
    worker.stop()


def test_a_question_that_fails_is_told_and_too_many_are_refused():
    outcomes, answers = Outcomes(), Outcomes()
    decoder = FakeDecoder()
    worker = CaptionWorker(decoder, "what?", ignore, ignore, outcomes)
    for i in range(16):
        worker.ask(f"{i}?", answers)
    with pytest.raises(InputError, match="16 questions wait"):
        worker.ask("one more?", answers)
    worker.submit(window(0), 0)
    answers.wait(16)
    decoder.fail = True
    worker.ask("and now?", answers)
    assert str(answers.wait(17)[16]) == "out of memory"
    assert worker.stop() == []


def test_a_question_of_megabytes_is_refused_before_it_waits():
    worker = CaptionWorker(FakeDecoder(), "what?", ignore, ignore, Outcomes())
    with pytest.raises(InputError, match="the question has 10000000 characters, but at most 10000"):
        worker.ask(10_000_000 * "?", ignore)
    worker.stop()


def test_what_is_left_at_the_end_is_told():
    started, answers = threading.Event(), Outcomes()

    def gate(what, cancel):
        started.set()
        cancel.wait(WAIT_S)

    worker = CaptionWorker(FakeDecoder(gate), "what?", ignore, ignore, ignore)
    worker.submit(window(3), 0)
    assert started.wait(WAIT_S)
    worker.submit(window(4), 0)
    worker.ask("why?", answers)
    assert [(left.index, left.frames.size) for left in worker.stop()] == [(3, 0), (4, 0)]
    assert "deactivated" in str(answers.all[0])


def test_a_question_in_work_at_the_end_is_answered_too():
    outcomes, answers, started = Outcomes(), Outcomes(), threading.Event()

    def gate(what, cancel):
        if what == "why?":
            started.set()
            cancel.wait(WAIT_S)

    worker = CaptionWorker(FakeDecoder(gate), "what?", ignore, ignore, outcomes)
    worker.submit(window(3), 0)
    outcomes.wait(1)
    worker.ask("why?", answers)
    assert started.wait(WAIT_S)
    worker.stop()
    assert "deactivated" in str(answers.wait(1)[0])


def test_a_question_whose_pass_outlasts_the_end_is_answered_once_and_in_order():
    outcomes, answers, started, released = Outcomes(), Outcomes(), threading.Event(), threading.Event()

    def gate(what, cancel):
        if isinstance(what, str):
            started.set()
            assert released.wait(WAIT_S)

    worker = CaptionWorker(FakeDecoder(gate), "what?", ignore, ignore, outcomes)
    worker.submit(window(3), 0)
    outcomes.wait(1)
    asked = []
    for question in ("first?", "second?"):

        def tell(answer, index, question=question):
            asked.append(question)
            answers(answer)

        worker.ask(question, tell)
    assert started.wait(WAIT_S)
    worker.stop(timeout_s=0.05)
    assert asked == ["first?", "second?"]
    assert all("deactivated" in str(answer) for answer in answers.all)
    with pytest.raises(InputError, match="deactivated"):
        worker.ask("third?", answers)
    released.set()
    assert worker.is_over(WAIT_S) and len(asked) == 2


@pytest.mark.parametrize("what", ["a caption", "an answer"])
def test_what_is_long_in_work_but_gets_on_is_not_stuck(what):
    outcomes, answers, beats = Outcomes(), Outcomes(), []

    def gate(asked, cancel):
        if isinstance(asked, str) == (what == "an answer"):
            for _ in range(3):
                before = worker.pulse.beats
                assert not cancel.is_set()
                beats.append(worker.pulse.beats > before)

    worker = CaptionWorker(FakeDecoder(gate), "what?", ignore, ignore, outcomes)
    worker.submit(window(0), 0)
    told = outcomes.wait(1)[0]
    # Telling it may take as long.
    before = worker.pulse.beats
    assert not told.cancel.is_set() and worker.pulse.beats > before
    worker.ask("why?", answers)
    answers.wait(1)
    # What the event draft says in its own thread is no step of this one.
    before = worker.pulse.beats
    for _ in range(4):
        worker.stream_event_image(1, PIXELS)
    assert worker.pulse.beats == before
    worker.stop()
    assert beats == [True] * 3


def test_a_changed_question_and_deadline_hold_for_the_next_window():
    outcomes = Outcomes()
    worker = CaptionWorker(FakeDecoder(), "what?", ignore, ignore, outcomes)
    worker.submit(window(0), time.perf_counter_ns() - 10**9)
    outcomes.wait(1)
    worker.question, worker.deadline_s = "where?", 0.5
    worker.submit(window(1), time.perf_counter_ns() - 10**9)
    outcomes.wait(2)
    worker.stop()
    said = [(outcome.caption.text.split(": ")[1], outcome.caption.late) for outcome in outcomes.all]
    assert said == [("what?", False), ("where?", True)]


def test_when_captions_take_three_windows_each_begins_with_the_newest_and_none_is_forgotten():
    """So the lag is one window and one inference at most, and what waits holds no pixels."""
    submitted, begun, held = [], [], []

    def gate(seen, cancel):
        begun.append((seen.index, submitted[-1]))
        time.sleep(0.03)
        held.append(sum(item.window.frames.nbytes for item in worker._waiting[:-1]))

    outcomes = Outcomes()
    worker = CaptionWorker(FakeDecoder(gate), "what?", ignore, ignore, outcomes)
    for index in range(60):
        submitted.append(index)
        worker.submit(window(index), time.perf_counter_ns())
        time.sleep(0.01)
    outcomes.wait(60)
    worker.stop()
    assert all(newest - index <= 1 for index, newest in begun) and len(begun) < 40
    assert [outcome.window.index for outcome in outcomes.all] == list(range(60))
    assert sum(outcome.skipped for outcome in outcomes.all) == 60 - len(begun)
    assert max(held) == 0


class Panic(BaseException):
    """As libraries in Rust raise it."""


class Panicking(FakeDecoder):
    """Panics at first, whatever it is asked."""

    is_well = False

    def panic(self):
        if not self.is_well:
            raise Panic("byte index 3 is not a char boundary")

    def stream_frame(self, *args):
        self.panic()

    def stream_event_image(self, *args):
        self.panic()

    def ask(self, *args):
        self.panic()
        return super().ask(*args)

    def caption(self, *args):
        self.panic()
        return super().caption(*args)


def test_a_panic_in_a_library_is_the_failure_of_its_window_alone():
    decoder, outcomes, answers = Panicking(), Outcomes(), Outcomes()
    worker = CaptionWorker(decoder, "", ignore, ignore, outcomes)
    worker.stream_event_image(0, PIXELS)
    worker.stream_frame(0, PIXELS, 0)
    worker.submit(window(0), 0)
    error = outcomes.wait(1)[0].error
    assert isinstance(error, RuntimeError) and str(error).startswith("Panic: byte index 3")
    worker.ask("who?", answers)
    assert str(answers.wait(1)[0]).startswith("Panic: byte index 3")
    decoder.is_well = True
    worker.submit(window(1), 0)
    assert outcomes.wait(2)[1].caption is not None and not worker.pulse.death
    worker.stop()


def asked(*questions, first=()):
    standing = [Standing(question, ("yes", "no"), question in first) for question in (*questions, *first)]
    return FakeDecoder().standing(standing)


def test_what_is_asked_first_is_told_before_the_caption_of_each_window():
    told = Outcomes()
    worker = CaptionWorker(
        FakeDecoder(),
        "what?",
        ignore,
        ignore,
        lambda outcome: told(outcome.window.index),
        standing=asked("later?", first=("now?",)),
        on_standing=lambda standing, answer, about: told((standing.question, about.index)),
    )
    for index in range(2):
        worker.submit(window(index), 0)
        told.wait(3 * (index + 1))
    worker.ask("why?", lambda *answer: told("why"))
    told.wait(7)
    worker.stop()
    assert told.all == [("now?", 0), 0, ("later?", 0), ("now?", 1), 1, ("later?", 1), "why"]
    assert worker.unanswered == 0


def test_standing_questions_are_answered_after_each_caption_and_dropped_when_the_next_window_closes():
    frame, outcomes, told = Future(), Outcomes(), Outcomes()

    class Decoder(FakeDecoder):
        def stream_frame(self, index, pixels, stamp_ns, is_last=False):
            return frame

    def tell(standing, answer, window):
        told((standing.question, answer.caption.text, window.index))

    worker = CaptionWorker(
        Decoder(), "what?", ignore, ignore, outcomes, standing=asked("who?", "where?"), on_standing=tell
    )
    # Frames that wait go before them.
    film(worker, 1, 1)
    worker.submit(window(0), 0)
    outcomes.wait(1)
    time.sleep(0.05)
    assert not told.all
    worker.submit(window(1), 0)
    outcomes.wait(2)
    frame.set_result(None)
    told.wait(2)
    worker.stop()
    assert told.all == [(question, "yes", 1) for question in ("who?", "where?")]
    assert worker.unanswered == 2


def test_a_standing_question_that_fails_is_told_and_the_next_window_is_asked_again():
    decoder, told = FakeDecoder(), Outcomes()
    choose = decoder.choose

    def fail(choices, trace):
        decoder.choose = choose
        raise RuntimeError("out of memory")

    decoder.choose = fail
    worker = CaptionWorker(
        decoder,
        "what?",
        ignore,
        ignore,
        ignore,
        standing=asked("bad?", "who?"),
        on_standing=lambda *one: told(one),
    )
    # About a window without frames nothing is asked.
    worker.submit(window(0, 0), 0)
    worker.submit(window(1), 0)
    told.wait(2)
    worker.submit(window(2), 0)
    told.wait(4)
    worker.stop()
    assert [(standing.question, about.index) for standing, _, about in told.all] == [
        ("bad?", 1),
        ("who?", 1),
        ("bad?", 2),
        ("who?", 2),
    ]
    assert str(told.all[0][1]) == "out of memory" and worker.unanswered == 2


def changing(**decoder):
    decoder, outcomes = FakeDecoder(**decoder), Outcomes()
    gate = ChangeGate(GateSettings("changed"))
    return decoder, outcomes, CaptionWorker(decoder, "", ignore, ignore, outcomes, gate=gate)


def shown(worker, index, level, frames=2):
    """A window of this brightness, image by image, and closed."""
    pixels = np.full((frames, 2, 2, 3), level, np.uint8)
    for i, frame in enumerate(pixels):
        worker.stream_frame(index, frame, index * 10**9 + i)
        worker.stream_event_image(index, frame)
    worker.submit(Window(index, index * 10**9, (index + 1) * 10**9, pixels, pixels), 0)


def test_a_window_that_shows_nothing_new_is_not_read_and_says_which_caption_holds():
    decoder, outcomes, worker = changing()
    for index, level in enumerate((100, 101, 99, 140, 141)):
        shown(worker, index, level)
        outcomes.wait(index + 1)
    worker.stop()
    captioned = [o.window.index for o in outcomes.all if o.caption is not None]
    held = [(o.window.index, o.holds.window.index) for o in outcomes.all if o.holds is not None]
    assert captioned == [0, 3] and held == [(1, 0), (2, 0), (4, 3)]
    assert [index for index, kind in decoder.streamed if kind == "frame"] == [0, 0, 3, 3]
    assert {index for index, _ in decoder.streamed} == {0, 3}


def test_a_window_without_a_caption_of_its_own_is_not_what_later_ones_are_compared_with():
    decoder, outcomes, worker = changing(fail=True)
    shown(worker, 0, 100)
    outcomes.wait(1)
    decoder.fail = False
    shown(worker, 1, 100)
    assert outcomes.wait(2)[1].caption is not None
    worker.stop()


def test_a_still_window_behind_one_that_is_skipped_is_captioned():
    started, released = threading.Event(), threading.Event()

    def gate(window, cancel):
        started.set()
        released.wait(WAIT_S)

    _, outcomes, worker = changing(gate=gate)
    shown(worker, 0, 100)
    assert started.wait(WAIT_S)
    for index, level in ((1, 101), (2, 200), (3, 200)):
        shown(worker, index, level)
    released.set()
    outcomes.wait(4)
    worker.stop()
    assert [(o.holds is not None, o.skipped, o.caption is not None) for o in outcomes.all[1:]] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]


def test_a_window_whose_inputs_cannot_be_judged_has_no_caption_that_could_hold(monkeypatch):
    _, outcomes, worker = changing()
    shown(worker, 0, 100)
    outcomes.wait(1)
    with monkeypatch.context() as patch:
        patch.setattr("crossspec_ros.captioning.worker.flags", lambda window: 1 / 0)
        shown(worker, 1, 200)
        assert outcomes.wait(2)[1].error is not None
    shown(worker, 2, 200)
    assert outcomes.wait(3)[2].caption is not None
    worker.stop()


def test_standing_questions_outlast_windows_that_show_nothing_new():
    released, answers = threading.Event(), Outcomes()

    def gate(asked, cancel):
        if asked == "busy?":
            assert released.wait(WAIT_S)

    decoder, outcomes = FakeDecoder(gate), Outcomes()
    worker = CaptionWorker(
        decoder,
        "",
        ignore,
        ignore,
        outcomes,
        standing=asked("who?", "where?"),
        on_standing=lambda standing, answer, window: answers((standing.question, window.index)),
        gate=ChangeGate(GateSettings("changed")),
    )
    worker.ask("busy?", ignore)
    shown(worker, 0, 100)
    outcomes.wait(1)
    shown(worker, 1, 100)
    released.set()
    assert answers.wait(2) == [("who?", 0), ("where?", 0)]
    worker.stop()
    assert worker.unanswered == 0 and outcomes.wait(2)[1].holds is not None


def test_where_only_questions_are_answered_they_are_about_the_newest_window():
    decoder, outcomes, answers = FakeDecoder(), Outcomes(), Outcomes()
    gate = ChangeGate(GateSettings("asked"))
    worker = CaptionWorker(decoder, "", ignore, ignore, outcomes, gate=gate)
    worker.ask("early?", lambda answer, index: answers((answer.text, index)))
    shown(worker, 0, 100)
    answers.wait(1)
    shown(worker, 1, 100)
    outcomes.wait(2)
    for question in ("what?", "and?"):
        worker.ask(question, lambda answer, index: answers((answer.text, index)))
    answers.wait(3)
    worker.stop()
    assert answers.all == [
        ("2 frames, 2 event images: early?", 0),
        ("2 frames, 2 event images: what?", 1),
        ("answer to and?", 1),
    ]
    assert [(o.unasked, o.caption) for o in outcomes.all] == [(True, None)] * 2
    assert decoder.streamed == []


def test_a_question_about_a_window_that_shows_nothing_has_no_answer_and_is_asked_again():
    outcomes, answers = Outcomes(), Outcomes()
    decoder, gate = FakeDecoder(), ChangeGate(GateSettings("asked"))
    worker = CaptionWorker(decoder, "", ignore, ignore, outcomes, gate=gate)
    shown(worker, 0, 0)
    outcomes.wait(1)
    for number in (1, 2):
        worker.ask("what?", answers)
        assert "rgb dark): ask again" in str(answers.wait(number)[-1])
    decoder.fail = True
    shown(worker, 1, 100)
    outcomes.wait(2)
    worker.ask("what?", answers)
    assert "out of memory" in str(answers.wait(3)[-1])
    decoder.fail = False
    worker.ask("what?", answers)
    assert answers.wait(4)[-1].text == "2 frames, 2 event images: what?"
    worker.stop()
