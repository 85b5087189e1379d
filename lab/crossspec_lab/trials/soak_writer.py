"""Software of a camera for the soak: it serves events and frames as dv network streams.

`python -m crossspec_lab.trials.soak_writer EVENTS_PORT FRAMES_PORT RATE` prints a line of JSON when clients
have connected to both ports, and one for each second of the stream. RATE is the least number of million
events a second. An integer on its input steps the clock of its stamps by that number of seconds.
"""

from __future__ import annotations

import json
import math
import signal
import sys
import threading
import time

import cv2
import dv_processing as dv

from crossspec_lab.world.camera import FRAME_SIZE, frame
from crossspec_lab.world.scene import drive

FRAME_US = 40_000
_CHUNK_US, _STEP_US = 10_000, 200
_DOUBLINGS = 6
_PICTURES = 75


def main(events_port: int, frames_port: int, rate: float) -> None:
    """Serve until killed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # A drive, because one picture would pass for a frozen camera, and noise has the longest captions.
    drawn = (frame(drive(0, 4), 0, i * FRAME_US / 1e6) for i in range(_PICTURES))
    pictures = [cv2.cvtColor(picture, cv2.COLOR_RGB2BGR) for picture in drawn]
    stream, address = dv.io.Stream, "127.0.0.1"
    events = dv.io.NetworkWriter(address, events_port, stream.EventStream(0, "events", "CAM", FRAME_SIZE))
    frames = dv.io.NetworkWriter(address, frames_port, stream.FrameStream(0, "frames", "CAM", FRAME_SIZE))
    up_s = time.monotonic()
    stays = 0
    while stays < 20:  # dv_camera connects twice
        stays = stays + 1 if events.getClientCount() and frames.getClientCount() else 0
        time.sleep(0.005)
    print(json.dumps({"picked_up_s": time.monotonic() - up_s}), flush=True)
    sent, t_us = 0, time.time_ns() // 1000 // FRAME_US * FRAME_US
    clock = [0]  # microseconds ahead of the host's
    threading.Thread(target=_listen, args=(clock,), daemon=True).start()
    while True:
        time.sleep(max(0.0, (t_us + _CHUNK_US) / 1e6 - time.time()))
        if t_us % FRAME_US == 0:
            frames.writeFrame(dv.Frame(t_us + clock[0], pictures[t_us // FRAME_US % _PICTURES]))
        chunk = _events(t_us + clock[0], rate)
        events.writeEvents(chunk)
        sent, t_us = sent + chunk.size(), t_us + _CHUNK_US
        if t_us % 1_000_000 == 0:
            behind_s = time.time() - t_us / 1e6
            print(json.dumps({"end_s": t_us // 1_000_000, "events": sent, "behind_s": behind_s}), flush=True)
            sent = 0


def _listen(clock: list[int]) -> None:
    """Step the clock by the seconds of each line of the input."""
    for line in sys.stdin:
        clock[0] += int(line) * 1_000_000


def _events(start_us: int, rate: float) -> dv.EventStore:
    """Return 10 ms of events, each 64 times, because Python makes too few events for any camera."""
    unique = math.ceil(rate * _STEP_US / 2**_DOUBLINGS)
    width, height = FRAME_SIZE
    chunk = dv.EventStore()
    for t_us in range(start_us, start_us + _CHUNK_US, _STEP_US):
        events = dv.EventStore()
        for i in range(unique):
            place = t_us // _STEP_US * 7919 + i * 104_729
            events.push_back(t_us, place % width, place // width % height, i % 2 == 0)
        for _ in range(_DOUBLINGS):
            same = dv.EventStore()
            same.add(events)
            events.add(same)
        chunk.add(events)
    return chunk


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
