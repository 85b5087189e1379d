"""A child process that reads: how it ends, its limits, and what a recording makes of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from refusals import refused

from crossspec_ros.errors import InputError
from crossspec_ros.recordings import reader_process
from crossspec_ros.recordings.options import ReadOptions
from crossspec_ros.recordings.reader_process import ChildRecording, ReaderDiedError, words
from crossspec_ros.recordings.recording import open_recording

FILE = Path(__file__)


def outcome(job):
    """All values that a job sends, and the error that ends it."""
    values = []
    try:
        for word in words("reader_jobs:end", FILE, ReadOptions(columns=job)):
            values.append(word["value"])
    except InputError as error:
        return values, type(error), str(error)
    return values, None, ""


@pytest.mark.parametrize(
    ("job", "kind", "word"),
    [
        ("crash", ReaderDiedError, "(SIGSEGV): copy the file again"),
        ("leave", ReaderDiedError, "exit code 7"),
        ("fail", ReaderDiedError, "KeyError"),
        ("hoard", ReaderDiedError, "its limit of memory: give a part of the recording"),
        ("compute", ReaderDiedError, "its limit of CPU time: give a part of the recording"),
        ("refuse", InputError, "mend it"),
        ("need", InputError, "no_such_package"),
    ],
)
def test_each_end_is_one_sentence(job, kind, word, monkeypatch):
    if job == "compute":
        monkeypatch.setattr(reader_process, "_limits", lambda *paths: (1 << 30, 3))
    values, found, sentence = outcome(job)
    assert (values, found) == ([1], kind) and word in sentence and "\n" not in sentence
    assert (f"'{FILE}'" in sentence) == (kind is ReaderDiedError)


def test_output_of_libraries_reaches_no_terminal(capfd):
    assert outcome("shout")[:2] == ([1], None)
    assert "\x1b" not in "".join(capfd.readouterr())


def test_limits_follow_the_bytes_on_the_disk(tmp_path):
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(1 << 40)
    before = reader_process._limits(sparse)
    (tmp_path / "full").write_bytes(os.urandom(1 << 20))
    assert before[0] < reader_process._limits(tmp_path)[0] < 3 << 30


def recording(count, crash_at=-1):
    return ChildRecording(FILE, ReadOptions(columns=f"{count},{crash_at}"), "reader_jobs:play")


def test_recording_plays_again_and_cleans_up(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before, descriptors = psutil.Process().children(), len(os.listdir("/proc/self/fd"))
    with closing(recording(50)) as one:
        assert (one.format, one.event_topic, one.image_topic, one.start_ns) == ("made up", "/events", None, 0)
        passes = [list(one.messages()) for _ in range(2)]
        assert passes[0] == passes[1] and len(passes[0]) == 50
        assert [message.stamp_ns for message in passes[0] if message.stray] == [1]
        assert (one.remarks, one.losses) == (["a remark"], ["a loss"])
        # A pass that ends early has more to send than a pipe holds.
        cut, other = one.messages(), one.messages()
        assert next(cut) == next(other) == passes[0][0]
        cut.close()
    assert len(list(other)) < 49
    del cut, other
    assert psutil.Process().children() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors and not list(tmp_path.iterdir())


def test_a_crash_after_messages_is_a_loss():
    with closing(recording(5, 3)) as cut:
        for _ in range(2):
            assert len(list(cut.messages())) == 3
        (loss,) = cut.losses
    assert "SIGSEGV" in loss
    with closing(recording(5, 0)) as none, pytest.raises(ReaderDiedError):
        list(none.messages())


def run_python(code, *options, **how):
    """Run code, which has `first_word` of a job, in a process with this one's modules."""
    head = (
        "import os, sys; sys.path[:] = eval(sys.argv[1])\n"
        "from pathlib import Path\n"
        "from crossspec_ros.recordings.reader_process import words\n"
        "job = words('reader_jobs:send_own_pid', Path('.'))\n"
        "first_word = next(job)['value']\n"
    )
    command = [sys.executable, *options, "-c", head + code, repr(sys.path)]
    return subprocess.run(command, capture_output=True, text=True, **how)


def test_reader_ends_with_its_parent():
    pid = int(run_python("print(first_word, flush=True); os.kill(os.getpid(), 9)").stdout)
    end_s = time.monotonic() + 20
    while psutil.pid_exists(pid) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)


def test_reader_imports_nothing_from_working_folder(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('a module of the recording')")
    done = run_python("print(first_word > 0)", "-P", cwd=tmp_path)
    assert done.stdout == "True\n", done.stderr


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.raw")
    with refused("recording-pipe"):
        open_recording(tmp_path / "x.raw")


def test_stricter_limits_of_the_user_hold(tmp_path):
    """Limits of `ulimit`, systemd or a batch system, which a process cannot raise."""
    (tmp_path / "x.raw").write_bytes(b"% evt 3.0\n% end\n\x01\x80\x01\x60\0\0\x05\x20")
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (900 << 20, 900 << 20))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (20, 20))\n"
        "from crossspec_ros.cli import main\n"
        "sys.exit(main(['info', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.raw")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr + done.stdout
