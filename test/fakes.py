"""A decoder without models, whose captions describe its inputs."""

from __future__ import annotations

import time
from concurrent.futures import Future
from types import SimpleNamespace

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.standing import Answered
from crossspec_ros.engine.json_grammar import read_schema
from crossspec_ros.errors import InputError, tried


class FakeDecoder:
    """Captions a window by its counts. `gate(what, cancel)` runs inside each call, and `fail` raises.

    `streamed` has the window and kind of each image of open windows, and `begun` the windows whose answer
    began before the close. `options` and `rehearsed` are those of the last caption and frame.
    """

    pulses = ()

    def __init__(self, gate=None, fail=False):
        self.gate, self.fail = gate, fail
        self.cancelled, self.streamed, self.begun = [], [], []
        spec = SimpleNamespace(frames=8, image_size=4)
        target = SimpleNamespace(device="cpu", dtype="float32", vocabulary=32_000, spec=spec)
        self.pair = SimpleNamespace(placement=None, target=target, draft=None, model_ids={})
        self.closed = self.gave_up = False
        self.policy = SimpleNamespace(limits=None)
        self.grammar = lambda schema: read_schema(schema) or None
        self.options = self.rehearsed = None
        self.on_rehearsal = lambda index, text: None
        self.is_json = True

    def close(self):
        self.closed = True

    def check(self):
        if self.fail:
            raise RuntimeError("out of memory")

    def check_question(self, question):
        if len(question) > 100:
            raise InputError("the question is long: shorten it")

    def ask(self, options, trace, on_words, cancel):
        self.check()
        if on_words:
            on_words("answer")
        if self.gate:
            self.gate(options.question, cancel)
        is_json = options.grammar is not None and self.is_json
        text = f"answer to {options.question}{options.grammar or ''}"
        return Caption(text, (1,), "target", 1, is_json=is_json)

    def standing(self, questions):
        """Return standing questions in one pass before the caption and one after it."""
        parts = (tuple(one for one in questions if one.is_first == is_first) for is_first in (True, False))
        return tuple((SimpleNamespace(standing=part),) if part else () for part in parts)

    def choose(self, choices, trace, on_answered):
        failed = tried(self.check)
        answers = []
        for one in choices.standing:
            answer = Caption(one.choices[0], (1,), "target", target_passes=1)
            answers.append((one, failed or Answered(answer, (0.5,) * len(one.choices))))
        on_answered(answers)

    def stream_frame(self, index, frame, stamp_ns, is_last=False, rehearsed=None):
        self.check()
        self.rehearsed = rehearsed
        self.streamed.append((index, "frame"))
        done = Future()
        done.set_result(None)
        return None if is_last else done

    def stream_event_image(self, index, image, options, on_draft=lambda text: None):
        self.check()
        self.streamed.append((index, "event_image"))
        if self.streamed.count((index, "event_image")) == 4:
            on_draft("draft")

    def begin(self, index, options):
        self.begun.append(index)

    def give_up(self):
        self.gave_up = True

    def caption(self, window, options, trace, on_words, cancel, deadline_ns=None, on_first=None, *_):
        self.check()
        self.options = options
        for choices in options.first if len(window.frames) else ():
            self.choose(choices, trace, on_first)
        with trace.span("event_encode"), trace.span("draft_decode"):
            if self.gate:
                self.gate(window, cancel)
        self.cancelled.append(cancel.is_set())
        text = f"{len(window.frames)} frames, {len(window.event_images)} event images: {options.question}"
        source = "event_draft" if len(window.event_images) else "none"
        if len(window.frames):
            source = "target"
            with trace.span("target_prefill[0]"), trace.span("verify[0]"):
                trace.mark("first_token")
            trace.add("answer", trace.marks["first_token"], trace.marks["first_token"])
            if on_words:
                on_words(text)
        return Caption(
            text if source != "none" else "",
            tuple(range(10)),
            source,
            4 if source == "target" else 0,
            {"memory": 20, "event_draft": 5},
            {"memory": 6},
            late=deadline_ns is not None and time.perf_counter_ns() > deadline_ns,
            is_json=options.grammar is not None and self.is_json,
        )
