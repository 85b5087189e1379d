"""Windows in a row: what each decoder captions, what it drops, and how late it is."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing

import pytest
from crossspec_lab.baselines.one_shot import Alone, Written
from crossspec_lab.bench.live import stream
from crossspec_lab.bench.real_time import caption_stream
from crossspec_lab.bench.records import Record
from crossspec_lab.bench.stream import row
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import make_proposers
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.settings import REHEARSAL
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def records(*indices: int, token: int = 7) -> list[Record]:
    """Return records of eight windows, of which those of the indices have captions."""
    more = {"dropped": False, "engine_s": 0.3}
    return [
        Record("", "", i, (token, 2), wall_s=0.5 + i / 100, more=more)
        if i in indices
        else Record("", "", i, more={"dropped": True})
        for i in range(8)
    ]


def test_row_counts_dropped_windows_and_separates_new_scenes() -> None:
    alone = records(0, 2, 4, 6)
    figures = row(records(*range(8)), alone, 1.0)
    assert (figures["captioned"], figures["captions a second"], figures["equal"]) == (8, 1.0, "4 of 4")
    assert figures["last frame to caption, ms"]["median"] == pytest.approx(535) and figures["p99"] < 570
    scenes = [figures[name] for name in ("after a change of scene", "in the same scene")]
    assert scenes == pytest.approx([540, 540])
    slow = row(records(0, 3, 6, token=8), alone, 1.0)
    assert slow["captions a second"] == 3 / 8 and slow["equal"] == "0 of 2"
    # Window 6 is the first captioned one of its drive, and 3 is of the first drive.
    scenes = [slow[name] for name in ("after a change of scene", "in the same scene")]
    assert scenes == pytest.approx([560, 530])


def test_slow_decoder_captions_the_newest_window(windows: list[Window]) -> None:
    """Every window has a record, and the dropped ones lie between the captioned ones."""
    indices: list[int] = []

    def sleeper(window: Window, question: str, trace: Trace) -> Written:
        indices.append(window.index)
        time.sleep(0.25)
        return Written((5, 2), (1, 1))

    found = list(caption_stream(sleeper, [windows[0]] * 8, 0.1, "sleeper"))
    assert [one.window for one in found] == list(range(8))
    assert [one.window for one in found if not one.more["dropped"]] == indices
    assert indices[0] == 0 and indices[-1] == 7 and len(indices) < 8
    ends = [one.more["ended_s"] for one in found if not one.more["dropped"]]
    assert ends == sorted(ends)


def test_streamed_window_is_read_and_rehearsed(pair: ModelPair, windows: list[Window]) -> None:
    """The engine rehearses between the frames, and each frame is one pass of prefill."""
    window, trace, last = windows[0], Trace(), len(windows[0].frames) - 1
    with closing(Alone(pair)) as alone:
        wanted = alone(window, QUESTION, Trace()).tokens
    with closing(PrefillHiddenDecoder(pair, Policy(make_proposers((REHEARSAL,)), None))) as decoder:
        assert stream(decoder, window, frames=last) > 0
        decoder.stream_frame(window.index, window.frames[last], window.frame_stamps_ns[last], is_last=True)
        decoder.begin(window.index, Options(QUESTION))
        caption = decoder.caption(window, Options(QUESTION), trace)
    assert caption.token_ids == wanted and caption.rehearsal.is_complete
    passes = Counter(span.stage for span in trace.spans)
    assert passes["rehearsal"] == caption.rehearsal.passes > 0
    assert passes["target_prefill"] == last + 1
    assert passes["verify"] + passes["decode"] == caption.target_passes - 1
