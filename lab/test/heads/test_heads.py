"""Every head learns, is kept in a file, and drafts without changing a single token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from crossspec_lab.bench.held_out import stream
from crossspec_lab.heads.eagle import tapped_layers
from crossspec_lab.heads.growing import Ranked
from crossspec_lab.heads.head import Head, Pairs, Sizes
from crossspec_lab.heads.head_files import load_head, save_head
from crossspec_lab.heads.watched_draft import WatchedDraftModel
from crossspec_lab.train.pairs import PairExtractor, PairShards, extract
from crossspec_lab.train.variants import VARIANTS, new_head
from crossspec_lab.world.phrases import QUESTION
from refusals import refused

from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context, make_proposers
from crossspec_ros.engine.local import LocalEngine
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

pytestmark = pytest.mark.nightly

NAMES = list(VARIANTS)
OTHER = "How many cars are there, and of which colour?"
PUBLISHED = {"L1": 2.1, "L2": 6.3, "L3": 16.8, "L4": 101}
"""Millions of parameters of a pair whose states are 4096 wide."""


@pytest.fixture(scope="session")
def shards(pair: ModelPair, windows: list[Window], tmp_path_factory: pytest.TempPathFactory) -> PairShards:
    with closing(PairExtractor(pair, QUESTION)) as extractor:
        return extract(extractor, windows, tmp_path_factory.mktemp("pairs"), len(windows))


@pytest.fixture(scope="session")
def pairs(shards: PairShards) -> Pairs:
    return shards.batch(range(len(shards)))


def made(name: str, pair: ModelPair, seed: int = 3) -> Head:
    torch.manual_seed(seed)
    head = new_head(name, Sizes.of(pair.target, pair.draft))
    head.load(pair.target)
    return head


def test_at_the_published_width_sizes_are_the_published() -> None:
    for name, published in PUBLISHED.items():
        with torch.device("meta"):
            head = new_head(name, Sizes(4096, 32, 32000, 4096, 32000))
        millions = sum(parameter.numel() for parameter in head.parameters()) / 1e6
        assert millions == pytest.approx(published, rel=0.02), name


@pytest.mark.parametrize("name", NAMES)
def test_all_of_a_head_learns_and_is_stored(name: str, pair: ModelPair, pairs: Pairs, tmp_path: Path) -> None:
    head = made(name, pair)
    assert head.logits(pairs).shape == (*pairs.tokens.shape, head.sizes.tokens)
    predicted = head.predicted(pairs)
    assert predicted is None or predicted.shape == pairs.choosing.shape
    optimizer = torch.optim.AdamW(head.parameters(), 1e-3)
    losses = []
    for step in range(12):
        torch.manual_seed(step % 2)
        loss = head.loss(pairs)
        loss.backward()
        if not step:
            assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in head.parameters())
            assert all(p.grad is None for p in pair.target.module.parameters())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.95 * losses[0]
    head = made(name, pair).bfloat16().float()  # as it is stored
    save_head(head, tmp_path, {"steps": 0})
    loaded = load_head(tmp_path, pair.target)
    loaded.load(pair.target)
    assert loaded.options == head.options and loaded.needs == head.needs and loaded.taps == head.taps
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    with torch.inference_mode():
        # Attention takes another path where nothing learns.
        assert torch.allclose(loaded.logits(pairs), head.eval().logits(pairs), atol=1e-4)


def test_a_draft_vocabulary_is_all_that_a_head_says_and_learns(
    pair: ModelPair, pairs: Pairs, tmp_path: Path
) -> None:
    said = sorted(set(pairs.tokens[pairs.is_token].tolist()))
    spoken = said[::2]
    head = new_head("massv", Sizes.of(pair.target, pair.draft), spoken)
    assert head.model.embed_tokens.weight.shape[0] == len(spoken) + 1  # type: ignore[attr-defined]
    save_head(head, tmp_path, {})
    loaded = load_head(tmp_path, pair.target)
    loaded.load(pair.target)
    told = loaded.logits(pairs)
    assert told.shape[-1] == loaded.sizes.tokens
    assert set(torch.isfinite(told).nonzero()[:, 2].tolist()) == set(spoken)
    # It reads what it does not speak, and neither drafts nor learns it.
    tokens = torch.full_like(pairs.tokens, said[1])
    assert said[1] not in spoken
    units = tuple(pairs.frames[0].split(list(pairs.units)))
    context = Context(QUESTION, tuple(tokens[0, :3].tolist()), frames=units)
    with torch.inference_mode():
        guess = loaded.propose(context, 20, 0.0)
    assert len(guess.token_ids) == 20 and set(guess.token_ids) <= set(spoken)
    tokens[:, 0] = spoken[0]
    once = head.loss(replace(pairs, tokens=tokens, frames_seen=pairs.early_seen))
    assert torch.isfinite(once)
    tokens[:] = said[1]
    nothing = head.loss(replace(pairs, tokens=tokens))
    nothing.backward()
    assert nothing == 0 and all(torch.isfinite(p.grad).all() for p in head.parameters() if p.grad is not None)
    with refused("head-negative-token"):
        new_head("massv", head.sizes, [-1, 2])


@pytest.fixture(scope="module")
def drafting(pair: ModelPair) -> Iterator[Callable[[Policy], PrefillHiddenDecoder]]:
    """Decoders on one engine and one draft."""
    assert pair.draft is not None and pair.translation is not None
    engine, drafts = LocalEngine(pair.target), WatchedDraftModel(pair.draft, pair.translation)
    engine.tap(tapped_layers(pair.target.body.config.num_hidden_layers))
    yield lambda policy: PrefillHiddenDecoder(pair, policy, engine, drafts=drafts)
    drafts.close()
    engine.close()


@pytest.fixture(scope="module")
def wanted(
    windows: list[Window], drafting: Callable[[Policy], PrefillHiddenDecoder]
) -> list[tuple[int, ...]]:
    return [tokens for window in windows[:2] for tokens in said(drafting(Policy((), None)), window)]


def said(decoder: PrefillHiddenDecoder, window: Window) -> list[tuple[int, ...]]:
    """Both ways: read ahead and answered before the close, and a further question after it."""
    stream(decoder, window, frames=len(window.frames) - 1)
    decoder.stream_frame(window.index, window.frames[-1], window.frame_stamps_ns[-1], is_last=True)
    decoder.begin(window.index, Options(QUESTION))
    caption = decoder.caption(window, Options(QUESTION), Trace())
    return [caption.token_ids, decoder.ask(Options(OTHER), Trace()).token_ids]


@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_head_says_the_caption_is_the_targets(
    name: str,
    pair: ModelPair,
    windows: list[Window],
    drafting: Callable[[Policy], PrefillHiddenDecoder],
    wanted: list[tuple[int, ...]],
) -> None:
    proposers = *make_proposers(["memory", "event_draft"]), made(name, pair)
    decoder = drafting(Policy(proposers, None))
    got = [tokens for window in windows[:2] for tokens in said(decoder, window)]
    assert got == wanted
    assert proposers[-1].name == name


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ('"language_model"', '"hedgehog"', "head-kind-unknown"),
        ('"inner": 384', '"inner": 392', "head-library-sizes"),
        ('"inner": 384', '"inner": "x"', "head-library-options"),
        ('"width": 192', '"width": 96', "head-of-another-width"),
        ('"vocabulary": "', '"vocabulary": "0', "head-of-another-vocabulary"),
    ],
)
def test_what_is_no_head_of_this_target_is_refused(
    old: str, new: str, code: str, pair: ModelPair, tmp_path: Path
) -> None:
    save_head(made("massv", pair), tmp_path, {})
    config = tmp_path / "config.json"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new))
    with refused(code, library_text="library" in code):
        load_head(tmp_path, pair.target)


def test_a_head_without_its_files_is_refused(pair: ModelPair, tmp_path: Path) -> None:
    save_head(made("massv", pair), tmp_path, {})
    for file, code in (("model.safetensors", "head-without-weights"), ("config.json", "head-without-config")):
        (tmp_path / file).unlink()
        with refused(code, library_text=code == "head-without-weights"):
            load_head(tmp_path, pair.target)


def test_a_head_of_another_draft_is_refused_where_it_reads_the_draft(pair: ModelPair, tmp_path: Path) -> None:
    sizes = replace(Sizes.of(pair.target, pair.draft), draft_width=96)
    for name in ("L1", "eagle3"):
        save_head(new_head(name, sizes), tmp_path / name, {})
    with refused("head-of-another-draft"):
        load_head(tmp_path / "L1", pair.target, pair.draft)
    assert load_head(tmp_path / "eagle3", pair.target, pair.draft).sizes.draft_width == 96
    assert load_head(tmp_path / "L1", pair.target, None).sizes.draft_width == 96


@torch.inference_mode()
def test_what_a_language_model_drafts_on_is_what_it_would_say_from_nothing(
    pair: ModelPair, pairs: Pairs
) -> None:
    """Frames in pieces, a draft, a departure: the beliefs are those of one pass over all of it."""
    head = made("massv", pair).eval()
    units = pairs.frames[0].split(list(pairs.units))
    seen = Context(QUESTION, frames=tuple(units[:-1]))
    assert not head.prepare(Context(QUESTION, frames=tuple(units[:3])), 16, 0.0)
    # It drafts some tokens at a time.
    assert head.prepare(seen, 16, 0.0) and head.prepare(seen, 16, 0.0)
    drafted = tuple(head._chain)  # type: ignore[attr-defined]
    assert len(drafted) == 8
    verified = (*drafted[:4], 77)
    everything = Context(QUESTION, verified, frames=tuple(units))
    head.propose(everything, 16, 0.0)
    chain, ranked = tuple(head._chain), head._ranked  # type: ignore[attr-defined]
    assert chain[: len(verified)] == verified and len(ranked.values) == len(chain) - len(verified) == 16
    whole = replace(
        pairs,
        tokens=torch.tensor([chain]),
        frames=pairs.frames[:1],
        frames_seen=pairs.frames_seen[:1].fill_(True),
    )
    expected = head.spoken_logits(whole, whole.frames_seen)[0]  # type: ignore[attr-defined]
    wanted = Ranked.of(expected[len(verified) :].log_softmax(-1))
    assert torch.allclose(torch.tensor(ranked.values), torch.tensor(wanted.values), atol=1e-4)
