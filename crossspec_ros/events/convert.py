"""DSEC sequences to rosbag2."""

from __future__ import annotations

import shutil
from pathlib import Path

from rich.progress import Progress

from crossspec_ros.errors import InputError
from crossspec_ros.events.bag import write_bag
from crossspec_ros.events.dsec import EVENTS_FILE, is_dsec
from crossspec_ros.events.dsec_recording import DsecRecording

_GROUND_TRUTH = "ground_truth.json"


def convert(sequence: Path, bag: Path, jpeg_quality: int = 90) -> None:
    """Write a DSEC directory as a rosbag2 (mcap): evt3 packets and JPEG images, each at its stamp.

    A `ground_truth.json` of the sequence comes along into the bag's directory. Raises InputError when
    `sequence` is none or damaged or `bag` exists; then, and when interrupted, no half-written bag stays.
    """
    if not is_dsec(sequence):
        raise InputError(f"'{sequence}' is no DSEC sequence: give a directory with {EVENTS_FILE}")
    recording = DsecRecording(sequence, jpeg_quality)
    try:
        with write_bag(bag) as write, Progress() as progress:
            duration_ns = recording.end_ns - recording.start_ns
            task = progress.add_task(f"{sequence.name} to {bag.name}", total=duration_ns)
            for message in recording.messages():
                topic = recording.event_topic if message.kind == "events" else recording.image_topic
                assert topic is not None
                write(topic, message)
                progress.update(task, completed=message.stamp_ns - recording.start_ns)
            if (sequence / _GROUND_TRUTH).exists():
                shutil.copy(sequence / _GROUND_TRUTH, bag / _GROUND_TRUTH)
    finally:
        recording.close()
