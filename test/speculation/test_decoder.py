"""Both modes write what transformers' own greedy `generate` writes, whatever was drafted."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from crossspec_ros.errors import InputError
from crossspec_ros.speculation import decoder as decoder_module
from crossspec_ros.speculation.decoder import Caption, PrefillHiddenDecoder
from crossspec_ros.speculation.event_draft import EventDraft
from crossspec_ros.speculation.target_session import TargetSession
from crossspec_ros.speculation.verify import agreement
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.training.world.grammar import QUESTION
from crossspec_ros.vlm.loading import ModelPair
from crossspec_ros.vlm.preprocess import clip_pixels
from crossspec_ros.vlm.prompts import target_prompt
from crossspec_ros.windows.window import Window


@torch.inference_mode()
def generated(pair: ModelPair, window: Window, limit: int = 64) -> tuple[int, ...]:
    """transformers' greedy tokens, from token ids and pixels, through none of our decoding code."""
    before, after = target_prompt(QUESTION)
    encode = pair.target_tokenizer.encode
    video = [pair.target.config.video_token_index] * pair.target.config.video_seq_length
    ids = [*encode(before).ids, *video, *encode(after, add_special_tokens=False).ids]
    out = pair.target.generate(
        input_ids=torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        pixel_values_videos=clip_pixels(window.frames, pair.frame_size)[None],
        do_sample=False,
        max_new_tokens=limit,
    )
    return tuple(out[0, len(ids) :].tolist())


def caption(pair: ModelPair, window: Window, mode: str = "prefill_hidden", limit: int = 64) -> Caption:
    decoder = PrefillHiddenDecoder(pair, mode, limit)
    try:
        return decoder.caption(window, QUESTION, Trace())
    finally:
        decoder.close()


@pytest.mark.parametrize("mode", ["autoregressive", "prefill_hidden"])
@pytest.mark.parametrize("i", range(4))
def test_the_caption_is_what_generate_writes(
    pair: ModelPair, windows: list[Window], i: int, mode: str
) -> None:
    assert caption(pair, windows[i], mode).token_ids == generated(pair, windows[i])


@pytest.fixture
def drafted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What this list holds when the target is ready is the proposal, instead of the draft's own tokens."""
    tokens: list[int] = []
    monkeypatch.setattr(EventDraft, "proposal", lambda self: list(tokens))
    return tokens


def test_every_accepted_length_gives_the_same_caption(
    pair: ModelPair, windows: list[Window], drafted: list[int]
) -> None:
    wanted = generated(pair, windows[1])
    for right in range(len(wanted)):
        wrong = [(wanted[right] + 1) % pair.shared_ids, 17, 18]
        drafted[:] = [*wanted[:right], *wrong]
        said = caption(pair, windows[1])
        assert said.token_ids == wanted
        assert said.accepted == right
        assert said.drafted == right + 3


def test_a_perfect_draft_needs_two_passes(pair: ModelPair, windows: list[Window], drafted: list[int]) -> None:
    drafted[:] = wanted = list(generated(pair, windows[2]))
    said = caption(pair, windows[2])
    assert list(said.token_ids) == wanted and said.target_passes == 2
    assert said.mean_acceptance_length == len(wanted) - 1


def test_end_of_sequence_anywhere_in_the_draft_changes_nothing(
    pair: ModelPair, windows: list[Window], drafted: list[int]
) -> None:
    wanted = generated(pair, windows[0])
    for at in range(0, len(wanted), 5):
        drafted[:] = [*wanted[:at], pair.eos_id, *wanted[at:]]
        assert caption(pair, windows[0]).token_ids == wanted
    drafted[:] = [*wanted, 5, 6, pair.eos_id]
    assert caption(pair, windows[0]).token_ids == wanted


@pytest.mark.parametrize("limit", [1, 2, 9, 20])
def test_a_length_limit_cuts_where_generate_cuts(
    pair: ModelPair, windows: list[Window], drafted: list[int], limit: int
) -> None:
    drafted[:] = generated(pair, windows[3])
    said = caption(pair, windows[3], limit=limit)
    assert said.token_ids == generated(pair, windows[3], limit) and len(said.token_ids) == limit


