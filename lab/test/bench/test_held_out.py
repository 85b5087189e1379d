"""Windows given to a decoder as while they are open."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

from crossspec_lab.baselines.one_shot import Alone
from crossspec_lab.bench.held_out import stream
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import make_proposers
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.settings import REHEARSAL
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


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
