"""`crossspec convert`: recordings of all formats to rosbag2."""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import RecordedMessage
from crossspec_ros.files import read_small, rename_folder
from crossspec_ros.paths import found
from crossspec_ros.recordings.asked import BEST, Asked
from crossspec_ros.recordings.bag import write_bag
from crossspec_ros.recordings.reader_process import ChildRecording
from crossspec_ros.recordings.recording import (
    DSEC_EVENTS,
    GROUND_TRUTH,
    MOST_TRUTH_BYTES,
    open_recording,
    tell_losses,
    tell_remarks,
)
from crossspec_ros.recordings.source import Recording

_JPEG_QUALITY = 90


def run(args: argparse.Namespace) -> None:
    """Handler of `crossspec convert`; Ctrl-C and SIGTERM leave no part of a bag."""
    with _on_signals(signal.default_int_handler):
        convert(found(args.source), args.destination, args.aligned, Asked.of(vars(args)))


def convert(source: Path, bag: Path, aligned: bool = False, asked: Asked = BEST) -> None:
    """Write a recording as a rosbag2 (mcap), each message at its stamp.

    A bag's messages of events and of the played images stay as they are; other recordings become evt3
    packets, and a DSEC sequence's frames JPEGs, `aligned` with its events where asked for. A
    `ground_truth.json` of the source comes along into the bag's directory. Raises InputError when `source` is
    no recording or damaged, or `bag` exists or cannot be written; then, and when interrupted, nothing is left
    of it. A file that is damaged only in a part makes a bag of the rest, which is told.
    """
    truth = _ground_truth(source)
    with _whole(bag) as path, closing(_open(source, aligned, asked)) as recording:
        tell_remarks(recording)
        with write_bag(path) as write, _progress(TimeElapsedColumn()) as progress:
            task = progress.add_task(bag.name, total=None, counts="")
            copy, counts = _copier(write, recording)
            for message in recording.messages():
                copy(message)
                progress.update(task, counts=_say(counts))
        if truth is not None:
            (path / GROUND_TRUTH).write_bytes(truth)
        tell_losses(recording)


def _ground_truth(source: Path) -> bytes | None:
    """True captions that come along with a recording; raises InputError where they lie elsewhere."""
    path = source / GROUND_TRUTH
    if not path.is_symlink() and not path.exists():
        return None
    try:
        return read_small(path, MOST_TRUTH_BYTES, follow=False)
    except OSError as error:
        raise InputError(
            f"'{path}' does not come along ({error.strerror or error}): remove it, or put the "
            f"file itself there"
        ) from None


def _open(source: Path, aligned: bool, asked: Asked) -> Recording:
    if aligned and asked.images:
        raise InputError(f"the images of '{asked.images}' cannot be aligned: leave out --aligned or --images")
    if (source / DSEC_EVENTS).exists() and not any(asked[2:]):
        opener = "crossspec_ros.recordings.dsec:open_dsec"
        return ChildRecording(source, opener, [str(source), _JPEG_QUALITY, aligned])
    if aligned:
        raise InputError(
            f"'{source}' cannot be aligned: give a DSEC sequence, a directory with {DSEC_EVENTS}"
        )
    return open_recording(source, asked)


@contextmanager
def _whole(bag: Path) -> Iterator[Path]:
    """Path to write a bag to, which gets its name only once the block has ended well."""
    if bag.exists():
        raise InputError(f"'{bag}' exists already: remove it first or choose another name for the bag")
    # A folder, because a bag's name is in those of its files; one may be left of a run that was killed.
    partial = bag.parent / f".{bag.name}.partial"
    try:
        partial.mkdir(exist_ok=True)
        with _alone(partial):
            shutil.rmtree(partial / bag.name, ignore_errors=True)
            yield partial / bag.name
            rename_folder(partial / bag.name, bag)
    except OSError as error:
        raise InputError(
            f"'{bag}' cannot be written ({error}): give a folder where there is room and the right to write, "
            f"and a source that can be read"
        ) from error


@contextmanager
def _alone(partial: Path) -> Iterator[None]:
    """Hold the folder of what is not whole yet, and take it away in the end."""
    # Never through a link, for its name is known to everybody.
    folder = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another conversion is writing in '{partial}': wait for its end, or choose another name"
            ) from None
        try:
            yield
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    finally:
        os.close(folder)


def _copier(
    write: Callable[[str, RecordedMessage], None], source: Recording
) -> tuple[Callable[[RecordedMessage], None], Counter[str]]:
    """A function that writes a message to its topic, and how many it has written of each kind."""
    topics, counts = {"events": source.event_topic, "image": source.image_topic}, Counter[str]()

    def copy(message: RecordedMessage) -> None:
        topic = topics[message.kind]
        assert topic is not None
        write(topic, message)
        counts[message.kind] += 1

    return copy, counts


def _say(counts: Counter[str]) -> str:
    return f"{counts['events']} packets, {counts['image']} images"


def _progress(*columns: ProgressColumn) -> Progress:
    counts = TextColumn("{task.fields[counts]}")
    return Progress(TextColumn("{task.description}"), BarColumn(), *columns, counts)


@contextmanager
def _on_signals(handler: Callable[..., Any]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
