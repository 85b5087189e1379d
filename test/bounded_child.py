"""Reads hostile files, each in a process of its own that has all modules, and tells time, memory and words.

Run as `python bounded_child.py FILE`, whose lines are JSON: [name, how to read, path]. Forked processes cost
no imports; one that is out of bounds is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

MOST_MB, MOST_S, PATIENCE_S = 500, 40, 200
"""Seconds of the CPU count, because the machine may be busy; half are a sandbox's own limit."""


def survey(path):
    from crossspec_ros.recordings.info import survey

    report = survey(path)
    return [*report["findings"], f"{report['messages']} messages"]


def play(path):
    from crossspec_ros.recordings.recording import open_recording

    with closing(open_recording(path)) as recording:
        count = sum(1 for _ in recording.messages())
        return [*recording.losses, *recording.remarks, f"{count} messages"]


def align(path):
    return converted(path, True)


def shrink(path):
    return converted(path, False)


def converted(path, is_aligned):
    from crossspec_ros.recordings.convert import convert

    with TemporaryDirectory() as folder:
        convert(path, Path(folder) / "bag", is_aligned)
    return ["converted"]


def stream(path):
    """What a dv server at a port of this host says."""
    from crossspec_ros.events.dv_stream import DvStream

    return [f"{sum(1 for _ in DvStream(f'tcp://127.0.0.1:{path.name}').messages())} messages"]


def configure(path):
    from crossspec_ros.captioning.config import read_config

    return [str(read_config(path))]


WAYS = {way.__name__: way for way in (survey, play, align, shrink, stream, configure)}


def read(way, path, pipe):
    from crossspec_ros.errors import InputError

    try:
        told = ["read", *WAYS[way](Path(path))]
    except InputError as error:
        told = ["refused", str(error)]
    except BaseException as error:
        told = ["RAISED", f"{type(error).__name__}: {error}"[:2000]]
    os.write(pipe, json.dumps(told).encode()[:60_000])


def resident(process):
    """MB of a process and all that it started."""
    total = 0
    for each in [process, *process.children(recursive=True)]:
        with suppress(psutil.Error):
            memory = each.memory_info()
            # Pages of mapped files are not its own.
            total += (memory.rss - memory.shared) / 1e6
    return total


def busy_s(process):
    with suppress(psutil.Error):
        return sum(process.cpu_times())
    return 0


def bounded(way, path):
    """[outcome, sentences...], seconds of the CPU, and megabytes above idle."""
    receiver, sender = os.pipe()
    began_s = time.monotonic()
    child = os.fork()
    if not child:
        read(way, path, sender)
        os._exit(0)
    os.close(sender)
    process, peak_mb, killed = psutil.Process(child), 0.0, ""
    idle_mb = resident(process)
    while True:
        done, _, usage = os.wait4(child, os.WNOHANG)
        if done:
            break
        peak_mb = max(peak_mb, resident(process))
        if peak_mb > idle_mb + MOST_MB or time.monotonic() - began_s > PATIENCE_S or busy_s(process) > MOST_S:
            killed = "killed"
            for each in [*process.children(recursive=True), process]:
                each.send_signal(signal.SIGKILL)
        time.sleep(0.02)
    peak_mb = max(peak_mb, usage.ru_maxrss / 1024)
    with os.fdopen(receiver, "rb") as pipe:
        told = json.loads(pipe.read() or "[]") or [killed or "crashed"]
    return told, usage.ru_utime + usage.ru_stime, peak_mb - idle_mb


def main():
    # What every reading needs, loaded once.
    import crossspec_ros.captioning.config
    import crossspec_ros.recordings.convert
    import crossspec_ros.recordings.info  # noqa: F401

    for line in Path(sys.argv[1]).read_text().splitlines():
        name, way, path = json.loads(line)
        print(json.dumps([name, way, *bounded(way, path)]), flush=True)


if __name__ == "__main__":
    main()
