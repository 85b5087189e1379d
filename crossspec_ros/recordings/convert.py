"""`crossspec convert`: recordings of all formats to rosbag2."""

from __future__ import annotations

import argparse
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from crossspec_ros.errors import InputError
from crossspec_ros.files import rename_folder
from crossspec_ros.paths import found
from crossspec_ros.recordings.bag import write_bag
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.recording import (
    describe_loss,
    open_recording,
    print_sentences,
)


def run(args: argparse.Namespace) -> None:
    """Run the command; Ctrl-C and SIGTERM leave no bag."""
    with ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, number, signal.signal(number, signal.default_int_handler))
        convert(found(args.source), args.destination, ReadOptions.of(vars(args)))


def convert(source: Path, bag: Path, options: ReadOptions = DEFAULT_OPTIONS) -> None:
    """Write a recording as a rosbag2 (mcap), each message at its stamp.

    A bag's messages of events and of the played images stay as they are; other recordings become `mono`
    packets and images. Losses are reported on stderr. Raises InputError when `source` is unreadable, or `bag`
    exists or cannot be written; then, and when interrupted, no bag is left.
    """
    with _new_bag(bag) as path, closing(open_recording(source, options)) as recording:
        print_sentences(recording.remarks)
        topics = {"events": recording.event_topic, "image": recording.image_topic}
        counts: Counter[str] = Counter()
        with write_bag(path) as write, _progress() as progress:
            task = progress.add_task(bag.name)
            for message in recording.messages():
                write(topics[message.kind] or "", message)
                counts[message.kind] += 1
                progress.update(
                    task, description=f"{bag.name}: {counts['events']} packets, {counts['image']} images"
                )
        print_sentences(map(describe_loss, recording.losses))


@contextmanager
def _new_bag(bag: Path) -> Iterator[Path]:
    """Yield a path to write a bag to, which gets its name once the block has ended well."""
    if bag.exists():
        raise InputError(f"'{bag}' exists already: remove it first or choose another name for the bag")
    try:
        # The files of a bag are named after its folder.
        with TemporaryDirectory(prefix=f".{bag.name}.", dir=bag.parent) as scratch:
            yield Path(scratch, bag.name)
            rename_folder(Path(scratch, bag.name), bag)
    except OSError as error:
        raise InputError(
            f"'{bag}' cannot be written ({error.strerror or error}): give a folder where there is room and "
            f"the right to write, and a source that can be read"
        ) from error


def _progress() -> Progress:
    return Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
