"""Captions equal those of transformers' `generate`, token for token in float32.

The matrix: families x runners x proposers x frames read ahead x rehearsals. By default cells run that cover
every pair of values; nightly all cells run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, product

import pytest
from lives import LIMIT, OTHER_QUESTION, PROPOSERS, QUESTION, Target, lived
from tiny_targets import TINY_FAMILIES

from crossspec_ros.captioning.caption import Options
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.engine import accept
from crossspec_ros.engine.kv import KVRow
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.settings import REHEARSAL
from crossspec_ros.telemetry.trace import Trace

RUNNERS = ("torch", "static", "llama.cpp")
READ_AHEAD = {
    "none": lambda frames: 0,
    "some": lambda frames: min(5, frames),
    "all but one": lambda frames: frames - 1,
    "all": lambda frames: frames,
}
CELLS = [*product(TINY_FAMILIES, RUNNERS, PROPOSERS, READ_AHEAD, (False, True))]
_keep = KVRow.keep


def covering(cells, together):
    """Choose few cells that cover all combinations of values of any `together` factors."""
    found = {cell: set(combinations(enumerate(cell), together)) for cell in cells}
    missing, chosen = set().union(*found.values()), []
    while missing:
        chosen.append(max(cells, key=lambda cell: len(found[cell] & missing)))
        missing -= found[chosen[-1]]
    return chosen


def matrix():
    """Return every cell; the cells of llama.cpp, which may be missing, are covered separately."""
    by_llama = [cell for cell in CELLS if "llama.cpp" in cell]
    daily = {*covering([cell for cell in CELLS if cell not in by_llama], 2), *covering(by_llama, 1)}
    return [
        pytest.param(*cell, marks=() if cell in daily else pytest.mark.nightly, id="-".join(map(str, cell)))
        for cell in CELLS
    ]


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    made = {}

    def target(family):
        if family not in made:
            made[family] = Target(family, tmp_path_factory.mktemp(family) / "target")
        return made[family]

    yield target
    for one in made.values():
        one.close()


def compared(target, decoder, window, read_ahead, rehearse, **how):
    """Return the decoder's caption, and assert that its tokens equal those of `generate`."""
    wanted = target.adversary.answer = target.generated(window, **how)
    options = Options(QUESTION, how.get("limit", LIMIT), how.get("sampling"))
    caption = lived(decoder, window, options, read_ahead, rehearse)
    assert caption.token_ids == wanted
    return caption


@pytest.mark.parametrize(("family", "runner", "proposers", "read_ahead", "rehearse"), matrix())
def test_captions_equal_generate(targets, family, runner, proposers, read_ahead, rehearse):
    """One decoder captions several windows, and answers further questions about the third."""
    target, drafted, ahead = targets(family), Counter[str](), READ_AHEAD[read_ahead]
    *windows, single = target.windows
    with target.decoder(runner, proposers, rehearse) as decoder:
        for window in windows:
            caption = compared(target, decoder, window, ahead(len(window.frames)), rehearse)
            drafted.update(caption.drafted)
        target.adversary.answer = target.generated(window, OTHER_QUESTION)
        assert decoder.ask(Options(OTHER_QUESTION, LIMIT), Trace()).token_ids == target.adversary.answer
        # Without proposers the same window must give the same tokens.
        decoder.policy = Policy((), None)
        assert decoder.ask(Options(QUESTION, LIMIT), Trace()).token_ids == caption.token_ids
        compared(target, decoder, single, ahead(1), False)
    rehearsed = {REHEARSAL} if rehearse and read_ahead != "none" else set()
    assert set(drafted) == {*PROPOSERS[proposers], *rehearsed}


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_captions_differ_between_windows(targets, family):
    """A target's output must depend on its input, or the matrix would prove nothing."""
    target = targets(family)
    captions = {target.generated(*case) for case in product(target.windows[:2], (QUESTION, OTHER_QUESTION))}
    assert len(captions) == 4 and all(len(set(tokens)) > 4 for tokens in captions)


@pytest.mark.parametrize(
    ("runner", "proposers"),
    [
        ("static", "adversary"),
        ("llama.cpp", "adversary"),
        pytest.param("torch", "adversary", marks=pytest.mark.nightly),
        pytest.param("torch", "alone", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_captions_end_where_generate_ends(targets, family, runner, proposers, monkeypatch):
    """Captions end by their length, or by any of their tokens as end of sequence."""
    target = targets(family)
    window, model, spec = target.windows[0], target.pair.target, target.pair.target.spec
    frames, full = len(window.frames), target.generated(window)
    ends = [(limit, spec.eos_ids[0]) for limit in range(1, 6)]
    ends += [(LIMIT, token) for token in dict.fromkeys(full)]
    with target.decoder(runner, proposers, True) as decoder:
        for i, (limit, eos_id) in enumerate(ends):
            monkeypatch.setattr(model, "spec", replace(spec, eos_ids=(*spec.eos_ids, eos_id)))
            again, ahead = replace(window, index=i), frames - i % 3
            caption = compared(target, decoder, again, ahead, True, limit=limit, eos_id=eos_id)
            assert len(caption.token_ids) == (limit if limit < LIMIT else full.index(eos_id) + 1)


@pytest.mark.parametrize("family", TINY_FAMILIES)
def test_sampled_captions_equal_sampling_one_by_one(targets, family):
    target, captions = targets(family), []
    with target.decoder("torch", "adversary", True) as decoder:
        for seed, window in enumerate(target.windows):
            sampling = Sampling(5.0, 1.0, seed, top_k=4)
            ahead = min(7, len(window.frames))
            caption = compared(target, decoder, window, ahead, ahead > 1, sampling=sampling)
            captions.append(caption.token_ids)
    assert captions != [*map(target.generated, target.windows)]


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (accept, "greedy_path", lambda tree, choices: ((0,)[: len(tree)], choices[min(1, len(tree))])),
        (DraftTree, "depths", lambda tree: [0] * len(tree)),
        (KVRow, "keep", lambda row, length, moved=(): _keep(row, row.length if moved else length)),
    ],
    ids=["acceptance", "positions", "cache"],
)
def test_broken_part_is_detected(targets, monkeypatch, owner, name, broken):
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(AssertionError):
        test_captions_equal_generate(targets, "internvl", "torch", "adversary", "all but one", False)
