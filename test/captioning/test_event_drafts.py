"""The event draft runs while a window is open. An unfinished draft is used, and a failed one is ignored."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace

import pytest
from plain_target import QUESTION, Guess, caption, chain, event_draft, first_frames, generated

from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.draft_model import EventDraft
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import make_proposers
from crossspec_ros.models.eventgpt import EventGPT
from crossspec_ros.settings import EVENT_DRAFT, REHEARSAL
from crossspec_ros.telemetry.trace import Trace

WAIT_S = 20
OPTIONS = Options(QUESTION)


@pytest.fixture
def seen():
    """Return the contexts that the proposer of `decoder` gets."""
    return []


@pytest.fixture
def decoder(decoder, seen):
    decoder.policy = Policy((Guess(lambda context: (seen.append(context), chain([]))[1]),), None)
    return decoder


def test_window_without_frames_has_a_draft_caption(pair, blind):
    answer = caption(pair, blind)
    assert answer.source == "event_draft" and answer.text.startswith("The key elements")
    assert answer.target_passes == 0


def test_draft_is_ready_before_the_close(pair, windows, decoder, seen):
    texts: list[str] = []
    images = windows[0].event_images
    works = [decoder.stream_event_image(0, image, OPTIONS, texts.append) for image in images]
    assert works[:3] == [None] * 3 and works[3] is works[4] is not None
    works[3].result(WAIT_S)
    trace = Trace()
    trace.mark("closed")
    decoder.caption(windows[0], OPTIONS, trace)
    assert len(texts) == 1 and texts[0].startswith("The key elements")
    early = event_draft(pair, images[:4], QUESTION, 64)
    early.run(Trace())
    draft = seen[0].drafts[EVENT_DRAFT]
    assert draft == early.proposal()
    assert len(draft.tokens) > 20 and all(0 < p <= 1 for p in draft.probs)
    threads = {span.stage: span.thread for span in trace.spans}
    assert threads["draft_decode"] != threads["target_prefill"]
    drafting = sum(trace.stages[stage] for stage in ("event_encode", "draft_prefill", "draft_decode"))
    assert trace.hidden == pytest.approx(drafting)


def test_draft_leaves_its_device_to_rehearsals(pair, windows, blind):
    """The draft begins after a window without usable frames, and without rehearsals."""

    def drafts(decoder, window):
        for frame, stamp_ns in zip(window.frames, window.frame_stamps_ns, strict=True):
            decoder.stream_frame(window.index, frame, stamp_ns, rehearsed=OPTIONS)
        works = [decoder.stream_event_image(window.index, image, OPTIONS) for image in window.event_images]
        decoder.caption(window, OPTIONS, Trace())
        return works[-1] is not None

    seen = (windows[0], windows[1], blind, windows[2], windows[3])
    numbered = [replace(window, index=i) for i, window in enumerate(seen)]
    rehearsing = Policy(make_proposers((REHEARSAL, EVENT_DRAFT)), None)
    with closing(PrefillHiddenDecoder(pair, rehearsing)) as decoder:
        found = [drafts(decoder, window) for window in numbered]
    # The target cannot rehearse a window without frames.
    assert found == [True, False, True, True, False]
    with closing(PrefillHiddenDecoder(pair, Policy(make_proposers((EVENT_DRAFT,)), None))) as decoder:
        assert all(drafts(decoder, window) for window in numbered[:2])


def test_unfinished_draft_is_used_at_the_close(pair, windows, decoder, seen, monkeypatch):
    append, two, stop = EventDraft._append, threading.Event(), decoder._live.get(0).stop_draft

    def slowly(self, *args):
        append(self, *args)  # type: ignore[arg-type]
        if len(self.tokens) == 2:
            two.set()
            assert stop.wait(WAIT_S)

    monkeypatch.setattr(EventDraft, "_append", slowly)
    texts: list[str] = []
    for image in windows[0].event_images:
        decoder.stream_event_image(0, image, OPTIONS, texts.append)
    assert two.wait(WAIT_S)
    answer = decoder.caption(windows[0], OPTIONS, Trace())
    assert answer.token_ids == generated(pair, windows[0])
    assert texts == [] and {len(context.drafts[EVENT_DRAFT].tokens) for context in seen} == {2}


def test_draft_for_another_question_is_not_used(pair, windows, decoder):
    for image in windows[0].event_images:
        running = decoder.stream_event_image(0, image, Options("Who?"))
    assert running is not None
    running.result(WAIT_S)
    blind = first_frames(windows[0], 0)
    alone = event_draft(pair, blind.event_images, QUESTION, 64)
    alone.run(Trace())
    assert decoder.caption(blind, OPTIONS, Trace()).token_ids == tuple(alone.tokens)


def test_draft_of_too_few_images_is_not_published(pair, windows, decoder):
    """The previous window lost event images, so that this window's draft begins too early."""
    decoder.caption(replace(windows[1], event_images=windows[1].event_images[:2]), OPTIONS, Trace())
    running = decoder.stream_event_image(2, windows[0].event_images[0], OPTIONS)
    assert running is not None
    running.result(WAIT_S)
    blind = replace(first_frames(windows[0], 0), index=2)
    alone = event_draft(pair, blind.event_images, QUESTION, 64)
    alone.run(Trace())
    assert decoder.caption(blind, OPTIONS, Trace()).token_ids == tuple(alone.tokens)


def test_draft_that_fails_costs_no_caption(pair, windows, decoder, monkeypatch, caplog):
    monkeypatch.setattr(EventGPT, "encode", lambda self, images: 1 / 0)
    for image in windows[0].event_images:
        decoder.stream_event_image(0, image, OPTIONS)
    assert decoder.caption(windows[0], OPTIONS, Trace()).token_ids == generated(pair, windows[0])
    assert "the event draft failed" in caplog.text
