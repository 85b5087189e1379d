"""Ways take turns, and what each did is told in the same terms."""

from __future__ import annotations

from functools import partial

import pytest
from crossspec_lab.baselines.one_shot import Alone
from crossspec_lab.baselines.suffix import SuffixDecoding
from crossspec_lab.bench import quality as caption_quality
from crossspec_lab.bench.ablations import Chain
from crossspec_lab.bench.decoders import ALONE, OURS, makers
from crossspec_lab.bench.in_turns import compare
from crossspec_lab.bench.records import Record
from crossspec_lab.bench.setting import Setting
from crossspec_lab.bench.stages import stage_ms
from crossspec_lab.world.phrases import caption
from crossspec_lab.world.scene import drive

from crossspec_ros.drafting.proposer import Context, Proposer
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.windows.window import Window


def test_ways_take_turns_and_a_second_call_measures_nothing(setting: Setting, windows: list[Window]) -> None:
    made: list[str] = []

    def make(name: str) -> Alone:
        made.append(name)
        return SuffixDecoding(setting.pair) if name == "suffix" else Alone(setting.pair)

    ways = {name: partial(make, name) for name in ("alone", "suffix")}
    known = [(windows[0], "a truth"), (windows[1], "another")]
    log = compare(setting, 2, "c", ways, known, windows[3])
    assert [(one.window, one.way) for one in log.records] == [
        (windows[0].index, "alone"),
        (windows[0].index, "suffix"),
        (windows[1].index, "suffix"),
        (windows[1].index, "alone"),
    ]
    alone, suffix = log.rows("c", "alone"), log.rows("c", "suffix")
    assert [one.tokens for one in alone] == [one.tokens for one in suffix]
    assert all(one.wall_s > one.from_close_s >= 0 and one.first_token_s <= one.wall_s for one in log.records)
    assert alone[0].passes == len(alone[0].tokens) and alone[0].truth == "a truth"
    assert stage_ms(alone, "total")[0] >= stage_ms(alone, "prefill")[0] > 0
    again = compare(setting, 2, "c", ways, known, windows[3])
    assert again.records == log.records and made == ["alone", "suffix"]


@pytest.mark.nightly
def test_ours_lives_through_the_window_and_says_what_the_target_says(
    setting: Setting, windows: list[Window]
) -> None:
    ways = makers(setting.models, [OURS, ALONE])
    log = compare(setting, 2, "c", ways, [(windows[0], "a truth")], windows[3])
    (ours,), (alone,) = log.rows("c", OURS), log.rows("c", ALONE)
    assert ours.tokens == alone.tokens and ours.text == alone.text != ""
    assert ours.accept_lengths and sum(ours.accept_lengths) == len(ours.tokens)
    # Only who is given the events while the window is open can hide the drafting.
    assert ours.stages_ms["hidden"] > 0 == alone.stages_ms["hidden"]


class Guess(Proposer):
    name = "told"

    def propose(self, context: Context, budget: int, worth: float) -> DraftTree:
        return DraftTree((7, 8, 9, 10), (-1, -1, 1, 1), (0.3, 0.6, 0.5, 0.4), (("told",),) * 4)


def test_a_chain_is_the_likeliest_path_of_the_tree() -> None:
    tree = Chain([Guess()], None).propose(Context("q"), 1, 20)
    assert tree.token_ids == (8, 9) and tree.parents == (-1, 0) and tree.sources == (("told",),) * 2


def test_quality_of_the_truth_is_full_and_of_another_caption_less() -> None:
    truths = [caption(scene) for scene in drive(5, 2)]

    def told(texts: list[str]) -> list[Record]:
        return [Record(5, "c", "w", i, t, (), (), 0.0, truth=truths[i]) for i, t in enumerate(texts)]

    scores, right = caption_quality.scores(told(truths)), caption_quality.attributes_right
    assert scores["bleu4"] == pytest.approx(100, abs=1e-3) and scores["rouge_l"] == pytest.approx(100)
    other = told([truths[0].replace("yellow", "red"), truths[1]])
    assert all(caption_quality.scores(other)[name] < value for name, value in scores.items())
    assert right(told(truths)[0]) == 1 > right(told(truths[::-1])[0])
