"""A child that reads: what becomes of it, of its limits, and of what it sends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import EVENT_PACKET
from crossspec_ros.events.sandbox import FACTOR, Limits, Sandbox, SandboxedRecording, words
from crossspec_ros.events.sandbox_frames import SandboxError

LIMITS = Limits(memory_bytes=256 << 20, processor_s=2, silence_s=20)
FILE = Path(__file__)


def outcome(job, *arguments, limits=LIMITS):
    """All that a job sends, and how it ends."""
    items = []
    with closing(Sandbox(f"sandbox_jobs:{job}", arguments, limits)) as child:
        try:
            items += child.items()
        except (SandboxError, InputError) as error:
            return items, f"{type(error).__name__}: {error}"
    return items, ""


@pytest.mark.parametrize(
    ("job", "ends"),
    [
        ("crash", "SandboxError: crashed (SIGSEGV)"),
        ("leave", "SandboxError: crashed (exit code 7)"),
        ("refuse", "InputError: it is bad: mend it"),
        ("fail", "SandboxError: failed (KeyError: 'what nobody foresaw')"),
        ("hoard", "SandboxError: wanted more than 268 MB of memory"),
        (
            "need",
            "InputError: the package 'nothing_such', which reads such a recording, is not installed: run "
            "make setup, or install crossspec_ros again",
        ),
        ("compute", "SandboxError: computed for more than 2 s"),
    ],
)
def test_each_end_is_told_apart(job, ends):
    assert outcome(job) == ([{"value": 1}], ends)


def test_silence_ends_a_child_and_work_does_not():
    limits = replace(LIMITS, silence_s=1)
    assert outcome("wait", limits=limits) == ([{"value": 1}], "SandboxError: gave no answer for 1 s")
    assert outcome("work_in_silence", 1.8, limits=limits) == ([{"value": 1}], "")


def test_a_slow_reader_is_no_silence():
    with closing(Sandbox("sandbox_jobs:messages", [40, 100_000], replace(LIMITS, silence_s=0.5))) as child:
        items = child.items()
        next(items)
        time.sleep(1.5)
        assert len(list(items)) == 39


def test_what_comes_out_is_counted():
    bounded = replace(LIMITS, output_bytes=1000, messages=100)
    assert outcome("messages", 100, limits=bounded)[1] == ""
    assert outcome("messages", 101, limits=bounded)[1] == "SandboxError: gave more than 100 messages"
    assert outcome("messages", 20, 51, limits=bounded)[1] == "SandboxError: gave more than 0 MB"


@pytest.mark.parametrize(
    ("job", "sent"),
    [
        ("babble", [9] + [0] * 15),
        ("babble", [1, 200] + [0] * 14),
        ("babble", [1, 0, 0, 0, 255, 255, 255, 255] + [0] * 8),
        ("speak", "no JSON"),
        ("speak", "[" * 100_000),
        ("speak", "[1]"),
    ],
)
def test_what_no_child_sends_is_refused(job, sent):
    items, ends = outcome(job, sent)
    assert not items and ends.startswith("FrameError: sent a ")


def test_what_a_library_quotes_reaches_no_terminal(capfd):
    assert outcome("shout") == ([{"value": 8}], "")
    # Other libraries of this process may tell of the fork.
    assert "\x1b" not in "".join(capfd.readouterr())


def test_what_modules_compute_while_they_are_imported_does_not_count(tmp_path, monkeypatch):
    code = "import time\nwhile time.process_time() < 2.5:\n    pass\n\ndef count():\n    yield {}\n"
    (tmp_path / "slow_module.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with closing(Sandbox("slow_module:count", [], replace(LIMITS, processor_s=1))) as child:
        assert list(child.items()) == [{}]


def test_stopped_it_ends_at_once():
    stop = threading.Event()
    with closing(Sandbox("sandbox_jobs:wait", [], LIMITS)) as child:
        items = child.items(stop)
        next(items)
        threading.Timer(0.2, stop.set).start()
        assert list(items) == []


def recording(*arguments, opener="open_one"):
    return SandboxedRecording(FILE, f"sandbox_jobs:{opener}", arguments)


def children():
    return psutil.Process().children()


def test_opening_and_the_first_pass_share_their_time(monkeypatch):
    # A second, and the kernel's step of another.
    monkeypatch.setenv(FACTOR, "0.1")
    with pytest.raises(InputError, match="computed for more than 1 s"):
        list(recording(1.1, opener="open_slow").messages())
    with closing(recording(0.4, opener="open_slow")) as quick:
        assert [len(list(quick.messages())) for _ in range(3)] == [1, 1, 1]


def test_a_recording_plays_as_often_as_it_is_asked_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before, descriptors = len(children()), len(os.listdir("/proc/self/fd"))
    with closing(recording(50)) as one, closing(recording(3)) as other:
        assert (one.format, one.event_type, one.image_topic, one.end_ns) == (
            "made up",
            EVENT_PACKET,
            None,
            50,
        )
        passes = [list(one.messages()) for _ in range(2)]
        assert passes[0] == passes[1] and len(passes[0]) == 50
        assert (one.remarks, one.losses) == (["a remark"], ["a loss"])
        # One that ends early gives its child up, which has more to send than a pipe holds.
        cut = one.messages()
        first = next(cut)
        both = one.messages(), other.messages()
        assert len(list(zip(*both, strict=False))) == 3
        for items in (cut, *both):
            items.close()
        assert [message.stamp_ns for message in one.messages()] == list(range(50))
        assert first == passes[0][0] and len(children()) == before + 2
    assert len(children()) == before
    del both, cut
    assert len(os.listdir("/proc/self/fd")) == descriptors and not list(tmp_path.iterdir())


def test_a_crash_behind_messages_is_a_loss():
    with closing(recording(5, 3)) as cut:
        for _ in range(2):
            assert len(list(cut.messages())) == 3
        (loss,) = set(cut.losses)
    assert loss.startswith(f"the reader of '{FILE}' crashed (SIGSEGV): check where it comes from, copy it")
    with closing(recording(5, 0)) as none, pytest.raises(InputError, match="crashed"):
        list(none.messages())


@pytest.mark.parametrize(
    ("name", "value"), [("format", 5), ("start_ns", 0.5), ("image_topic", []), ("event_type", None)]
)
def test_an_odd_description_is_refused(name, value):
    with pytest.raises(InputError, match=f"sent a word whose {name} is "):
        recording(name, value, opener="open_odd")


def test_limits_go_by_what_a_file_takes_on_the_disk_and_one_variable_raises_them(tmp_path, monkeypatch):
    sparse, full = tmp_path / "sparse", tmp_path / "full"
    with sparse.open("wb") as file:
        file.truncate(1 << 40)
    full.write_bytes(os.urandom(1 << 20))
    few, more = Limits.of_files(sparse), Limits.of_files(tmp_path)
    assert few.messages < more.messages and few.output_bytes < 3 << 30
    monkeypatch.setenv(FACTOR, "4")
    assert Limits.of_files(sparse).memory_bytes == 4 * few.memory_bytes
    monkeypatch.setenv(FACTOR, "none")
    with pytest.raises(InputError, match=f"{FACTOR} is 'none', and limits are multiplied by it: give"):
        Limits.of_files(sparse)


def test_closed_by_another_thread_a_pass_ends():
    with closing(recording(50)) as one:
        items = one.messages()
        next(items)
        one.close()
        assert len(list(items)) < 50


def test_a_child_outlives_the_thread_that_opened_but_not_the_process():
    opened = []
    thread = threading.Thread(target=lambda: opened.append(recording(3)))
    thread.start()
    thread.join()
    with closing(opened[0]) as one:
        time.sleep(0.2)
        assert len(list(one.messages())) == 3
    code = (
        "import sys; sys.path[:] = eval(sys.argv[1])\n"
        "from crossspec_ros.events.sandbox import Sandbox, Limits\n"
        "child = Sandbox('sandbox_jobs:own_pid', [], Limits(1 << 28, 9, 9))\n"
        "print(next(child.items())['value'], flush=True)\n"
        "import os; os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, repr(sys.path)], capture_output=True, text=True)
    end_s = time.monotonic() + 10
    while psutil.pid_exists(int(done.stdout)) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert not psutil.pid_exists(int(done.stdout))


def test_neither_the_script_of_its_user_nor_a_module_of_the_working_folder_is_run(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('the module of a stranger')")
    script = tmp_path / "script" / "use.py"
    script.parent.mkdir()
    script.write_text(
        "import sys; sys.path[:] = eval(sys.argv[1])\n"
        "print('run')\n"
        "from pathlib import Path\n"
        "from crossspec_ros.events.sandbox import words\n"
        "print(list(words(Path('.'), 'sandbox_jobs:shout', [])))\n"
    )
    done = subprocess.run(
        [sys.executable, script, repr(sys.path)], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout == "run\n[{'value': 8}]\n", done.stderr


def test_words_name_the_file():
    with pytest.raises(InputError, match=f"the reader of '{FILE}' crashed"):
        list(words(FILE, "sandbox_jobs:crash", []))
