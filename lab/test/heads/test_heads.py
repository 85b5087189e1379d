"""Every head learns, and drafts in a decoder without changing a token."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from crossspec_lab.bench.live import OPTIONS, stream
from crossspec_lab.heads.adapter import published_adapters
from crossspec_lab.heads.decoder import head_decoder
from crossspec_lab.heads.growing import ranked
from crossspec_lab.heads.head import Head, Pairs, Sizes, TargetReader
from crossspec_lab.heads.head_files import fitting_heads
from crossspec_lab.heads.language_model import LanguageModel
from crossspec_lab.heads.medusa import Medusa
from crossspec_lab.train.head_training import VARIANTS, new_head
from crossspec_lab.train.pairs import PairExtractor, extract
from crossspec_lab.world.phrases import QUESTION
from plain_eagle import random_pairs
from plain_target import generated

from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposer import Context
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.paths import tiny_models
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

ADAPTERS = {"L1": 2.1, "L2": 6.3, "L3": 16.8, "L4": 101, "dream": None}
"""Published millions of parameters of a pair whose states are 4096 wide."""


@pytest.fixture(scope="module")
def heads(pair: ModelPair) -> list[Head]:
    """Return the shipped head, and untrained ones that read other inputs."""
    torch.manual_seed(0)
    sizes = Sizes.of(pair.target, pair.draft)
    others = [new_head(name, sizes).eval() for name in ("eagle3", "medusa")]
    return [*fitting_heads(tiny_models(), None, pair.target, pair.draft), *others]


@pytest.fixture(scope="module")
def pairs(pair: ModelPair, windows: list[Window], tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    with closing(PairExtractor(pair, QUESTION)) as extractor:
        shards = extract(extractor, windows, tmp_path_factory.mktemp("pairs"), len(windows))
    return shards.batch(range(len(shards)))


def test_heads_draft_without_changing_captions(
    pair: ModelPair, windows: list[Window], heads: list[Head]
) -> None:
    with closing(head_decoder(pair, heads, names=())) as decoder:
        # Without a cost model all nodes are verified.
        decoder.policy = Policy(heads, None)
        drafted = set[str]()
        for window in windows[:2]:
            stream(decoder, window, frames=7)
            caption = decoder.caption(window, OPTIONS, Trace())
            assert caption.token_ids == generated(pair, window)
            drafted |= set(caption.drafted)
    assert drafted == {"massv", "eagle3", "medusa"}


def test_head_drafts_with_the_other_proposers(
    pair: ModelPair, windows: list[Window], heads: list[Head]
) -> None:
    with closing(head_decoder(pair, heads[:1])) as decoder:
        assert [one.proposer.name for one in decoder.policy.sources] == [
            "rehearsal", "memory", "event_draft", "grammar", "massv",
        ]  # fmt: skip
        stream(decoder, windows[0], frames=7)
        caption = decoder.caption(windows[0], OPTIONS, Trace())
    assert caption.token_ids == generated(pair, windows[0]) and caption.accepted["rehearsal"] > 20


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*VARIANTS, *ADAPTERS])
def test_all_parameters_learn(name: str, pair: ModelPair, pairs: Pairs) -> None:
    sizes, makers = Sizes.of(pair.target, pair.draft), dict[str, Callable[[], TargetReader]]()
    makers |= published_adapters(sizes) | {one: lambda: new_head(name, sizes) for one in VARIANTS}
    torch.manual_seed(3)
    head = makers[name]()
    head.load(pair.target)
    assert head.logits(pairs).shape == (*pairs.tokens.shape, sizes.tokens)
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


def test_adapters_have_the_published_sizes() -> None:
    with torch.device("meta"):
        adapters = published_adapters(Sizes(4096, 32, 32000, 4096, 32000))
        for name, millions in ADAPTERS.items():
            count = sum(parameter.numel() for parameter in adapters[name]().parameters())
            assert millions is None or count / 1e6 == pytest.approx(millions, rel=0.02), name


@torch.inference_mode()
def test_language_model_drafts_what_one_pass_gives(pair: ModelPair) -> None:
    """Frames in pieces, a draft and a departure give the probabilities of one pass over all of it."""
    torch.manual_seed(3)
    sizes = Sizes.of(pair.target, pair.draft)
    head, pairs = new_head("massv", sizes).eval(), random_pairs(sizes)
    assert isinstance(head, LanguageModel)
    head.load(pair.target)
    units = pairs.frames[0].split(list(pairs.units))
    early = Context(QUESTION, frames=tuple(units[:-1]))
    assert not head.prepare(Context(QUESTION, frames=tuple(units[:3])), 16, 0.0)
    assert head.prepare(early, 16, 0.0) and head.prepare(early, 16, 0.0)
    assert len(head._chain) == 8
    verified = (*head._chain[:4], 77)
    head.propose(Context(QUESTION, verified, frames=tuple(units)), 16, 0.0)
    chain, rows = tuple(head._chain), head._rows
    assert chain[: len(verified)] == verified and len(rows) == len(chain) - len(verified) == 16
    mask = torch.ones_like(pairs.frame_mask[:1])
    question = torch.tensor(pair.target.prompt_ids(QUESTION)[1])
    forced = replace(
        pairs, question=question, tokens=torch.tensor([chain]), frames=pairs.frames[:1], frame_mask=mask
    )
    wanted = ranked(head.forced_logits(forced, mask)[0, len(verified) :].log_softmax(-1))
    assert torch.allclose(torch.tensor(rows), torch.tensor(wanted), atol=1e-4)


def test_head_writes_only_its_draft_vocabulary(pair: ModelPair) -> None:
    torch.manual_seed(3)
    sizes, vocabulary = Sizes.of(pair.target, pair.draft), list(range(0, 577, 2))
    head, pairs = new_head("massv", sizes, vocabulary).eval(), random_pairs(sizes)
    head.load(pair.target)
    finite = torch.isfinite(head.logits(pairs)).nonzero()[:, 2].unique()
    assert finite.tolist() == vocabulary and torch.isfinite(head.loss(pairs))
    assert head.loss(replace(pairs, tokens=torch.full_like(pairs.tokens, 1))) == 0
    # It reads other tokens, and does not write them.
    context = Context(QUESTION, (1, 3, 5), frames=tuple(pairs.frames[0].split(list(pairs.units))))
    with torch.inference_mode():
        guess = head.propose(context, 20, 0.0)
    assert len(guess) == 20 and set(guess.token_ids) <= set(vocabulary)


@torch.no_grad()
def test_medusa_equals_the_plain_arithmetic(pair: ModelPair) -> None:
    torch.manual_seed(0)
    head = Medusa(Sizes.of(pair.target, None))
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    weights, pairs, q = head.state_dict(), random_pairs(head.sizes), 5

    def log_probs(k: int, state: torch.Tensor) -> torch.Tensor:
        inner = state @ weights[f"blocks.{k}.layers.0.weight"].T
        return ((state + inner * inner.sigmoid()) @ weights[f"lm_heads.{k}.weight"].T).log_softmax(-1)

    losses: list[list[float]] = [[], [], [], []]
    for i, length in enumerate((9, 6, 3)):
        for token in range(length):
            for k in range(min(4, token + 1)):
                # Head k reads the state at which the target chose the token k + 1 places before.
                probs = log_probs(k, pairs.states[i, q - 2 + token - k])
                losses[k].append(-float(probs[pairs.tokens[i, token]]))
                if k == 0:
                    assert torch.allclose(head.logits(pairs)[i, token].log_softmax(-1), probs, atol=1e-4)
    wanted = sum(0.8**k * sum(losses[k]) / len(losses[k]) for k in range(4))
    assert head.loss(pairs).item() == pytest.approx(wanted, rel=1e-4)
    head.begin()
    assert not len(head.propose(Context(""), 60, 0.0))
    head.read((1, 2, 3), pairs.states[0, :3], None)
    head.read((4, 5), pairs.states[0, 3:5], None)
    guess = head.propose(Context(""), 40, 0.0)
    # The draft comes from the last state.
    ranks = [log_probs(k, pairs.states[0, 4]).exp() for k in range(4)]
    rows = zip(guess.depths(), guess.token_ids, strict=True)
    assert guess.probs == pytest.approx([float(ranks[d - 1][token]) for d, token in rows], rel=1e-3)
    assert len(guess) == 40 and guess.token_ids[0] == int(ranks[0].argmax())
