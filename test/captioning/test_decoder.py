"""Whatever is drafted and however the passes fall, the caption is what transformers' `generate` writes."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from plain_target import QUESTION, Guess, caption, chain, event_draft, first_frames, generated, script, stream
from refusals import refused

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.draft_model import EventDraft
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.drafting.proposers.memory import CaptionMemory
from crossspec_ros.engine import accept
from crossspec_ros.engine.accept import greedy_path
from crossspec_ros.engine.kv import KVRow
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.engine.model_runner import ModelRunner
from crossspec_ros.engine.pass_cost import PassCost
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.engine.tree import ROOT, DraftTree
from crossspec_ros.models.eventgpt import EventGPT
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

OTHER = "Is it dark?"


@pytest.fixture
def decoder(pair: ModelPair) -> Iterator[PrefillHiddenDecoder]:
    """Drafts with whatever the test gives its policy."""
    decoder = PrefillHiddenDecoder(pair, Policy((), None))
    yield decoder
    decoder.close()


def poor(rate: int) -> Callable[[Sequence[int]], Guess]:
    """A draft of which every so many-th token is wrong."""
    return lambda wanted: script([t + 1 if i % rate == rate - 1 else t for i, t in enumerate(wanted)])


def bushy(wanted: Sequence[int]) -> Guess:
    """Three right tokens between dead ends, and once more as duplicates."""

    def tree(context: Context) -> DraftTree:
        at = len(context.tokens)
        if len(wanted) < at + 3:
            return DraftTree()
        a, b, c = wanted[at : at + 3]
        tokens = (b + 1, a, b + 1, b, a, b + 1, c, b, a + 1)
        parents = (ROOT, ROOT, 0, 1, ROOT, 1, 3, 4, 3)
        return DraftTree(tokens, parents, (0.5,) * 9, (("guess",),) * 9)

    return Guess(tree)


DRAFTS = {"nothing": lambda wanted: Guess(lambda context: chain([])), "all": script, "bushes": bushy}
DRAFTS |= {f"1 of {rate} wrong": poor(rate) for rate in (2, 3, 7)}
TOKENS_A_PASS = {"nothing": 1, "all": 64, "bushes": 4} | {f"1 of {rate} wrong": rate for rate in (2, 3, 7)}


@pytest.mark.parametrize(
    ("draft", "streamed", "attention"),
    [*product(DRAFTS, [False, True], ["sdpa"]), ("1 of 3 wrong", True, "eager")],
)
def test_whatever_is_drafted_the_caption_is_that_of_generate(
    pair: ModelPair, windows: list[Window], draft: str, streamed: bool, attention: str
) -> None:
    pair.target.module.set_attn_implementation(attention)
    try:
        for window in windows[:2]:
            wanted = generated(pair, window)
            said = caption(pair, window, DRAFTS[draft](wanted), streamed=streamed)
            assert said.token_ids == wanted
            fewest = -(-len(wanted) // TOKENS_A_PASS[draft])
            assert fewest <= said.target_passes <= fewest + (3 if draft == "bushes" else 0)
    finally:
        pair.target.module.set_attn_implementation("sdpa")


def off_by_one(tree: DraftTree, choices: list[int]) -> tuple[tuple[int, ...], int]:
    path, _ = greedy_path(tree, choices)
    path = (*path, len(path)) if len(path) < len(tree) else path
    return path, choices[len(path)]


def keep_all(self: KVRow, length: int, moved: list[int] | tuple[int, ...] = ()) -> None:
    _keep(self, self.length if moved else length)


_keep = KVRow.keep


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (accept, "greedy_path", off_by_one),
        (DraftTree, "depths", lambda tree: [0] * len(tree)),
        (KVRow, "keep", keep_all),
    ],
    ids=["verifier", "positions", "cache"],
)
def test_a_broken_part_is_noticed(
    pair: ModelPair,
    windows: list[Window],
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    broken: Any,
) -> None:
    wanted = generated(pair, windows[1])
    monkeypatch.setattr(owner, name, broken)
    assert caption(pair, windows[1], poor(4)(wanted)).token_ids != wanted


def asked(decoder: PrefillHiddenDecoder, wanted: Sequence[int], draft: Sequence[int]) -> Caption:
    """The caption once more, about frames that are read: first as drafted, and then as it is wanted."""
    proposer = Guess(lambda context: chain(wanted[len(context.tokens) :] if context.tokens else draft))
    decoder.policy = Policy((proposer,), None)
    return decoder.ask(QUESTION, Trace())


def test_any_accepted_length_gives_the_same_caption(pair: ModelPair, windows: list[Window]) -> None:
    wanted = generated(pair, windows[1])
    for right in range(0, len(wanted), 3):
        wrong = [(wanted[right] + 1) % pair.shared_ids, 17, 18]
        first = Guess(lambda c, draft=[*wanted[:right], *wrong]: chain([] if c.tokens else draft))
        said = caption(pair, windows[1], first, streamed=bool(right % 2))
        assert said.token_ids == wanted
        assert said.accepted.get("guess", 0) == right
        assert said.drafted == {"guess": right + 3}


def test_end_of_sequence_anywhere_in_the_draft_changes_nothing(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    wanted, eos = generated(pair, windows[0]), pair.target.spec.eos_ids[0]
    decoder.caption(windows[0], QUESTION, Trace())
    for at in range(len(wanted)):
        assert asked(decoder, wanted, [*wanted[:at], eos, *wanted[at:]]).token_ids == wanted
    assert asked(decoder, wanted, [*wanted, 5, 6, eos]).token_ids == wanted


def test_a_target_that_ends_at_any_position_ends_there(
    pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = generated(pair, windows[0])
    for at in range(0, 12):
        # Any token may stand for the end: the first time the target says it, the caption is over.
        target = copy.copy(pair.target)
        target.spec = replace(pair.target.spec, eos_ids=(wanted[at],))  # type: ignore[misc]
        ended = replace(pair, target=target)
        end = wanted.index(wanted[at]) + 1
        for proposer in (Guess(lambda c: chain([])), script(wanted), script([*wanted[: at - 1], 7, 7])):
            said = caption(ended, windows[0], proposer)
            assert said.token_ids == wanted[:end]


@pytest.mark.parametrize("limit", [1, 2, 9, 20])
def test_a_length_limit_cuts_where_generate_cuts(pair: ModelPair, windows: list[Window], limit: int) -> None:
    wanted = generated(pair, windows[3])
    for proposer in (script(wanted), script(wanted[: limit - 1]), Guess(lambda c: chain([]))):
        said = caption(pair, windows[3], proposer, limit=limit)
        assert said.token_ids == generated(pair, windows[3], limit) and len(said.token_ids) == limit
        assert said.accepted.get("guess", 0) <= limit


@pytest.mark.parametrize("frames", [1, 4, 8])
@pytest.mark.parametrize("read_ahead", [0, 3, 8])
def test_any_number_of_frames_read_ahead_or_not(
    pair: ModelPair, windows: list[Window], frames: int, read_ahead: int, decoder: PrefillHiddenDecoder
) -> None:
    window = first_frames(windows[0], frames)
    stream(decoder, window, read_ahead)
    said = decoder.caption(window, QUESTION, trace := Trace())
    assert said.token_ids == generated(pair, window)
    encoded = [span.name for span in trace.spans if span.stage == "frame_encode"]
    # What was not read ahead goes through the tower at once.
    at_once = [frames - 1] if frames > read_ahead else []
    assert encoded == [f"frame_encode[{i}]" for i in (*range(min(read_ahead, frames)), *at_once)]


def test_a_window_that_loses_a_frame_at_its_close_is_read_anew_and_encodes_nothing_again(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    stream(decoder, windows[0])
    kept = [0, 2, 3, 6]
    stamps = tuple(windows[0].frame_stamps_ns[i] for i in kept)
    window = replace(windows[0], frames=windows[0].frames[kept], frame_stamps_ns=stamps)
    said = decoder.caption(window, QUESTION, trace := Trace())
    assert said.token_ids == generated(pair, window)
    encoded = [span.name for span in trace.spans if span.stage == "frame_encode"]
    assert encoded == [f"frame_encode[{i}]" for i in range(8)]


def test_when_time_begins_anew_a_window_has_the_frames_that_came_last(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    stream(decoder, windows[1], 5)
    again = replace(windows[0], index=1)
    stream(decoder, again, 7)
    assert decoder.caption(again, QUESTION, Trace()).token_ids == generated(pair, again)


def test_a_frame_that_cannot_be_read_ahead_costs_no_caption(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream(decoder, windows[0], 1)
    with monkeypatch.context() as broken:
        broken.setattr(ModelRunner, "read", lambda self, readings: 1 / 0)
        read = decoder.stream_frame(0, windows[0].frames[1], windows[0].frame_stamps_ns[1])
        assert read is not None and isinstance(read.exception(20), ZeroDivisionError)
    assert decoder.caption(windows[0], QUESTION, Trace()).token_ids == generated(pair, windows[0])


def test_frames_that_come_while_the_robot_is_answered_are_read_together_afterwards(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    reads = []

    def next_window_comes(text: str) -> None:
        while len(reads) < 8:
            i = len(reads)
            reads.append(decoder.stream_frame(1, windows[1].frames[i], windows[1].frame_stamps_ns[i]))

    first = decoder.caption(windows[0], QUESTION, Trace(), next_window_comes)
    for read in reads:
        assert read is not None
        read.result(20)
    second = decoder.caption(windows[1], QUESTION, trace := Trace())
    assert first.token_ids == generated(pair, windows[0])
    assert second.token_ids == generated(pair, windows[1])
    prefills = [span.name for span in trace.spans if span.stage == "target_prefill"]
    assert prefills == ["target_prefill[7]", "target_prefill[8]"]


def test_further_questions_use_what_was_read(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    with refused("no-window-yet"):
        decoder.ask(OTHER, Trace())
    decoder.caption(windows[0], QUESTION, Trace())
    for question in (OTHER, QUESTION, "What is this?"):
        said = decoder.ask(question, trace := Trace())
        assert said.token_ids == generated(pair, windows[0], question=question)
        assert "frame_encode" not in trace.stages


def test_a_window_without_frames_is_captioned_by_the_draft_and_says_so(
    pair: ModelPair, blind: Window
) -> None:
    said = caption(pair, blind)
    assert said.source == "event_draft" and said.text.startswith("The key elements")
    assert said.target_passes == 0


def test_the_event_draft_is_written_before_the_window_closes(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    done, texts = threading.Event(), []

    def tell(text: str) -> None:
        texts.append(text)
        done.set()

    seen: list[Context] = []
    decoder.policy = Policy((Guess(lambda c: (seen.append(c), chain([]))[1]),), None)
    images = windows[0].event_images
    for i, image in enumerate(images):
        decoder.stream_event_image(0, image, QUESTION, tell)
        if i < 3:
            assert not decoder._open.get(0).running
    assert done.wait(20)
    trace = Trace()
    trace.mark("closed")
    decoder.caption(windows[0], QUESTION, trace)
    assert len(texts) == 1 and texts[0].startswith("The key elements")
    early = event_draft(pair, images[:4], QUESTION, 64)
    early.run(Trace())
    assert (seen[0].draft_tokens, seen[0].draft_probs) == early.proposal()
    assert len(seen[0].draft_tokens) > 20 and all(0 < p <= 1 for p in seen[0].draft_probs)
    assert seen[0].feature is not None and np.array_equal(seen[0].feature, early.feature)
    threads = {span.stage: span.thread for span in trace.spans}
    assert threads["draft_decode"] != threads["target_prefill"]
    drafting = sum(trace.stages[stage] for stage in ("event_encode", "draft_prefill", "draft_decode"))
    assert trace.hidden == pytest.approx(drafting)


def test_a_draft_that_is_not_done_at_the_close_is_ended_and_used_as_far_as_it_came(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, two, stop = EventDraft._append, threading.Event(), decoder._open.get(0).stop

    def slowly(self: EventDraft, *args: object) -> None:
        append(self, *args)  # type: ignore[arg-type]
        if len(self.tokens) == 2:
            two.set()
            assert stop.wait(20)

    monkeypatch.setattr(EventDraft, "_append", slowly)
    seen: list[Context] = []
    decoder.policy = Policy((Guess(lambda c: (seen.append(c), chain([]))[1]),), None)
    texts: list[str] = []
    for image in windows[0].event_images:
        decoder.stream_event_image(0, image, QUESTION, texts.append)
    assert two.wait(20)
    said = decoder.caption(windows[0], QUESTION, Trace())
    assert said.token_ids == generated(pair, windows[0])
    assert texts == [] and {len(context.draft_tokens) for context in seen} == {2}


def test_a_draft_for_another_question_is_no_answer_to_this_one(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    for image in windows[0].event_images:
        running = decoder.stream_event_image(0, image, "Who?")
    assert running is not None
    running.result(20)
    blind = first_frames(windows[0], 0)
    alone = event_draft(pair, blind.event_images, QUESTION, 64)
    alone.run(Trace())
    assert decoder.caption(blind, QUESTION, Trace()).token_ids == tuple(alone.tokens)


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (" ", "question-empty"),
        ("x y " * 2400, "question-of-many-tokens"),
        ("x" * 3_000_000, "question-too-long"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(
    decoder: PrefillHiddenDecoder, question: str, code: str
) -> None:
    with refused(code):
        decoder.ask(question, Trace())
    decoder.check_question("Who is on the road, and what are they doing there?")


def test_a_draft_that_fails_costs_no_caption(
    pair: ModelPair,
    windows: list[Window],
    decoder: PrefillHiddenDecoder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(EventGPT, "encode", lambda self, images: 1 / 0)
    for image in windows[0].event_images:
        decoder.stream_event_image(0, image, QUESTION)
    assert decoder.caption(windows[0], QUESTION, Trace()).token_ids == generated(pair, windows[0])
    assert "the event draft failed" in caplog.text


def test_verified_words_are_told_as_they_come(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    wanted = generated(pair, windows[0])
    decoder.policy = Policy((script(wanted[:20]),), None)
    words: list[str] = []
    said = decoder.caption(windows[0], QUESTION, Trace(), on_words=words.append)
    assert len(words) == said.target_passes and words[-1] == said.text
    assert all(later.startswith(earlier) for earlier, later in pairwise(words))


def test_cancelling_and_deadlines_end_after_the_pass_in_flight(
    windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    cancel = threading.Event()
    cancel.set()
    said = decoder.caption(windows[0], QUESTION, Trace(), cancel=cancel)
    assert len(said.token_ids) == 1 and not said.late
    said = decoder.caption(windows[0], QUESTION, Trace(), deadline_ns=time.perf_counter_ns())
    assert len(said.token_ids) == 1 and said.late
    later = time.perf_counter_ns() + 60 * 10**9
    assert not decoder.caption(windows[0], QUESTION, Trace(), deadline_ns=later).late


def test_sampling_may_change_between_captions(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    def said(sampling: Sampling | None) -> tuple[int, ...]:
        decoder.sampling = sampling
        return decoder.caption(windows[0], QUESTION, Trace()).token_ids

    greedy = said(None)
    hot = said(Sampling(3.0, 1.0, 1))
    assert greedy == generated(pair, windows[0]) != hot
    assert said(Sampling(3.0, 1.0, 1)) != hot  # the same draws go on
    said(Sampling(3.0, 1.0, 2))
    assert said(Sampling(3.0, 1.0, 1)) == hot
    assert said(None) == greedy

    def cool(text: str) -> None:
        decoder.sampling = None

    said(Sampling(3.0, 1.0, 2))
    decoder.sampling = Sampling(3.0, 1.0, 1)
    # A caption keeps to the sampling that it began with.
    assert decoder.caption(windows[0], QUESTION, Trace(), on_words=cool).token_ids == hot


def test_passes_are_measured_and_correct_the_cost_model(
    windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    cost = decoder.engine.measure()
    assert 0 < cost.table()[1] < cost.table()[129]
    before = PassCost(cost.table())
    decoder.policy = Policy((), cost)
    decoder.caption(windows[0], QUESTION, Trace())
    assert cost.table()[1] != before.table()[1]


def test_a_late_caption_is_learned_as_far_as_it_goes(
    windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    guess = Guess(lambda context: chain([]))
    decoder.policy = Policy((guess,), None)
    decoder.caption(windows[0], QUESTION, Trace(), deadline_ns=0)
    assert guess.results == []  # nobody waits for it
    decoder.work_ahead(1, QUESTION)
    assert [result.ended for result in guess.results] == [True]
    decoder.caption(windows[1], QUESTION, Trace(), deadline_ns=0)
    decoder.caption(windows[2], QUESTION, Trace(), deadline_ns=0)
    decoder.close()
    assert [result.ended for result in guess.results] == [True] * 3


def begin(decoder: PrefillHiddenDecoder, window: Window, question: str = QUESTION) -> None:
    """Let the window's frames come, and begin its answer before it closes."""
    stream(decoder, window, 7)
    last = len(window.frames) - 1
    assert decoder.stream_frame(window.index, window.frames[last], window.frame_stamps_ns[last], True) is None
    decoder.begin(window.index, question)


