"""The captioner, each caption SECONDS slower: `python -m crossspec_lab.trials.slow_captioner SECONDS ...`."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from crossspec_ros.captioning.settings import CaptionerSettings
from crossspec_ros.ros.captioner import CaptionerNode, load
from crossspec_ros.ros.run import run
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def load_slow(seconds: float, settings: CaptionerSettings) -> Any:
    """A decoder whose every caption takes so many seconds more."""
    decoder: Any = load(settings)
    caption = decoder.caption

    def slow(window: Window, question: str, trace: Trace, *rest: Any) -> Any:
        *_, cancel, _ = rest
        # As if the target had taken so long.
        with trace.span("decode"):
            cancel.wait(seconds)
        return caption(window, question, trace, *rest)

    decoder.caption = slow
    return decoder


def main() -> None:
    """Run the node."""
    seconds = float(sys.argv.pop(1))
    run(partial(CaptionerNode, load=partial(load_slow, seconds)))


if __name__ == "__main__":
    main()
