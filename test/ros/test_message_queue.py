"""What waits in the synchronizer is bounded in messages and in bytes."""

from __future__ import annotations

import io
import queue
from array import array
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from PIL import Image

from crossspec_ros.ros.messages import MessageQueue


def test_texts_count_with_the_bytes_that_their_characters_take():
    waiting = MessageQueue(3, 100)
    image = SimpleNamespace(header=SimpleNamespace(frame_id="x" * 20), encoding="\U0001f600" * 20, data=b"")
    waiting.put_nowait(("frames", image))
    assert waiting.bytes == 100


def test_a_compressed_image_counts_with_its_pixels():
    header = SimpleNamespace(frame_id="")
    png = array("B", bytes(cv2.imencode(".png", np.zeros((1000, 3000, 3), np.uint8))[1]))
    waiting = MessageQueue(9, 20_000_000)
    for _ in range(2):
        waiting.put_nowait(("frames", SimpleNamespace(header=header, format="png", data=png)))
    assert len(png) < 100_000 and waiting.bytes == 2 * (9_000_000 + len(png) + len("png"))
    with pytest.raises(queue.Full):
        waiting.put_nowait(("frames", SimpleNamespace(header=header, format="png", data=png)))
    waiting.get()
    # What is refused undecoded keeps nobody else from waiting.
    huge = io.BytesIO()
    Image.new("1", (9000, 9000)).save(huge, "PNG")
    for broken in (png[:20], b"no picture", huge.getvalue()):
        waiting.put_nowait(("frames", SimpleNamespace(header=header, format="", data=broken)))
    assert [waiting.get() for _ in range(4)] and waiting.bytes == 0


def test_it_is_full_of_messages_or_of_bytes_and_takes_more_once_it_is_emptied():
    waiting = MessageQueue(3, 100)
    header = SimpleNamespace(frame_id="camera")
    items = [
        ("frames", SimpleNamespace(header=header, encoding=40 * "x", data=bytes(14))),
        ("events", SimpleNamespace(header=header, encoding="evt3", events=bytes(20))),
        ("events", bytes(10)),
    ]
    for item in items[:2]:
        waiting.put_nowait(item)
    with pytest.raises(queue.Full):
        waiting.put_nowait(items[0])
    waiting.put_nowait(items[2])
    with pytest.raises(queue.Full):
        waiting.put_nowait(("events", b""))
    assert [waiting.get() for _ in items] == items and waiting.bytes == 0
    # One that is larger than all together may wait alone, or it would never be told of.
    waiting.put_nowait(("frames", SimpleNamespace(header=header, format="jpeg", data=bytes(500))))
    with pytest.raises(queue.Full):
        waiting.put_nowait(items[2])
    # The end may come at any time.
    waiting.get()
    waiting.put_nowait(items[0])
    waiting.put_nowait(None)
    assert waiting.get() == items[0] and waiting.get() is None