@pytest.mark.parametrize("passes", [0, 1, 3, 100])
def test_an_answer_that_was_begun_before_the_close_is_told_after_it(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder, passes: int
) -> None:
    wanted = generated(pair, windows[0])
    decoder.policy = Policy((script(wanted[:20]),), None)
    begin(decoder, windows[0])
    for _ in range(passes):
        if not decoder.advance(0):
            break
    trace, words = Trace(), list[str]()
    trace.mark("closed")
    said = decoder.caption(windows[0], QUESTION, trace, words.append)
    assert said.token_ids == wanted and words[-1] == said.text
    assert said.target_passes == 1 + len(wanted) - 21
    # The last frame is encoded and read together with the question.
    assert [span.name for span in trace.spans].count("target_prefill[8]") == 1
    assert trace.marks["first_token"] >= trace.marks["closed"]
    answer = next(span for span in trace.spans if span.name == "answer")
    assert (answer.end_ns < trace.marks["closed"]) == (passes == 100)


def test_an_answer_about_something_else_is_thrown_away(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    guess = Guess(lambda context: chain([]))
    decoder.policy = Policy((guess,), None)
    begin(decoder, windows[0], OTHER)
    while decoder.advance(0):
        pass
    assert decoder.caption(windows[0], QUESTION, Trace()).token_ids == generated(pair, windows[0])
    # A frame turned out to be blind.
    window = replace(windows[1], frames=windows[1].frames[1:], frame_stamps_ns=windows[1].frame_stamps_ns[1:])
    begin(decoder, windows[1])
    decoder.advance(1)
    assert decoder.caption(window, QUESTION, Trace()).token_ids == generated(pair, window)
    # All of them are, and nobody drafts.
    begin(decoder, replace(windows[2], index=2))
    nothing = replace(first_frames(windows[2], 0), index=2, event_images=windows[2].event_images[:0])
    assert decoder.caption(nothing, QUESTION, Trace()).source == "none"
    # Sampling or length have changed.
    later = replace(windows[3], index=windows[3].index + 1)
    decoder.sampling = Sampling(3.0, 1.0, 1)
    begin(decoder, windows[3])
    decoder.advance(windows[3].index)
    decoder.sampling = None
    assert decoder.caption(windows[3], QUESTION, Trace()).token_ids == generated(pair, windows[3])
    begin(decoder, later)
    decoder.max_new_tokens = 5
    assert decoder.caption(later, QUESTION, Trace()).token_ids == generated(pair, windows[3], 5)
    decoder.close()
    # What was thrown away taught the end of no caption.
    assert sum(result.ended for result in guess.results) == 4


def test_an_answer_that_fails_early_is_made_anew_at_the_close(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(decoder, windows[0])
    decoder.advance(0)
    with monkeypatch.context() as broken:
        broken.setattr(ModelRunner, "read", lambda self, readings: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            decoder.advance(0)
    assert decoder.caption(windows[0], QUESTION, Trace()).token_ids == generated(pair, windows[0])


def test_two_frames_with_one_stamp_are_two_frames(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    doubled = replace(windows[0], frame_stamps_ns=(0, 0, *windows[0].frame_stamps_ns[2:]))
    assert decoder.caption(doubled, QUESTION, Trace()).token_ids == generated(pair, windows[0])


def test_every_session_gives_its_buffers_back(pair: ModelPair, windows: list[Window]) -> None:
    engine = LocalEngine(pair.target)
    engine.warm_up(3)
    decoder = PrefillHiddenDecoder(pair, Policy((), None), engine=engine)
    begin(decoder, windows[0])
    decoder.advance(0)
    stream(decoder, windows[0], 1)  # time begins anew
    assert not decoder.advance(0)
    begin(decoder, windows[1])
    decoder.give_up()
    alone = decoder.alone()
    for window in windows:
        decoder.caption(window, QUESTION, Trace())
        alone.caption(window, QUESTION, Trace())
        alone.forget()
    taken: list[object] = []
    engine.scheduler.submit(lambda: taken.extend(engine.runner._free)).result(20)
    decoder.forget()
    engine.scheduler.submit(lambda: taken.extend(engine.runner._free)).result(20)
    assert len(taken) == 2 + 3  # all but that of the window captioned last; then all
    session = engine.open(9, Trace())
    session.close()
    with pytest.raises(RuntimeError):
        session.step(DraftTree()).result(20)
    alone.close()
    decoder.close()
    engine.close()
    assert engine.scheduler.submit(lambda: None).cancelled()


def test_a_window_that_is_never_captioned_holds_nobody_up(
    pair: ModelPair, windows: list[Window], decoder: PrefillHiddenDecoder
) -> None:
    begin(decoder, windows[0])
    decoder.advance(0)
    later = replace(windows[1], index=3)
    assert decoder.caption(later, QUESTION, Trace()).token_ids == generated(pair, later)
    stream(decoder, replace(windows[2], index=4))


def test_without_a_draft_and_without_events_the_target_is_read_and_speaks(
    pair: ModelPair, windows: list[Window]
) -> None:
    decoder = PrefillHiddenDecoder(
        replace(pair, draft=None, translation=None), Policy((CaptionMemory(),), None)
    )
    for window in windows:
        assert decoder.stream_event_image(window.index, windows[0].event_images[0], QUESTION) is None
        stream(decoder, window)
        said = decoder.caption(window, QUESTION, Trace())
        assert said.token_ids == generated(pair, window)
    assert said.accepted["memory"] > 0
    assert decoder.caption(first_frames(windows[0], 0), QUESTION, Trace()).source == "none"
    decoder.close()
