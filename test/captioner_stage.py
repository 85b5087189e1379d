"""A captioner without a thread, for tests that close windows and ask questions themselves."""

from __future__ import annotations

import time

import numpy as np
from fakes import FakeDecoder

from crossspec_ros.captioning.caption import Listener, Options
from crossspec_ros.captioning.captioner import Captioner
from crossspec_ros.errors import tried
from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.windows.change import ChangeGate
from crossspec_ros.windows.window import EVENTS, FRAMES, Window

PIXELS = np.zeros((2, 2, 3), np.uint8)
OPTIONS = Options("what?")


def window(index, frames=1):
    steps = np.arange(frames, dtype=np.uint8)[:, None, None, None]
    pixels = np.full((frames, 2, 2, 3), 100, np.uint8) + steps
    return Window(index, index * 10**9, (index + 1) * 10**9, pixels, pixels)


class Stage(Listener):
    """A captioner without a thread, its decoder and its calls of the listener."""

    def __init__(self, decoder=None, when="always", options=OPTIONS, **more):
        self.decoder = decoder or FakeDecoder()
        self.outcomes, self.replies, self.standings, self.partials, self.drafts = [], [], [], [], []
        self.captioner = Captioner(
            self.decoder, options, self, gate=ChangeGate(CaptionerSettings(when=when)), **more
        )

    def drafted(self, *draft):
        self.drafts.append(draft)

    def words(self, index, text):
        self.partials.append(text)

    def outcome(self, outcome):
        self.outcomes.append(outcome)

    def standing(self, standing, answer, about):
        self.standings.append((standing.question, answer, about.index))

    def close(self, *windows, ago_s=0.0):
        """Close windows, which are objects or numbers."""
        for one in windows:
            closed_ns = time.perf_counter_ns() - int(ago_s * 1e9)
            self.captioner.close(one if isinstance(one, Window) else window(one), closed_ns)

    def run(self):
        while self.captioner.step():
            pass

    def caption(self, *windows, **how):
        """Close windows, do all jobs, and return the last outcome."""
        self.close(*windows, **how)
        self.run()
        return self.outcomes[-1]

    def film(self, index, frames, slot=0, images=0):
        """Add frames, the first one in this slot of eight, and event images."""
        for i in range(slot, slot + frames):
            self.captioner.add_image(index, FRAMES, PIXELS, index * 10**9 + i * 10**9 // 8)
        for i in range(images):
            self.captioner.add_image(index, EVENTS, PIXELS, index * 10**9 + i)

    def bring(self, index, level):
        """Add a window of this brightness image by image, and close it."""
        pixels = np.full((2, 2, 2, 3), level, np.uint8)
        for i, frame in enumerate(pixels):
            for kind in (FRAMES, EVENTS):
                self.captioner.add_image(index, kind, frame, index * 10**9 + i)
        self.close(Window(index, index * 10**9, (index + 1) * 10**9, pixels, pixels))

    def show(self, index, level):
        """Bring a window, and return its outcome."""
        self.bring(index, level)
        self.run()
        return self.outcomes[-1]

    def ask(self, *questions, **how):
        self.replies += [(one, self.captioner.ask(one, **how)) for one in questions]

    @property
    def answers(self):
        """Answered questions, each with its answer and window index, or with its error."""
        return [(question, tried(reply.result)) for question, reply in self.replies if reply.done()]

    def answer(self, question):
        """Ask, and return the answer."""
        self.ask(question)
        self.run()
        reply = self.answers[-1][1]
        return reply if isinstance(reply, Exception) else reply[0]
