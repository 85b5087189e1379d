"""The decoders as they are used: warm, with a memory that is kept."""

from __future__ import annotations

from pathlib import Path

from plain_target import QUESTION, generated, live
from refusals import refused

from crossspec_ros.captioning.assembly import speculative_decoder
from crossspec_ros.captioning.caption import Options
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def test_the_memory_goes_on_where_the_last_session_ended(
    pair: ModelPair, windows: list[Window], tmp_path: Path
) -> None:
    path, passes = tmp_path / "memory.json", []
    for _ in range(2):
        decoder = speculative_decoder(pair, memory=path)
        caption = decoder.caption(windows[0], Options(QUESTION), Trace())
        assert caption.token_ids == generated(pair, windows[0])
        passes.append(caption.target_passes)
        decoder.close()
    assert passes[1] < passes[0] / 3


def test_everything_together_writes_what_generate_writes(pair: ModelPair, windows: list[Window]) -> None:
    decoder = speculative_decoder(pair)
    for window in [*windows, *windows]:
        live(decoder, window)
        caption = decoder.caption(window, Options(QUESTION), Trace())
        assert caption.token_ids == generated(pair, window)
    assert caption.target_passes < 12 and set(caption.drafted) == {"memory", "event_draft"}
    decoder.close()


def test_a_memory_that_cannot_be_kept_is_refused(pair: ModelPair, tmp_path: Path) -> None:
    with refused("memory-folder-missing"):
        speculative_decoder(pair, memory=tmp_path / "nowhere" / "memory.json")


def test_warming_up_leaves_no_window_to_ask_about(pair: ModelPair) -> None:
    decoder = speculative_decoder(pair)
    with refused("no-window-after-warm-up"):
        decoder.ask(Options(QUESTION), Trace())
    decoder.close()
