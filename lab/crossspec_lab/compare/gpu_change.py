"""The target's time that the gate of captions saves at 7B dimensions, with told captions.

`python -m crossspec_lab.compare.gpu_change OUT.json DEVICE TRACE.jsonl [tiny]` measures drives of the
synthetic world that stand half of the time; where their true caption is the same, so is what is told.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
from transformers.utils import logging

from crossspec_lab.compare.bench_change import TIMED_DRIVES, WAYS, Drive, standing_films, target_times
from crossspec_lab.compare.bench_gpu import TOLD
from crossspec_lab.compare.bench_trace import Response, read_trace, replay
from crossspec_lab.compare.gpu_models import dimensions_of, random_pair
from crossspec_lab.compare.gpu_told import Teller
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.captioning.assembly import speculative_decoder
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import available
from crossspec_ros.paths import tiny_models
from crossspec_ros.windows.resize import resize_shortest

_MINUTES = 3


def main() -> None:
    """Measure, and write the figures."""
    out, device, trace, *size = sys.argv[1:]
    is_tiny = bool(size)
    heard_count = 1 if is_tiny else 100
    logging.set_verbosity_error()
    pair = random_pair(load_pair(tiny_models()), dimensions_of(is_tiny), available("bf16", device))
    teller = Teller(pair, QUESTION)
    every = read_trace(Path(trace))[::2]
    heard, responses = every[:heard_count], every[heard_count:]
    captions: dict[str, Response] = {}

    def tell(true: str) -> None:
        teller.tell(captions.setdefault(true, responses[len(captions) % len(responses)]))

    films = [_enlarged(film, pair) for film in standing_films((1 + _MINUTES) * TIMED_DRIVES)]
    with ExitStack() as stack:
        decoders: dict[str, PrefillHiddenDecoder] = {}
        for when in WAYS:
            decoders[when] = stack.enter_context(closing(speculative_decoder(teller.pair)))
            replay(heard, decoders[when].policy, "what the memory has heard")
        # The first minute does not count: all that is slow the first time.
        target_times(decoders, films[:TIMED_DRIVES], tell)
        figures = target_times(decoders, films[TIMED_DRIVES:], tell)
    found = {"told": TOLD, "dtype": "bf16", "target_s_per_minute": figures}
    print(json.dumps(found, indent=1))
    Path(out).write_text(json.dumps(found, indent=1) + "\n")


def _enlarged(film: Drive, pair: ModelPair) -> Drive:
    def images(small: np.ndarray, side: int) -> np.ndarray:
        return np.stack([resize_shortest(image, side) for image in small])

    return [
        (
            replace(
                window,
                frames=images(window.frames, pair.frame_size),
                event_images=images(window.event_images, pair.event_image_size),
            ),
            true,
        )
        for window, true in film
    ]


if __name__ == "__main__":
    main()
