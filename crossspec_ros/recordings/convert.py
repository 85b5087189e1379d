"""`crossspec convert`: recordings of all formats to rosbag2."""

from __future__ import annotations

import argparse
import signal
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from crossspec_ros.paths import found
from crossspec_ros.recordings.bag import new_bag, write_bag
from crossspec_ros.recordings.options import DEFAULT_OPTIONS, ReadOptions
from crossspec_ros.recordings.recording import describe_loss, open_recording, print_sentences


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
    with new_bag(bag) as path, closing(open_recording(source, options)) as recording:
        print_sentences(recording.remarks)
        counts: Counter[str] = Counter()
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        with write_bag(path) as write, Progress(*columns) as progress:
            task = progress.add_task(bag.name)
            for message in recording.messages():
                write(recording.topic(message), message)
                counts[message.kind] += 1
                progress.update(
                    task, description=f"{bag.name}: {counts['events']} packets, {counts['image']} images"
                )
        print_sentences(map(describe_loss, recording.losses))
