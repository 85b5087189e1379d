"""A decoder that needs no model: its captions tell what it was given."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

from crossspec_ros.captioning.caption import Caption, Rehearsal
from crossspec_ros.captioning.standing import Answered, StandingQuestions
from crossspec_ros.engine.json_grammar import read_schema
from crossspec_ros.errors import InputError, tried


def standing_questions(questions):
    """As the decoder's, without a target: all of a kind share a pass."""
    parts = (tuple(one for one in questions if one.is_first == is_first) for is_first in (True, False))
    return StandingQuestions(*((SimpleNamespace(standing=part),) if part else () for part in parts))


def first_choices(choices):
    """Answers that are the first choice of each question, with half of the probability."""
    captions = [Caption(one.choices[0], (1,), "target", target_passes=1) for one in choices.standing]
    return tuple(
        Answered(caption, (0.5,) * len(one.choices))
        for caption, one in zip(captions, choices.standing, strict=True)
    )


class FakeDecoder:
    """Captions a window by its counts; `gate(window, cancel)` may block, `fail` raises.

    `streamed` has what was read ahead: the window's index and the kind of image; `begun` the windows whose
    answer was begun before they closed.
    """

    def __init__(self, gate=None, fail=False):
        self.gate = gate
        self.fail = fail
        self.cancelled = []
        self.streamed = []
        self.begun = []
        target = SimpleNamespace(device="cpu", dtype="float32", vocabulary=32_000)
        self.pair = SimpleNamespace(frames=8, placement=None, target=target, draft=None, known_as={})
        self.closed = False
        self.max_new_tokens = 64
        self.policy = SimpleNamespace(limits=None)
        self.grammars = SimpleNamespace(compiled=lambda schema: read_schema(schema) or None)
        self.grammar = None
        self.first = ()
        self.speculates = True
        self.is_json = True

    def close(self):
        self.closed = True

    def check_question(self, question):
        if len(question) > 100:
            raise InputError("the question is long: shorten it")

    def ask(self, question, trace, on_words, cancel):
        if self.fail:
            raise RuntimeError("out of memory")
        if on_words:
            on_words("answer")
        if self.gate:
            self.gate(question, cancel)
        is_json = self.grammar is not None and self.is_json
        text = f"answer to {question}{self.grammar or ''}"
        return Caption(text, (1,), "target", target_passes=1, is_json=is_json)

    def standing(self, questions):
        return standing_questions(questions)

    def choose(self, choices, trace):
        if self.fail:
            raise RuntimeError("out of memory")
        if self.gate:
            self.gate(choices.standing, None)
        return first_choices(choices)

    def stream_frame(self, index, frame, stamp_ns, is_last=False):
        if self.fail:
            raise RuntimeError("out of memory")
        self.streamed.append((index, "frame"))
        done = Future()
        done.set_result(None)
        return None if is_last else done

    def work_ahead(self, index, question, more, on_rehearsal):
        pass

    def begin(self, index, question):
        self.begun.append(index)

    def advance(self, index, more):
        return False

    def give_up(self):
        pass

    def stream_event_image(self, index, image, question, on_draft=lambda text: None):
        self.streamed.append((index, "event_image"))
        if self.streamed.count((index, "event_image")) == 4:
            on_draft("draft")

    def caption(
        self, window, question, trace, on_words, cancel, deadline_ns=None, on_first=lambda *told: None
    ):
        if self.fail:
            raise RuntimeError("out of memory")
        for choices in self.first:
            on_first(choices, tried(lambda choices=choices: self.choose(choices, trace)))
        with trace.span("event_encode"), trace.span("draft_decode"):
            if self.gate:
                self.gate(window, cancel)
        self.cancelled.append(cancel.is_set())
        text = f"{len(window.frames)} frames, {len(window.event_images)} event images: {question}"
        drafted = len(window.event_images) > 0
        source = "target" if len(window.frames) else "event_draft" if drafted else "none"
        if source == "target":
            with trace.span("target_prefill[0]"), trace.span("verify[0]"):
                trace.mark("first_token")
            trace.add("answer", trace.marks["first_token"], trace.marks["first_token"])
            if on_words:
                on_words(text)
        return SimpleNamespace(
            rehearsal=Rehearsal(),
            text=text if source != "none" else "",
            askable=source == "target",
            token_ids=list(range(10)),
            source=source,
            target_passes=4 if source == "target" else 0,
            drafted={"memory": 20, "event_draft": 5},
            accepted={"memory": 6},
            lossy=False,
            traffic=(0, 0),
            round_trip_s=0.0,
            unreached="",
            late=deadline_ns is not None and trace.marks["first_token"] > deadline_ns,
            mean_acceptance_length=2.5,
            is_json=self.grammar is not None and self.is_json,
        )
