"""The watchdog finds dead and stuck threads."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

import pytest
from killing import WAIT_S, kill

from crossspec_ros.captioning.caption import Listener, Options
from crossspec_ros.captioning.captioner import Captioner
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.memory_file import MemoryFile
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposers.memory import CaptionMemory
from crossspec_ros.telemetry.pulse import PATIENCE_S, Pulse, ThreadWatch, waited


def test_busy_thread_without_a_step_is_stuck():
    pulse = Pulse("work")
    watch = ThreadWatch(lambda: [pulse])

    def looks(number):
        for _ in range(number):
            watch.look()
        return watch.fault, watch.values["work"]

    assert looks(2 * PATIENCE_S) == ("", "waiting")
    with pulse.busy():
        assert looks(PATIENCE_S) == ("", "busy")
        pulse.beat()
        assert looks(PATIENCE_S) == ("", "busy")
        fault, state = looks(1)
        assert state == "stuck" and fault == f"the thread of the work has been stuck for {PATIENCE_S} s"
        # A thread may recover.
        pulse.beat()
        assert looks(1) == ("", "busy")


def test_thread_that_waits_for_another_is_not_stuck(monkeypatch):
    monkeypatch.setattr("crossspec_ros.telemetry.pulse._BEAT_S", 0.01)
    work = Future()
    pulse = Pulse("work")
    thread = pulse.start(lambda: waited(work) and None, "work")
    pulse.silent_s = 9
    end_s = time.monotonic() + WAIT_S
    while pulse.silent_s and time.monotonic() < end_s:
        time.sleep(0.01)
    assert not pulse.silent_s
    work.set_result(7)
    thread.join(WAIT_S)
    # A thread without a pulse may wait as well.
    assert not thread.is_alive() and waited(work) == 7


def test_intended_end_is_no_death():
    go = threading.Event()
    pulse = Pulse("work")
    thread = pulse.start(lambda: bool(go.wait()), "work")
    assert pulse.death == ""
    pulse.end()
    go.set()
    thread.join(WAIT_S)
    assert pulse.death == ""


@pytest.fixture
def decoder(pair, tmp_path):
    decoder = PrefillHiddenDecoder(pair, Policy((), None))
    decoder.memory_file = MemoryFile(CaptionMemory(), tmp_path / "memory.json", "words", 9)
    yield decoder
    decoder.close()


@pytest.mark.parametrize("name", ["target", "draft", "memory", "captioner"])
def test_killed_thread_of_a_captioner_is_a_fault(decoder, name, monkeypatch):
    captions = Captioner(decoder, Options("?"), Listener())
    captions.start()
    assert decoder._drafts is not None and decoder.memory_file is not None
    decoder._drafts.submit(lambda: None).result(WAIT_S)
    watch = ThreadWatch(lambda: [captions.pulse, *decoder.pulses])
    assert watch.look() == "" and len(watch.values) == 4
    wakes = {
        "target": lambda: notify(decoder.engine._changed),
        "draft": lambda: decoder._drafts.submit(lambda: None),
        "memory": lambda: decoder.memory_file._closing.set(),
        "captioner": lambda: notify(captions.changed),
    }
    # Earlier tests may have left such threads. The newest one is the last.
    *_, thread = [each for each in threading.enumerate() if each.name.startswith(name)]
    kill(thread, wakes[name])
    assert "has ended" in watch.look() and list(watch.values.values()).count("dead") == 1
    captions.stop()


def test_threads_with_equal_names_hide_no_fault():
    dead, alive = Pulse("captions"), Pulse("captions")
    dead.start(lambda: None, "captioner").join()
    assert ThreadWatch(lambda: [dead, alive]).look().startswith("the thread of the captions has ended")


def test_thread_error_is_logged_as_plain_text(caplog, capfd):
    def work():
        raise BaseException("gone \x1b[31m")

    pulse = Pulse("captions")
    pulse.start(work, "captioner").join()
    assert "the thread 'captions' has ended" in caplog.text and "gone \\x1b[31m" in caplog.text
    assert "\x1b" not in caplog.text + capfd.readouterr().err


def notify(changed):
    with changed:
        changed.notify_all()
