"""A decoder that needs no model: its captions tell what it was given."""

from __future__ import annotations

from types import SimpleNamespace


class FakeDecoder:
    """Captions a window by its counts; `gate(window)` may block, `fail` raises."""

    def __init__(self, gate=None, fail=False):
        self.gate = gate
        self.fail = fail
        self.cancelled = []

    def close(self):
        pass

    def caption(self, window, question, trace, on_draft, cancel):
        if self.fail:
            raise RuntimeError("out of memory")
        with trace.span("event_encode"), trace.span("draft_decode"):
            if self.gate:
                self.gate(window, cancel)
        self.cancelled.append(cancel.is_set())
        text = f"{len(window.frames)} frames, {len(window.event_images)} event images: {question}"
        drafted = len(window.event_images) > 0
        if drafted and on_draft:
            on_draft("draft")
        source = "target" if len(window.frames) else "event_draft" if drafted else "none"
        if source == "target":
            with trace.span("target_prefill[0]"), trace.span("verify[0]"):
                trace.mark("first_token")
        return SimpleNamespace(
            text=text if source != "none" else "",
            token_ids=list(range(10)),
            source=source,
            draft_text="draft" if drafted else None,
            target_passes=4 if source == "target" else 0,
            drafted=5,
            accepted=3,
            mean_acceptance_length=0.75,
        )
