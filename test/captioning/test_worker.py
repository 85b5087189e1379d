"""Every window has one outcome, in order, however slow the models are; and the end never waits for them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest
from fakes import FakeDecoder
from refusals import refused

from crossspec_ros.captioning.standing import Standing
from crossspec_ros.captioning.worker import CaptionWorker
from crossspec_ros.errors import InputError
from crossspec_ros.windows.change import ChangeGate, GateSettings
from crossspec_ros.windows.window import Window

WAIT_S = 20.0
PIXELS = np.zeros((2, 2, 3), np.uint8)


def window(index, frames=1):
    steps = np.arange(frames, dtype=np.uint8)[:, None, None, None]
    pixels = np.full((frames, 2, 2, 3), 100, np.uint8) + steps
    return Window(index, index * 10**9, (index + 1) * 10**9, pixels, pixels)


class Heard:
    """What was told, in order; `wait` returns it once there is so much."""

    def __init__(self):
        self.all = []
        self._changed = threading.Condition()

    def __call__(self, told, index=None):
        with self._changed:
            self.all.append(told)
            self._changed.notify()

    def wait(self, number):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.all) >= number, WAIT_S)
        return self.all


class Gate:
    """Holds the decoder up at what it `holds`, until it is released or, where it `obeys`, cancelled."""

    def __init__(self, holds=lambda what: True, obeys=False):
        self._holds, self._obeys = holds, obeys
        self._begun, self._released = threading.Event(), threading.Event()

    def __call__(self, what, cancel):
        if self._holds(what):
            self._begun.set()
            assert (cancel if self._obeys else self._released).wait(WAIT_S)

    def reach(self):
        assert self._begun.wait(WAIT_S)

    def release(self):
        self._released.set()


class Stage:
    """A worker, its decoder and what it told."""

    def __init__(self, decoder=None, gate=None, when="", **options):
        self.decoder = decoder or FakeDecoder(gate)
        self.outcomes, self.answers, self.standing, self.words = Heard(), Heard(), Heard(), []
        told = {"on_draft": lambda *draft: None, "on_words": self.words.append}
        told |= {"on_outcome": self.outcomes, "on_standing": lambda *one: self.standing(one)}
        if when:
            told["gate"] = ChangeGate(GateSettings(when))
        self.worker = CaptionWorker(self.decoder, "what?", **(told | options))

    def close(self, *windows, ago_s=0.0):
        """Close windows, given as such or by their numbers."""
        for one in windows:
            closed_ns = time.perf_counter_ns() - int(ago_s * 1e9)
            self.worker.submit(one if isinstance(one, Window) else window(one), closed_ns)

    def caption(self, one, **how):
        """Close a window and return its outcome."""
        before = len(self.outcomes.all)
        self.close(one, **how)
        return self.outcomes.wait(before + 1)[before]

    def film(self, index, frames, slot=0):
        """Let frames come, the first of them in this slot of eight."""
        for i in range(slot, slot + frames):
            self.worker.stream_frame(index, PIXELS, index * 10**9 + i * 10**9 // 8)

    def show(self, index, level, frames=2):
        """Let a window of this brightness come image by image, and close it."""
        pixels = np.full((frames, 2, 2, 3), level, np.uint8)
        for i, frame in enumerate(pixels):
            self.worker.stream_frame(index, frame, index * 10**9 + i)
            self.worker.stream_event_image(index, frame)
        self.close(Window(index, index * 10**9, (index + 1) * 10**9, pixels, pixels))

    def ask(self, question):
        """Ask, and return the answer."""
        before = len(self.answers.all)
        self.worker.ask(question, self.answers)
        return self.answers.wait(before + 1)[before]


@pytest.fixture
def stage():
    """Make stages, whose workers end with the test."""
    stages = []

    def make(*given, **options):
        stages.append(Stage(*given, **options))
        return stages[-1]

    yield make
    for one in stages:
        one.worker.stop()


def test_the_newest_window_wins_and_the_skipped_ones_are_told_in_order(stage):
    gate = Gate()
    stage = stage(gate=gate)
    stage.close(0)
    gate.reach()
    stage.close(1, 2, 3)
    gate.release()
    outcomes = stage.outcomes.wait(4)
    assert [o.window.index for o in outcomes] == [0, 1, 2, 3]
    assert [o.skipped for o in outcomes] == [False, True, True, False]
    assert outcomes[3].caption.text == "1 frames, 1 event images: what?"
    assert stage.words == ["1 frames, 1 event images: what?"] * 2
    stages = outcomes[3].trace.stages
    assert stages["queue"] <= stages["total"] and stages["first_token"] <= stages["total"]


def test_when_captions_take_three_windows_each_begins_with_the_newest_and_none_is_forgotten(stage):
    """So the lag is one window and one inference at most."""
    submitted, begun = [], []

    def gate(seen, cancel):
        begun.append((seen.index, submitted[-1]))
        time.sleep(0.03)

    stage = stage(gate=gate)
    for index in range(60):
        submitted.append(index)
        stage.close(index)
        time.sleep(0.01)
    outcomes = stage.outcomes.wait(60)
    assert all(newest - index <= 1 for index, newest in begun) and len(begun) < 40
    assert [outcome.window.index for outcome in outcomes] == list(range(60))
    assert sum(outcome.skipped for outcome in outcomes) == 60 - len(begun)


class Panic(BaseException):
    """As libraries in Rust raise it."""


class Failing(FakeDecoder):
    """Raises its `error`, whatever it is to do."""

    error = None

    def check(self):
        if self.error:
            raise self.error

    def stream_frame(self, *args):
        self.check()

    def stream_event_image(self, *args):
        self.check()

    def ask(self, *args):
        self.check()
        return super().ask(*args)

    def caption(self, *args):
        self.check()
        return super().caption(*args)


@pytest.mark.parametrize("error", [RuntimeError("no memory"), Panic("no memory")])
def test_a_failure_is_an_outcome_and_the_next_window_is_captioned(stage, error):
    stage = stage(Failing())
    stage.decoder.error = error
    stage.worker.stream_event_image(0, PIXELS)
    stage.worker.stream_frame(0, PIXELS, 0)
    failed = stage.caption(0).error
    assert isinstance(failed, RuntimeError) and "no memory" in str(failed)
    assert "no memory" in str(stage.ask("who?"))
    stage.decoder.error = None
    assert stage.caption(1).caption is not None and not stage.worker.pulse.death


def test_frames_go_to_the_decoder_as_they_come_unless_their_window_was_captioned(stage):
    stage = stage()
    stage.film(3, 2)
    stage.caption(3)
    # Too late, early again because the clock has gone back, and the next window.
    for index in (3, 2, -20, 4):
        stage.film(index, 1)
    stage.worker.stop()
    assert stage.decoder.streamed == [(3, "frame"), (3, "frame"), (-20, "frame"), (4, "frame")]


def test_an_answer_begins_with_the_frame_of_the_last_slot(stage):
    class Decoder(FakeDecoder):
        passes = 3
        is_over = threading.Event()

        def advance(self, index, more):
            assert index == self.begun[-1]
            self.passes -= 1
            if not self.passes:
                self.is_over.set()
            return self.passes > 0

    stage = stage(decoder := Decoder())
    stage.film(0, 7)
    assert not decoder.is_over.wait(0.05) and decoder.begun == []
    stage.film(0, 1, slot=7)
    assert decoder.is_over.wait(WAIT_S) and decoder.begun == [0]
    # Also of a camera that leaves slots empty.
    stage.caption(window(0, 8))
    stage.film(1, 1, slot=2)
    stage.film(1, 1, slot=7)
    while decoder.begun != [0, 1]:
        time.sleep(0.01)
    stage.caption(window(1, 2))


def test_a_window_is_rehearsed_when_its_frames_are_read_and_nothing_else_is_to_be_done(stage):
    class Decoder(FakeDecoder):
        rehearsed, begun_at = [], threading.Event()

        def work_ahead(self, index, question, more, on_rehearsal):
            assert more()
            self.rehearsed.append((index, question))
            if index == 0:
                on_rehearsal("words")
                return
            self.begun_at.set()
            while more():
                time.sleep(0.001)

    drafts = Heard()
    stage = stage(decoder := Decoder(), on_draft=lambda *draft: drafts(draft))
    stage.film(0, 4)
    assert drafts.wait(1)[0] == (0, "words", "rehearsal")
    stage.caption(0)
    stage.film(1, 4)
    assert decoder.begun_at.wait(WAIT_S)
    # A window that has closed ends it.
    assert stage.caption(1).caption is not None
    assert decoder.rehearsed[-1] == (1, "what?")


def test_where_captions_are_behind_the_quicker_arm_is_taken_and_nothing_is_drafted(stage):
    arms = []

    class Decoder(FakeDecoder):
        def caption(self, *args):
            arms.append(self.speculates)
            time.sleep(0.05 if self.speculates else 0.01)
            return super().caption(*args)

    stage = stage(Decoder())
    stage.caption(0)
    # Each caption finds the next window closed.
    for index in range(1, 8):
        stage.close(index)
        while len(arms) < index:
            time.sleep(0.001)
    assert stage.outcomes.wait(8) and arms[0]
    assert sum(arms[1:]) <= 3 and not all(arms)
    stage.caption(10)
    stage.caption(11)
    # It has caught up.
    assert arms[-1]


def test_work_ahead_goes_on_piece_by_piece_until_there_is_other_work(stage):
    class Decoder(FakeDecoder):
        asked, pieces, before, done = 0, 5, None, threading.Event()

        def work_ahead(self, index, question, more, on_rehearsal):
            self.asked += 1
            if self.asked == 3:
                stage.close(0)
            if self.asked >= self.pieces:
                self.done.set()
            return self.asked < self.pieces

        def caption(self, *args):
            self.before = self.asked
            return super().caption(*args)

    stage = stage(decoder := Decoder())
    stage.worker.stream_frame(1, PIXELS, 0)
    stage.outcomes.wait(1)
    assert decoder.done.wait(WAIT_S)
    stage.worker.stop(WAIT_S)
    assert decoder.before == 3 and decoder.asked == 5


def test_a_closed_window_goes_before_the_passes_of_one_that_is_open(stage):
    class Decoder(FakeDecoder):
        def advance(self, index, more):
            time.sleep(0.001)
            return True  # it never ends by itself

    stage = stage(Decoder())
    stage.caption(0)
    stage.film(1, 1, slot=7)
    assert stage.caption(1).caption is not None
    stage.worker.stop(WAIT_S)
    assert stage.worker.is_over()


def test_what_cannot_be_read_or_begun_early_is_logged_and_costs_nothing(stage, caplog):
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

    stage = stage(Decoder())
    stage.film(0, 2)
    assert stage.caption(window(0, 2)).caption is not None
    stage.film(1, 2)
    stage.film(1, 1, slot=7)
    while not stage.decoder.begun:
        time.sleep(0.01)
    assert stage.caption(window(1, 2)).caption is not None
    assert all(reason in caplog.text for reason in ("out of memory", "no place", "no session"))


def test_an_outcome_that_cannot_be_told_does_not_end_the_captions(stage, caplog):
    heard = Heard()

    def tell(outcome):
        heard(outcome)
        if outcome.window.index == 0:
            raise RuntimeError("no publisher")

    stage = stage(on_outcome=tell)
    for index in (0, 1):
        stage.close(index)
        heard.wait(index + 1)
    assert "no publisher" in caplog.text


def test_the_deadline_and_the_question_hold_from_the_next_window_on(stage):
    stage = stage()
    stage.caption(0, ago_s=1)
    stage.worker.question, stage.worker.deadline_s = "where?", 0.5
    stage.caption(1, ago_s=1)
    stage.caption(2, ago_s=-1)
    told = [(o.caption.text.split(": ")[1], o.caption.late) for o in stage.outcomes.all]
    assert told == [("what?", False), ("where?", True), ("where?", False)]


def test_stopping_cancels_the_window_in_work_and_nothing_of_it_is_told(stage):
    gate = Gate(obeys=True)
    stage = stage(gate=gate)
    stage.close(3)
    gate.reach()
    stage.close(4)
    stage.worker.ask("why?", stage.answers)
    left = stage.worker.stop(WAIT_S)
    for _ in range(4):
        stage.worker.stream_event_image(5, PIXELS)
    assert stage.decoder.cancelled == [True] and not stage.outcomes.all and not stage.words
    assert [(one.index, one.frames.size) for one in left] == [(3, 0), (4, 0)]
    assert "deactivated" in str(stage.answers.all[0])


def test_a_window_whose_telling_outlasts_the_end_is_left_to_be_told_otherwise(stage):
    telling = Gate()

    def tell(outcome):
        telling(outcome, None)
        raise KeyError("report")

    stage = stage(on_outcome=tell)
    stage.close(0)
    telling.reach()
    left = stage.worker.stop(0.05)
    telling.release()
    assert stage.worker.is_over(WAIT_S)
    assert [one.index for one in left] == [0]


def test_a_window_that_closes_twice_has_two_outcomes(stage):
    """As after a step back of the clock."""
    first, second = Gate(lambda seen: len(seen.frames) == 1), Gate(lambda seen: len(seen.frames) == 2)
    stage = stage(gate=lambda *given: (first(*given), second(*given)))
    stage.close(5)
    first.reach()
    stage.close(window(5, frames=2))
    first.release()
    second.reach()
    assert len(stage.outcomes.all) == 1 and [left.index for left in stage.worker.stop(0.1)] == [5]
    second.release()


def test_questions_wait_for_a_window_and_are_answered_in_order_when_no_window_waits(stage):
    gate = Gate()
    stage = stage(gate=gate)
    stage.worker.ask("early?", stage.answers)
    stage.close(0)
    gate.reach()
    stage.worker.ask("late?", stage.answers)
    stage.close(1)
    assert stage.answers.all == []
    gate.release()
    answers = stage.answers.wait(2)
    # Both windows came before the first answer.
    assert len(stage.outcomes.all) == 2
    assert [answer.text for answer in answers] == ["answer to early?", "answer to late?"]


def test_questions_that_are_too_many_or_too_long_are_refused(stage):
    stage = stage()
    for i in range(16):
        stage.worker.ask(f"{i}?", stage.answers)
    for question in ("one more?", 10_000_000 * "?"):
        with pytest.raises(InputError):
            stage.worker.ask(question, stage.answers)
    stage.close(0)
    assert len(stage.answers.wait(16)) == 16
    assert stage.worker.stop() == []


def test_a_question_whose_pass_outlasts_the_end_is_answered_once_and_in_order(stage):
    gate, asked = Gate(lambda what: isinstance(what, str)), Heard()
    stage = stage(gate=gate)
    stage.caption(3)
    for question in ("first?", "second?"):
        stage.worker.ask(question, lambda answer, index, question=question: asked((question, answer)))
    gate.reach()
    stage.worker.stop(timeout_s=0.05)
    assert [question for question, _ in asked.all] == ["first?", "second?"]
    assert all("deactivated" in str(answer) for _, answer in asked.all)
    with refused("captioner-deactivated"):
        stage.worker.ask("third?", asked)
    gate.release()
    assert stage.worker.is_over(WAIT_S) and len(asked.all) == 2


@pytest.mark.parametrize("kind", [Window, str], ids=["a caption", "an answer"])
def test_what_is_long_in_work_but_gets_on_is_not_stuck(stage, kind):
    beats = []

    def gate(what, cancel):
        if isinstance(what, kind):
            for _ in range(3):
                before = stage.worker.pulse.beats
                assert not cancel.is_set()
                beats.append(stage.worker.pulse.beats > before)

    stage = stage(gate=gate)
    told = stage.caption(0)
    # Telling it may take as long.
    before = stage.worker.pulse.beats
    assert not told.cancel.is_set() and stage.worker.pulse.beats > before
    stage.ask("why?")
    # What the event draft says in its own thread is no step of this one.
    before = stage.worker.pulse.beats
    for _ in range(4):
        stage.worker.stream_event_image(1, PIXELS)
    assert stage.worker.pulse.beats == before
    assert beats == [True] * 3


def asked(*questions, first=()):
    standing = [Standing(question, ("yes", "no"), question in first) for question in (*questions, *first)]
    return FakeDecoder().standing(standing)


def test_what_is_asked_first_is_told_before_the_caption_of_each_window(stage):
    told = Heard()
    stage = stage(
        standing=asked("later?", first=("now?",)),
        on_outcome=lambda outcome: told(outcome.window.index),
        on_standing=lambda standing, answer, about: told((standing.question, about.index)),
    )
    for index in range(2):
        stage.close(index)
        told.wait(3 * (index + 1))
    assert told.all == [("now?", 0), 0, ("later?", 0), ("now?", 1), 1, ("later?", 1)]
    assert stage.worker.turns.unanswered == 0


def test_standing_questions_are_answered_after_each_caption_and_dropped_when_the_next_window_closes(stage):
    frame = Future()

    class Decoder(FakeDecoder):
        def stream_frame(self, index, pixels, stamp_ns, is_last=False):
            return frame

    stage = stage(Decoder(), standing=asked("who?", "where?"))
    # Frames that wait go before them.
    stage.film(1, 1)
    stage.caption(0)
    time.sleep(0.05)
    assert not stage.standing.all
    stage.caption(1)
    frame.set_result(None)
    told = [(standing.question, about.index) for standing, _, about in stage.standing.wait(2)]
    assert told == [("who?", 1), ("where?", 1)] and stage.worker.turns.unanswered == 2


def test_a_standing_question_that_fails_is_told_and_the_next_window_is_asked_again(stage):
    class Decoder(FakeDecoder):
        failures = 1

        def choose(self, choices, trace):
            if self.failures:
                self.failures -= 1
                raise RuntimeError("out of memory")
            return super().choose(choices, trace)

    stage = stage(Decoder(), standing=asked("bad?", "who?"))
    # About a window without frames nothing is asked.
    stage.close(window(0, 0), 1)
    stage.standing.wait(2)
    stage.close(2)
    told = stage.standing.wait(4)
    assert [(standing.question, about.index) for standing, _, about in told] == [
        *(("bad?", 1), ("who?", 1)),
        *(("bad?", 2), ("who?", 2)),
    ]
    assert str(told[0][1]) == "out of memory" and stage.worker.turns.unanswered == 2


def test_a_window_that_shows_nothing_new_is_not_read_and_says_which_caption_holds(stage):
    stage = stage(when="changed")
    for index, level in enumerate((100, 101, 99, 140, 141)):
        stage.show(index, level)
        stage.outcomes.wait(index + 1)
    captioned = [o.window.index for o in stage.outcomes.all if o.caption is not None]
    held = [(o.window.index, o.holds.window.index) for o in stage.outcomes.all if o.holds is not None]
    assert captioned == [0, 3] and held == [(1, 0), (2, 0), (4, 3)]
    assert [index for index, kind in stage.decoder.streamed if kind == "frame"] == [0, 0, 3, 3]
    assert {index for index, _ in stage.decoder.streamed} == {0, 3}


def test_a_window_without_a_caption_of_its_own_is_not_what_later_ones_are_compared_with(stage, monkeypatch):
    stage = stage(when="changed")
    stage.decoder.fail = True
    stage.show(0, 100)
    stage.outcomes.wait(1)
    stage.decoder.fail = False
    stage.show(1, 100)
    assert stage.outcomes.wait(2)[1].caption is not None
    with monkeypatch.context() as patch:
        patch.setattr("crossspec_ros.captioning.worker.flags", lambda window: 1 / 0)
        stage.show(2, 200)
        assert stage.outcomes.wait(3)[2].error is not None
    stage.show(3, 200)
    assert stage.outcomes.wait(4)[3].caption is not None


def test_a_still_window_behind_one_that_is_skipped_is_captioned(stage):
    gate = Gate()
    stage = stage(gate=gate, when="changed")
    stage.show(0, 100)
    gate.reach()
    for index, level in ((1, 101), (2, 200), (3, 200)):
        stage.show(index, level)
    gate.release()
    assert [(o.holds is not None, o.skipped, o.caption is not None) for o in stage.outcomes.wait(4)[1:]] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]


def test_standing_questions_outlast_windows_that_show_nothing_new(stage):
    gate = Gate(lambda what: what == "busy?")
    stage = stage(gate=gate, when="changed", standing=asked("who?", "where?"))
    stage.worker.ask("busy?", stage.answers)
    stage.show(0, 100)
    stage.outcomes.wait(1)
    stage.show(1, 100)
    gate.release()
    told = [(standing.question, about.index) for standing, _, about in stage.standing.wait(2)]
    assert told == [("who?", 0), ("where?", 0)]
    assert stage.worker.turns.unanswered == 0 and stage.outcomes.wait(2)[1].holds is not None


def test_where_only_questions_are_answered_they_are_about_the_newest_window(stage):
    stage, answers = stage(when="asked"), Heard()

    def ask(question):
        stage.worker.ask(question, lambda answer, index: answers((answer.text, index)))

    ask("early?")
    stage.show(0, 100)
    answers.wait(1)
    stage.show(1, 100)
    stage.outcomes.wait(2)
    for question in ("what?", "and?"):
        ask(question)
    assert answers.wait(3) == [
        ("2 frames, 2 event images: early?", 0),
        ("2 frames, 2 event images: what?", 1),
        ("answer to and?", 1),
    ]
    assert [(o.unasked, o.caption) for o in stage.outcomes.all] == [(True, None)] * 2
    assert stage.decoder.streamed == []


def test_a_question_about_a_window_that_shows_nothing_has_no_answer_and_is_asked_again(stage):
    stage = stage(when="asked")
    stage.show(0, 0)
    stage.outcomes.wait(1)
    for _ in range(2):
        assert "rgb dark" in str(stage.ask("what?"))
    stage.decoder.fail = True
    stage.show(1, 100)
    stage.outcomes.wait(2)
    assert "out of memory" in str(stage.ask("what?"))
    stage.decoder.fail = False
    assert stage.ask("what?").text == "2 frames, 2 event images: what?"
