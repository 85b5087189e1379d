"""`crossspec bench trace` replays recorded responses without looking ahead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from crossspec_lab.bench.trace import Response, read_trace, replay
from refusals import refused

from crossspec_ros.cli import main
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context, PassResult, Proposer, make_proposers
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.settings import EVENT_DRAFT, PROPOSERS

SHARED = Path(__file__).parents[4] / "shared" / "data" / "caption_trace" / "key_elements.jsonl"


class Recorder(Proposer):
    """Proposes a fixed chain at the start of each response, and keeps contexts and results."""

    name = "recorder"

    def __init__(self, chain: tuple[int, ...]) -> None:
        self._chain = chain
        self.contexts: list[Context] = []
        self.outcomes: list[PassResult] = []

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        self.contexts.append(context)
        chain = () if context.tokens else self._chain[:budget]
        return DraftTree.chain(chain, [0.9] * len(chain), self.name)

    def observe(self, outcome: PassResult) -> None:
        self.outcomes.append(outcome)


def test_pass_adds_accepted_tokens_and_one_more() -> None:
    recorder = Recorder((1, 2, 9))
    responses = [Response((1, 2, 3, 4), (7,)), Response((5, 6), ())]
    result = replay(responses, Policy((recorder,), None), "test")
    # 1 2 foreseen and 3, then 4; then 5 and 6 one by one.
    assert (result.tokens, result.passes) == ([4, 2], [2, 2])
    assert result.acceptance_length() == 1.5 and result.acceptance_length(since=1) == 1.0
    assert [context.tokens for context in recorder.contexts] == [(), (), (5,)]
    assert [outcome.tokens for outcome in recorder.outcomes] == [(1, 2, 3), (4,), (5,), (6,)]
    assert [outcome.ended for outcome in recorder.outcomes] == [False, True, False, True]
    assert recorder.contexts[0].drafts[EVENT_DRAFT].tokens == (7,)
    assert result.accepted["recorder", 1] == 1 and result.drafted["recorder", 1] == 2


@pytest.mark.nightly
def test_trace_command_writes_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, out = tmp_path / "trace.jsonl", tmp_path / "out.json"
    rows = [{"target_tokens": [5, 6, 7, 8, i % 3, 9, 2], "draft_tokens": [5, 6, 40000]} for i in range(40)]
    trace.write_text("\n".join(map(json.dumps, rows)))
    command = ["bench", "trace", str(trace), "--stride", "2", "--nodes", "16"]
    assert main([*command, "--json", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert figures["responses"] == 20
    assert 1.5 < figures["mean_acceptance_length"] <= figures["last_third"] <= 7
    assert figures["passes_per_caption"] == pytest.approx(7 / figures["mean_acceptance_length"])
    assert figures["propose_ms_p50"] > 0
    assert "tokens a pass" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "trace-empty"), ("nonsense\n", "trace-no-response")],
)
def test_damaged_trace_is_refused(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with refused(code, library_text=True):
        read_trace(path)
    with refused("trace-missing"):
        read_trace(tmp_path / "missing.jsonl")


@pytest.mark.nightly
@pytest.mark.skipif(not SHARED.exists(), reason="needs the recorded outputs of the real models")
def test_proposers_foresee_recorded_captions() -> None:
    policy = Policy(make_proposers(PROPOSERS), None)
    result = replay(read_trace(SHARED)[::2][:120], policy, "test")
    assert result.acceptance_length() > 5.3
