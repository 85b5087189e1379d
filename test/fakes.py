"""A decoder that needs no model: its captions tell what it was given."""

from __future__ import annotations

from types import SimpleNamespace

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.errors import InputError


class FakeDecoder:
    """Captions a window by its counts; `gate(window, cancel)` may block, `fail` raises.

    `streamed` has what was read ahead: the window's index and the kind of image.
    """

    def __init__(self, gate=None, fail=False):
        self.gate = gate
        self.fail = fail
        self.cancelled = []
        self.streamed = []
        self.closed = False
        self.max_new_tokens = 64
        self.policy = SimpleNamespace(limits=None)

    def close(self):
        self.closed = True

    def check_question(self, question):
        if len(question) > 100:
            raise InputError("the question is long: shorten it")

    def ask(self, question, trace, between, cancel):
        if self.fail:
            raise RuntimeError("out of memory")
        if self.gate:
            self.gate(question, cancel)
        between()
        return Caption(f"answer to {question}", (1,), "target", target_passes=1)

    def stream_frame(self, index, frame):
        if self.fail:
            raise RuntimeError("out of memory")
        self.streamed.append((index, "frame"))

    def stream_event_image(self, index, image, question, on_draft):
        self.streamed.append((index, "event_image"))
        if self.streamed.count((index, "event_image")) == 4:
            on_draft("draft")

    def caption(self, window, question, trace, on_words, between, cancel, deadline_ns):
        if self.fail:
            raise RuntimeError("out of memory")
        with trace.span("event_encode"), trace.span("draft_decode"):
            if self.gate:
                self.gate(window, cancel)
        self.cancelled.append(cancel.is_set())
        between()
        text = f"{len(window.frames)} frames, {len(window.event_images)} event images: {question}"
        drafted = len(window.event_images) > 0
        source = "target" if len(window.frames) else "event_draft" if drafted else "none"
        if source == "target":
            with trace.span("target_prefill[0]"), trace.span("verify[0]"):
                trace.mark("first_token")
            on_words(text)
        return SimpleNamespace(
            text=text if source != "none" else "",
            token_ids=list(range(10)),
            source=source,
            target_passes=4 if source == "target" else 0,
            drafted={"memory": 20, "event_draft": 5},
            accepted={"memory": 6},
            late=deadline_ns is not None and trace.marks["first_token"] > deadline_ns,
            mean_acceptance_length=2.5,
        )