def test_a_verifier_that_is_off_by_one_is_caught(
    pair: ModelPair, windows: list[Window], drafted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = generated(pair, windows[1])
    drafted[:] = [*wanted[:6], (wanted[6] + 1) % pair.shared_ids, 9]
    right = caption(pair, windows[1])
    monkeypatch.setattr(
        decoder_module, "agreement", lambda a, b: min(agreement(a, b) + 1, len(a)) if len(a) > 1 else 1
    )
    assert right.token_ids == wanted != caption(pair, windows[1]).token_ids


def test_ids_above_the_common_vocabulary_are_never_proposed(pair: ModelPair, windows: list[Window]) -> None:
    draft = EventDraft(pair, windows[0].event_images, QUESTION, 8)
    draft._tokens = [5, pair.shared_ids, 6]
    assert draft.proposal() == [5]
    assert pair.shared_ids == pair.target.config.image_token_index


def test_a_window_without_frames_is_captioned_by_the_draft_and_says_so(
    pair: ModelPair, blind: Window
) -> None:
    for mode in decoder_module.MODES:
        said = caption(pair, blind, mode)
        assert said.source == "event_draft" and said.text.startswith("The key elements")
        assert said.target_passes == 0


def test_a_window_without_anything_has_no_caption(pair: ModelPair, blind: Window) -> None:
    nothing = replace(blind, event_images=np.empty((0, 0, 0, 3), np.uint8))
    assert caption(pair, nothing).source == "none"


@pytest.mark.parametrize("frames", [1, 3, 8])
def test_fewer_frames_are_captioned_too(pair: ModelPair, windows: list[Window], frames: int) -> None:
    window = replace(windows[0], frames=windows[0].frames[:frames])
    assert caption(pair, window).token_ids == caption(pair, window, "autoregressive").token_ids


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that starts decoding only when the draft is finished."""
    append_prompt, finished = TargetSession.append_prompt, threading.Event()
    run = EventDraft.run

    def run_and_tell(*args: object) -> bool:
        try:
            return run(*args)  # type: ignore[arg-type]
        finally:
            finished.set()

    def wait_and_append(self: TargetSession, question: str) -> int:
        assert finished.wait(20)
        return append_prompt(self, question)

    monkeypatch.setattr(EventDraft, "run", run_and_tell)
    monkeypatch.setattr(TargetSession, "append_prompt", wait_and_append)


@pytest.mark.usefixtures("patient")
def test_the_draft_is_announced_and_its_work_is_in_the_trace(pair: ModelPair, windows: list[Window]) -> None:
    decoder, trace, said = PrefillHiddenDecoder(pair), Trace(), []
    decoder.caption(windows[0], QUESTION, trace, said.append)
    decoder.close()
    assert len(said) == 1 and said[0].startswith("The key elements")
    stages = {"event_encode", "draft_prefill", "draft_decode", "frame_encode", "target_prefill"}
    assert stages <= set(trace.stages) and "first_token" in trace.marks
    assert sum(span.stage == "frame_encode" for span in trace.spans) == len(windows[0].frames)
    threads = {span.stage: span.thread for span in trace.spans}
    assert threads["draft_decode"] != threads["target_prefill"]


def test_a_draft_that_the_target_overtakes_ends_with_its_window(
    pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    append = EventDraft._append

    def slowly(self: EventDraft, *args: object) -> None:
        time.sleep(0.2)
        append(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(EventDraft, "_append", slowly)
    decoder, trace, said = PrefillHiddenDecoder(pair), Trace(), []
    captions = [decoder.caption(window, QUESTION, trace, said.append) for window in windows]
    assert said == []
    assert [c.token_ids for c in captions] == [generated(pair, window) for window in windows]
    decoder.close()


@pytest.mark.usefixtures("patient")
def test_a_draft_that_fails_costs_no_caption(
    pair: ModelPair, windows: list[Window], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(EventDraft, "_encode", lambda self: 1 / 0)
    assert caption(pair, windows[0]).token_ids == generated(pair, windows[0])
    assert "the event draft failed" in caplog.text


def test_cancelling_ends_after_the_pass_in_flight(pair: ModelPair, windows: list[Window]) -> None:
    decoder, cancel = PrefillHiddenDecoder(pair, "autoregressive"), threading.Event()
    cancel.set()
    assert len(decoder.caption(windows[0], QUESTION, Trace(), cancel=cancel).token_ids) == 1
    decoder.close()


def test_an_unknown_mode_is_refused(pair: ModelPair) -> None:
    with pytest.raises(InputError, match="'turbo' does not exist"):
        PrefillHiddenDecoder(pair, "turbo")


def test_guesses_are_what_decoding_would_say(pair: ModelPair, windows: list[Window]) -> None:
    draft = EventDraft(pair, windows[0].event_images, QUESTION, 64)
    assert draft.run(Trace())
    assert draft.guesses(draft.tokens) == draft.tokens
