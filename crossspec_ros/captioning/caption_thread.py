"""The thread in which a node's captioner works."""

from __future__ import annotations

from typing import Any

from crossspec_ros.captioning.captioner import Captioner
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.windows.window import Window


class CaptionThread:
    """Steps a captioner of this decoder, made with these `options`, until it is stopped."""

    def __init__(self, decoder: PrefillHiddenDecoder, *options: Any, **named: Any) -> None:
        self.pulse = Pulse("captions")
        self._decoder = decoder
        named["beat"] = self.pulse.beat
        self.captioner = Captioner(decoder, *options, **named)
        self._thread = self.pulse.start(self._work, "captioner")

    def is_over(self, timeout_s: float = 0.0) -> bool:
        """Return whether the thread has ended, or does so within this time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self, timeout_s: float = 1.0) -> list[Window]:
        """Cancel the window in work, drop those that wait, and end the thread if it ends in time.

        Returns the windows that have no outcome, without their images. Questions that wait or are in work are
        answered with that.
        """
        self.pulse.end()
        self.captioner.stop()
        self.is_over(timeout_s)
        return self.captioner.end()

    def _work(self) -> None:
        captioner = self.captioner
        while not captioner.is_stopped:
            with captioner.changed:
                captioner.changed.wait_for(lambda: captioner.has_work or captioner.is_stopped)
            with self.pulse.busy():
                if not captioner.is_stopped:
                    captioner.step()
        self._decoder.give_up()
