"""llama.cpp and OpenVINO GenAI write what the target writes, or give their reason."""

from __future__ import annotations

from contextlib import closing
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from crossspec_lab.baselines import openvino
from crossspec_lab.baselines.llama import LlamaCpp
from crossspec_lab.baselines.one_shot import Alone
from crossspec_lab.world.phrases import QUESTION

from crossspec_ros.models.loading import load_pair
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.models.placement import has_llama
from crossspec_ros.paths import share_dir, tiny_models
from crossspec_ros.settings import NO_DRAFT
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

QWEN = str(share_dir() / "models" / "tiny_qwen3_vl")


@pytest.mark.skipif(not has_llama(), reason="llama.cpp is not installed")
@pytest.mark.parametrize("target", ["", QWEN])
def test_llama_captions_are_the_targets(target: str, windows: list[Window]) -> None:
    pair = load_pair(tiny_models(), target=target, draft=NO_DRAFT)
    with closing(LlamaCpp(pair, "F32")) as llama, closing(Alone(pair)) as alone:
        for window in windows[:2]:
            assert llama(window, QUESTION, Trace()).tokens == alone(window, QUESTION, Trace()).tokens


# importorskip would import it, and openvino sends usage data on import.
@pytest.mark.skipif(not find_spec("openvino_genai"), reason="openvino-genai is not installed")
@pytest.mark.parametrize("lookup", [False, True])
def test_openvino_captions_are_the_targets(lookup: bool, pair: ModelPair, windows: list[Window]) -> None:
    decoder = openvino.OpenVino(pair, lookup)
    with closing(Alone(pair)) as alone:
        for window in windows[:2]:
            trace = Trace()
            written = decoder(window, QUESTION, trace)
            assert written.tokens == alone(window, QUESTION, Trace()).tokens
            assert sum(written.accept_lengths) == len(written.tokens)
            assert lookup or set(written.accept_lengths) == {1}
            assert {span.stage for span in trace.spans} == {"frame_encode", "target_prefill", "decode"}
            assert list(trace.marks) == ["first_token"]


def test_obstacles_of_openvino_are_found(pair: ModelPair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvino, "find_spec", lambda name: SimpleNamespace())
    assert openvino.find_obstacle(pair) == ""
    qwen = load_pair(tiny_models(), target=QWEN, draft=NO_DRAFT)
    assert "optimum-intel" in openvino.find_obstacle(qwen)
    monkeypatch.setattr(openvino, "find_spec", lambda name: None)
    assert "not installed" in openvino.find_obstacle(pair)
