"""A source of a live camera lets go of its device before it opens it again."""

from __future__ import annotations

import math
import threading
import weakref
from functools import partial

from crossspec_ros.events.camera_source import Link, Source
from crossspec_ros.events.dv_camera import _read


class Stalled:
    """A camera whose first transfer fails."""

    def isRunning(self):
        return True

    def getEventResolution(self):
        return 64, 48

    def getNextEventBatch(self):
        raise RuntimeError("transfer stalled")


def test_source_releases_device_before_reopening():
    opened = []

    def connect():
        if any(reader() is not None for reader in opened):
            raise RuntimeError("the camera is busy")
        camera = Stalled()
        opened.append(weakref.ref(camera))
        return camera

    news, stop = [], threading.Event()
    read = partial(_read, ("events",), math.inf)
    for item in Source("the camera", ("events",), connect, read).items(stop, lambda: 0):
        news.append(item)
        if len(news) == 6:
            stop.set()
    assert news == [Link(True), Link(False, "transfer stalled")] * 3
