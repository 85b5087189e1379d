"""Caption a recording with the objects of the nodes, without ROS and not in real time."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import closing, nullcontext
from dataclasses import dataclass
from queue import SimpleQueue

from crossspec_ros.captioning.caption import Caption, Holding, Listener, Outcome
from crossspec_ros.captioning.caption_options import requested_options
from crossspec_ros.captioning.captioner import Captioner
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.captioning.load_decoder import enough_memory, free_memory, requested_placement
from crossspec_ros.captioning.replay_setup import ReplaySetup
from crossspec_ros.captioning.rerun_log import RerunLog
from crossspec_ros.captioning.standing import Answered, Standing
from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import RecordedMessage
from crossspec_ros.events.stamps import Break, parts
from crossspec_ros.recordings.recording import describe_loss, print_sentences
from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.assembler import WindowAssembler
from crossspec_ros.windows.change import ChangeGate
from crossspec_ros.windows.grid import SECOND
from crossspec_ros.windows.pipeline import Pipeline
from crossspec_ros.windows.synchronizer import FrameReady, Update
from crossspec_ros.windows.window import EVENTS, FRAMES, Window, WindowClosed

VIEWER_S = 10.0
"""Maximum seconds that Rerun's viewer may lag behind."""


@dataclass(frozen=True)
class Captioned:
    """A window, its caption and stages, and its faults (`windows.quality`).

    A window that shows nothing new has the text of the caption `holds`. Other windows with usable frames have
    the `answers` to the standing questions. `frame_id` is that of the camera.
    """

    window: Window
    faults: Sequence[str]
    caption: Caption
    trace: Trace
    frame_id: str
    holds: Holding | None = None
    answers: tuple[tuple[Standing, Answered], ...] = ()


class CodeReplay(Listener):
    """Captions each window of a recording and counts the faults of its streams.

    It waits for the event draft and does not rehearse, so that two runs in float32 give the same records.
    """

    def __init__(self, setup: ReplaySetup, decoder: PrefillHiddenDecoder) -> None:
        self._recording, settings = setup.recording, setup.captioner
        self._pipeline = Pipeline(setup.synchronizer)
        self._assembler = WindowAssembler(self._pipeline.grid)
        self._outcomes: list[Outcome] = []
        self._answers: SimpleQueue[tuple[Standing, Answered | Exception]] = SimpleQueue()
        options = requested_options(settings, decoder)
        self._captioner = Captioner(decoder, options, self, gate=ChangeGate(settings))
        self._unusable: Counter[str] = Counter()

    @property
    def counts(self) -> dict[str, int]:
        """Faults so far, by kind."""
        return dict(sorted((Counter(self._pipeline.counts) + self._assembler.counts).items()))

    def windows(self, tick: Callable[[float], None] = lambda seconds: None) -> Iterator[Captioned]:
        """Yield every window in order. `tick` is called with the position in the recording in seconds.

        Raises InputError for a damaged recording.
        """
        print_sentences(self._recording.remarks)
        for message in parts(self._recording.messages()):
            for update in self._updates(message):
                yield from map(self._caption, self._add(update))
            if isinstance(message, RecordedMessage) and not message.stray:
                tick((message.stamp_ns - self._recording.start_ns) / SECOND)
        print_sentences(map(describe_loss, self._recording.losses))
        for reason, count in self._unusable.most_common(3):
            print(f"crossspec: {count} messages could not be used: {reason}", file=sys.stderr)

    def _updates(self, message: RecordedMessage | Break) -> Iterator[Update]:
        try:
            yield from self._pipeline.take_recorded(message)
        except InputError as error:
            self._pipeline.refuse()
            self._unusable[str(error)] += 1

    def _add(self, update: Update) -> list[Window]:
        """Return the windows that an update completes."""
        if not isinstance(update, WindowClosed):
            # An event image shows the time before its stamp.
            is_frame = isinstance(update, FrameReady)
            index = self._pipeline.grid.index(update.stamp_ns - (not is_frame))
            kind = FRAMES if is_frame else EVENTS
            if draft := self._captioner.add_image(index, kind, update.image, update.stamp_ns):
                # The draft must not depend on the speed of the machine.
                wait([draft])
        return self._assembler.add(update)

    def outcome(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)

    def standing(self, standing: Standing, answer: Answered | Exception, window: Window) -> None:
        self._answers.put((standing, answer))

    def _caption(self, window: Window) -> Captioned:
        self._captioner.close(window, time.perf_counter_ns())
        self._captioner.step()
        outcome = self._outcomes.pop()
        inputs, trace, frame_id = (window, outcome.flags), outcome.trace, self._pipeline.frame_id
        if outcome.holds is not None:
            same = Caption(outcome.holds.caption.text, (), "unchanged")
            return Captioned(*inputs, same, trace, frame_id, outcome.holds)
        if outcome.error is not None:
            raise outcome.error
        assert outcome.caption is not None
        batches = outcome.options.first + outcome.options.later if outcome.caption.askable else ()
        answers = tuple(self._answer() for choices in batches for _ in choices.standing)
        return Captioned(*inputs, outcome.caption, trace, frame_id, answers=answers)

    def _answer(self) -> tuple[Standing, Answered]:
        standing, answered = self._answers.get()
        if isinstance(answered, Exception):
            raise answered
        return standing, answered


def captions(
    setup: ReplaySetup,
    load: Callable[[CaptionerSettings], PrefillHiddenDecoder],
    tick: Callable[[float], None],
    counts: Counter[str],
) -> Iterator[Captioned]:
    """Yield every window with its caption, and add the faults to `counts`. `load` returns the decoder.

    See `CodeReplay.windows` for `tick`. Raises InputError for a damaged recording, for settings that make
    captions differ from run to run, and if memory runs out.
    """
    setup.check_repeatable()
    where = setup.captioner.rerun
    with (
        enough_memory(requested_placement(setup.captioner)),
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
