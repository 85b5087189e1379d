"""Every window has one outcome, in order, however slow the models are; and the end never waits for them."""

from __future__ import annotations

import threading
import time

import numpy as np
from fakes import FakeDecoder

from crossspec_ros.nodes.caption_worker import CaptionWorker, warm_up
from crossspec_ros.windows.window import Window

WAIT_S = 20.0


def window(index, frames=1):
    pixels = np.zeros((frames, 2, 2, 3), np.uint8)
    return Window(index, index * 10**9, (index + 1) * 10**9, pixels, pixels)


class Outcomes:
    def __init__(self):
        self.all = []
        self._changed = threading.Condition()

    def __call__(self, outcome):
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

    outcomes, drafts = Outcomes(), []
    worker = CaptionWorker(FakeDecoder(gate), "what?", lambda w, text: drafts.append(w.index), outcomes)
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
    assert drafts == [0, 3]
    stages = outcomes.all[3].trace.stages
    assert stages["queue"] <= stages["total"] and stages["first_token"] <= stages["total"]


def test_a_failure_is_an_outcome_and_the_next_window_is_captioned():
    decoder, outcomes = FakeDecoder(fail=True), Outcomes()
    worker = CaptionWorker(decoder, "", lambda *_: None, outcomes)
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

    decoder, outcomes, drafts = FakeDecoder(gate), Outcomes(), []
    worker = CaptionWorker(decoder, "", lambda *_: drafts.append(1), outcomes)
    worker.submit(window(0), 0)
    assert started.wait(WAIT_S)
    worker.submit(window(1), 0)
    worker.stop(WAIT_S)
    assert decoder.cancelled == [True] and outcomes.all == [] and drafts == []


def test_warming_up_shows_the_decoder_a_window_of_the_right_shapes():
    seen = []
    warm_up(
        FakeDecoder(lambda w, cancel: seen.append(w)),
        frames=3,
        frame_size=8,
        event_images=2,
        event_image_size=6,
    )
    assert seen[0].frames.shape == (3, 8, 8, 3) and seen[0].event_images.shape == (2, 6, 6, 3)
