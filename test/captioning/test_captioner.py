"""Every window has one outcome, in order, even with slow models, and `stop` does not wait for the models."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

import pytest
from captioner_stage import OPTIONS, Stage, window
from fakes import FakeDecoder

from crossspec_ros.captioning.caption import Listener, Options
from crossspec_ros.captioning.captioner import AT_ONCE, BEHIND, Captioner
from crossspec_ros.windows.grid import WindowGrid

WAIT_S = 20.0


def test_newest_window_wins_and_others_are_skipped():
    begun = []

    def gate(seen, cancel):
        if seen.index < 6:
            stage.close(seen.index + 1, seen.index + 2, seen.index + 3)
        begun.append(seen.index)

    stage = Stage(FakeDecoder(gate))
    last = stage.caption(0)
    assert begun == [0, 3, 6] and [o.window.index for o in stage.outcomes] == list(range(7))
    assert [o.window.index for o in stage.outcomes if not o.skipped] == begun
    assert last.caption.text == "1 frames, 1 event images: what?"
    assert stage.partials == [last.caption.text] * 3
    stages = last.trace.stages
    assert stages["queue"] <= stages["total"] and stages["first_token"] <= stages["total"]


def test_empty_windows_of_a_gap_skip_none():
    """Field case 27: the first message after a gap closes all windows of the gap."""
    stage = Stage()
    stage.close(0, window(1, 0), window(2, 0))
    stage.run()
    assert [(o.window.index, o.skipped) for o in stage.outcomes] == [(0, ""), (1, ""), (2, "")]
    assert len(stage.outcomes[0].caption.text) and all(o.caption is not None for o in stage.outcomes)


def test_windows_closed_together_are_not_behind():
    stage = Stage()
    stage.close(0, 1, ago_s=2.1)
    stage.close(2, ago_s=1.1)
    stage.close(3)
    stage.run()
    assert [o.skipped for o in stage.outcomes] == [AT_ONCE, BEHIND, BEHIND, ""]


class Panic(BaseException):
    """Stands for a panic of a Rust library."""


@pytest.mark.parametrize("error", [RuntimeError("no memory"), Panic("no memory")])
def test_captioner_continues_after_a_failed_window(error, monkeypatch):
    def fail(self):
        raise error

    stage = Stage()
    with monkeypatch.context() as broken:
        broken.setattr(FakeDecoder, "check", fail)
        stage.film(0, 1, images=1)
        failed = stage.caption(0).error
        assert isinstance(failed, RuntimeError) and "no memory" in str(failed)
        assert "no memory" in str(stage.answer("who?"))
    assert stage.caption(1).caption is not None


def test_frames_of_captioned_windows_are_not_read():
    stage = Stage()
    stage.film(3, 2)
    stage.caption(3)
    # Two late frames, a frame after a step back of the clock, and one of the next window.
    for index in (3, 2, -20, 4):
        stage.film(index, 1)
    assert stage.decoder.streamed == [(3, "frame"), (3, "frame"), (-20, "frame"), (4, "frame")]


def test_grid_decides_when_an_answer_begins():
    stage, alone = Stage(grid=WindowGrid()), Stage()
    for one in (stage, alone):
        one.film(0, 7)
        assert one.decoder.begun == []
        one.film(0, 1, slot=7)
    # A camera may leave slots empty.
    stage.film(1, 1, slot=2)
    stage.film(1, 1, slot=7)
    assert (stage.decoder.begun, alone.decoder.begun) == ([0, 1], [])
    assert (stage.decoder.rehearsed, alone.decoder.rehearsed) == (OPTIONS, None)
    stage.decoder.on_rehearsal(0, "words")
    stage.captioner.stop()
    stage.decoder.on_rehearsal(0, "too late")
    assert stage.drafts == [(0, "words", "rehearsal")]


def test_slow_captioner_uses_the_faster_arm():
    arms = []

    class Decoder(FakeDecoder):
        def caption(self, window, *how):
            arms.append(how[-1])
            time.sleep(0.05 if arms[-1] else 0.01)
            # The next window closes during each caption.
            if window.index < 8:
                stage.close(window.index + 1)
            return super().caption(window, *how)

    stage = Stage(Decoder(), grid=WindowGrid())
    stage.close(0)
    stage.captioner.step()
    for index in range(1, 9):
        stage.film(index, 8, images=4)
        stage.captioner.step()
    assert arms[0] and sum(arms[1:]) <= 4 and not all(arms)
    assert not stage.decoder.begun and not stage.drafts and len(stage.decoder.streamed) == 64
    # The captioner has caught up.
    stage.caption(10)
    stage.film(11, 8, images=4)
    stage.caption(11)
    assert arms[-1] and stage.decoder.begun == [11] and stage.drafts == [(11, "draft", "event_draft")]


def test_failures_before_the_close_cost_no_caption(caplog):
    class Decoder(FakeDecoder):
        def stream_frame(self, index, frame, stamp_ns, *how):
            if stamp_ns % 10**9 == 0:
                raise RuntimeError("out of memory")
            read = Future()
            read.set_exception(RuntimeError("no place"))
            return read

        def begin(self, index, options):
            raise RuntimeError("no engine")

    stage = Stage(Decoder(), grid=WindowGrid())
    stage.film(0, 8)
    assert stage.caption(window(0, 8)).caption is not None
    assert all(reason in caplog.text for reason in ("out of memory", "no place", "no engine"))


def test_failing_listener_ends_no_captions(caplog):
    """`stop` returns the window whose publication fails meanwhile."""
    published, left = [], []

    def fail(outcome):
        published.append(outcome.window.index)
        if len(published) == 2:
            left.extend(stage.captioner.stop())
        raise RuntimeError("no publisher")

    stage = Stage()
    stage.outcome = fail
    for index in (0, 1):
        stage.close(index)
        stage.run()
    assert published == [0, 1] and "no publisher" in caplog.text and [one.index for one in left] == [1]


def test_deadline_and_question_apply_to_the_next_window():
    stage = Stage()
    stage.caption(0, ago_s=1)
    stage.captioner.options, stage.captioner.deadline_s = Options("where?"), 0.5
    stage.caption(1, ago_s=1)
    stage.caption(2, ago_s=-WAIT_S)
    found = [(o.caption.text.split(": ")[1], o.caption.late) for o in stage.outcomes]
    assert found == [("what?", False), ("where?", True), ("where?", False)]


def test_stop_cancels_the_window_in_work():
    left = []

    def gate(seen, cancel):
        stage.close(4)
        stage.ask("why?")
        left.extend(stage.captioner.stop())

    stage = Stage(FakeDecoder(gate))
    stage.close(3)
    stage.captioner.step()
    stage.film(5, 0, images=4)
    assert (
        stage.decoder.cancelled == [True] and not stage.outcomes and not stage.partials and not stage.drafts
    )
    assert [(one.index, one.frames.size) for one in left] == [(3, 0), (4, 0)]
    assert "deactivated" in str(stage.answers[0][1])


def test_window_that_closes_twice_has_two_outcomes():
    """A step back of the clock closes a window twice."""
    stage = Stage(FakeDecoder(lambda seen, cancel: stage.captioner.stop() if len(seen.frames) == 2 else None))
    stage.caption(5)
    stage.caption(window(5, frames=2))
    assert len(stage.outcomes) == 1 and [one.index for one in stage.captioner.stop()] == [5]


def test_unchanged_window_names_the_caption_that_holds():
    stage = Stage(when="changed")
    for index, level in enumerate((100, 101, 99, 140, 141)):
        stage.show(index, level)
    captioned = [o.window.index for o in stage.outcomes if o.caption is not None]
    held = [(o.window.index, o.holds.window.index) for o in stage.outcomes if o.holds is not None]
    assert captioned == [0, 3] and held == [(1, 0), (2, 0), (4, 3)]
    assert [index for index, kind in stage.decoder.streamed if kind == "frame"] == [0, 0, 3, 3]
    assert {index for index, _ in stage.decoder.streamed} == {0, 3}


def test_failed_window_holds_for_no_later_one(monkeypatch):
    stage = Stage(when="changed")
    stage.decoder.fail = True
    assert stage.show(0, 100).error is not None
    stage.decoder.fail = False
    assert stage.show(1, 100).caption is not None
    with monkeypatch.context() as patch:
        patch.setattr("crossspec_ros.captioning.captioner.flags", lambda window: 1 / 0)
        assert stage.show(2, 200).error is not None
    assert stage.show(3, 200).caption is not None


def test_still_window_behind_a_skipped_one_is_captioned():
    def gate(seen, cancel):
        if seen.index == 0:
            for index, level in ((1, 101), (2, 200), (3, 200)):
                stage.bring(index, level)

    stage = Stage(FakeDecoder(gate), when="changed")
    stage.show(0, 100)
    _, still, skipped, last = stage.outcomes
    assert still.holds is not None and skipped.skipped and last.caption is not None


class Hold:
    """Blocks the decoder until `released`, or until cancelled if it `obeys`."""

    def __init__(self, obeys=False):
        self._obeys, self.begun, self.released = obeys, threading.Event(), threading.Event()

    def __call__(self, what, cancel):
        self.begun.set()
        end_s = time.monotonic() + WAIT_S
        while not (cancel.is_set() if self._obeys else self.released.is_set()):
            assert time.monotonic() < end_s
            time.sleep(0.001)


@pytest.mark.parametrize("obeys", [True, False])
def test_thread_reports_whether_it_ended_in_time(obeys):
    hold = Hold(obeys)
    decoder = FakeDecoder(hold)
    captioner = Captioner(decoder, OPTIONS, Listener())
    captioner.start()
    captioner.close(window(0), 0)
    assert hold.begun.wait(WAIT_S) and captioner.pulse.is_busy
    assert [one.index for one in captioner.stop(WAIT_S if obeys else 0.05)] == [0]
    assert captioner.is_over() == decoder.gave_up == obeys
    hold.released.set()
    assert captioner.is_over(WAIT_S) and decoder.gave_up and not captioner.pulse.death
