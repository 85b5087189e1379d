"""A recording replayed in code: the same objects as in the nodes, without topics, threads or time."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import closing, nullcontext
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

from crossspec_ros.captioning.asked_models import asked_placement, asked_sampling
from crossspec_ros.captioning.caption import Caption, Options
from crossspec_ros.captioning.captioner import Captioner
from crossspec_ros.captioning.out_of_memory import enough_memory, free_memory
from crossspec_ros.captioning.outcome import Listener, Outcome
from crossspec_ros.captioning.rerun_log import RerunLog
from crossspec_ros.captioning.setup import ReplaySetup
from crossspec_ros.captioning.standing import Answered, Standing, read_standing
from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import RecordedMessage
from crossspec_ros.events.stamps import Break, parts
from crossspec_ros.recordings.recording import describe_loss, tell
from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.assembler import WindowAssembler
from crossspec_ros.windows.change import ChangeGate, GateSettings
from crossspec_ros.windows.grid import SECOND
from crossspec_ros.windows.pipeline import Pipeline
from crossspec_ros.windows.quality import flags
from crossspec_ros.windows.synchronizer import EventImageReady, FrameReady, Update
from crossspec_ros.windows.window import EVENTS, FRAMES, Window

if TYPE_CHECKING:
    from crossspec_ros.captioning.decoder import PrefillHiddenDecoder

VIEWER_S = 10.0
"""Patience with Rerun's viewer, in seconds: a recording is captioned faster than it came."""
MOST_REASONS = 3
"""Reasons why messages could not be used, the most common ones, that are told."""


@dataclass(frozen=True)
class Captioned:
    """A window, its caption, the spans of its stages, and what was wrong with it, by `windows.quality`.

    Where the window shows nothing new, the caption is that of the window that ends at `holds_ns`; else it has
    the `answers` to the standing questions, if its frames could be read.
    """

    window: Window
    event_image_stamps_ns: list[int]
    faults: Sequence[str]
    caption: Caption
    trace: Trace
    holds_ns: int | None = None
    answers: tuple[tuple[Standing, Answered], ...] = ()


class CodeReplay(Listener):
    """Captions each window of a recording; what is wrong with its streams is in `counts`.

    The event draft gets the time that it needs, and nothing is rehearsed, so that two runs in float32 give
    the same records.
    """

    def __init__(self, setup: ReplaySetup, decoder: PrefillHiddenDecoder) -> None:
        self._setup = setup
        question = setup.captioner.question
        decoder.check_question(question)
        self._pipeline = Pipeline(setup.synchronizer)
        self._assembler = WindowAssembler(self._pipeline.grid)
        self._outcomes: list[Outcome] = []
        self._answers: SimpleQueue[tuple[Standing, Answered | Exception]] = SimpleQueue()
        grammar = decoder.grammars.compiled(setup.captioner.schema)
        how = setup.captioner.max_new_tokens, asked_sampling(setup.captioner), grammar
        options = Options(question, *how, *decoder.standing(read_standing(setup.captioner.questions)))
        self._captioner = Captioner(decoder, options, self, gate=ChangeGate(GateSettings.of(setup.captioner)))
        self._event_image_stamps: dict[int, list[int]] = {}
        self._unusable: Counter[str] = Counter()

    @property
    def counts(self) -> dict[str, int]:
        """Faults so far, by kind."""
        counts = Counter(self._pipeline.counts) + self._assembler.counts
        return dict(sorted(counts.items()))

    def windows(self, tick: Callable[[float], None] = lambda seconds: None) -> Iterator[Captioned]:
        """Yield every window in order; `tick` gets the seconds of the recording that have been read.

        Raises InputError where the recording is damaged.
        """
        recording = self._setup.recording
        tell(recording.remarks)
        for message in parts(recording.messages()):
            for update in self._updates(message):
                yield from self._take(update)
            if isinstance(message, RecordedMessage) and not message.stray:
                tick((message.stamp_ns - recording.start_ns) / SECOND)
        tell(map(describe_loss, recording.losses))
        for reason, count in self._unusable.most_common(MOST_REASONS):
            print(f"crossspec: {count} messages could not be used: {reason}", file=sys.stderr)

    def _updates(self, message: RecordedMessage | Break) -> Iterator[Update]:
        try:
            yield from self._pipeline.take_recorded(message)
        except InputError as error:
            self._pipeline.refuse()
            self._unusable[str(error)] += 1

    def _take(self, update: Update) -> Iterator[Captioned]:
        grid = self._pipeline.grid
        if isinstance(update, FrameReady):
            index = grid.index(update.stamp_ns)
            self._draft(index, FRAMES, update)
            windows = self._assembler.add_frame(update.stamp_ns, update.image)
        elif isinstance(update, EventImageReady):
            index = grid.index(update.stamp_ns - 1)
            self._event_image_stamps.setdefault(index, []).append(update.stamp_ns)
            self._draft(index, EVENTS, update)
            windows = self._assembler.add_event_image(update.stamp_ns, update.image)
        else:
            windows = self._assembler.close(*update)
        yield from map(self._caption, windows)

    def _draft(self, index: int, kind: str, update: FrameReady | EventImageReady) -> None:
        """Hand an image over, and wait for the event draft: its words must not depend on the machine."""
        if draft := self._captioner.add_image(index, kind, update.image, update.stamp_ns):
            wait([draft])

    def outcome(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)

    def standing(self, standing: Standing, answer: Answered | Exception, window: Window) -> None:
        self._answers.put((standing, answer))

    def _caption(self, window: Window) -> Captioned:
        self._captioner.close(window, time.perf_counter_ns())
        self._captioner.step()
        outcome = self._outcomes.pop()
        stamps, faults = self._event_image_stamps.pop(window.index, []), flags(window)
        if outcome.holds is not None:
            same = Caption(outcome.holds.caption.text, (), "unchanged")
            return Captioned(window, stamps, faults, same, outcome.trace, outcome.holds.window.end_ns)
        if outcome.error is not None:
            raise outcome.error
        assert outcome.caption is not None
        later = outcome.options.later if outcome.caption.askable else ()
        awaited = {standing for choices in later for standing in choices.standing}
        answers: list[tuple[Standing, Answered]] = []
        while awaited or not self._answers.empty():
            standing, answered = self._answers.get()
            if isinstance(answered, Exception):
                raise answered
            awaited.discard(standing)
            answers.append((standing, answered))
        own = outcome.flags, outcome.caption, outcome.trace
        return Captioned(window, stamps, *own, answers=tuple(answers))


def captions(
    setup: ReplaySetup,
    load: Callable[[CaptionerSettings], PrefillHiddenDecoder],
    tick: Callable[[float], None],
    counts: Counter[str],
) -> Iterator[Captioned]:
    """Every window captioned by the decoder that `load` makes of the captioner's settings, and which is
    gone afterwards; what is wrong with the recording is added to `counts`.

    `tick` is that of `CodeReplay.windows`. Raises InputError where the recording is damaged, and where memory
    runs out.
    """
    where = setup.captioner.rerun
    with (
        enough_memory(asked_placement(setup.captioner)),
        closing(RerunLog(where, VIEWER_S)) if where else nullcontext() as view,
        closing(load(setup.captioner)) as decoder,
    ):
        replay = CodeReplay(setup, decoder)
        for captioned in replay.windows(tick):
            if view is not None:
                view.captioned(captioned.window, captioned.caption, captioned.trace)
                for standing, answered in captioned.answers:
                    view.answer(standing, answered, captioned.window.end_ns)
            yield captioned
        counts.update(replay.counts)
    del decoder, replay
    free_memory()
