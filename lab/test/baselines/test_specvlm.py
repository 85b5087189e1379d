"""SpecVLM's head learns, is right however little it has learned, and drafts where it has."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import torch
from crossspec_lab.baselines.specvlm import SpecVLM, SpecVLMHead
from crossspec_lab.train.pairs import PairExtractor, extract
from crossspec_lab.world.grammar import QUESTION

from crossspec_ros.drafting.heads.head import Sizes
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window


def test_it_learns_to_draft_and_captions_stay_the_targets(
    pair: ModelPair, windows: list[Window], alone: list[tuple[int, ...]], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    head = SpecVLMHead(Sizes.of(pair.target, pair.draft))
    head.attach(pair.target)
    with closing(PairExtractor(pair, QUESTION)) as extractor:
        pairs = extract(extractor, windows, tmp_path, len(windows)).batch(range(len(windows)))
    before, untrained = head.loss(pairs).item(), lengths(pair, head, windows[0], alone[0])
    optimizer = torch.optim.AdamW(head.parameters(), 3e-3)
    head.train()
    for _ in range(40):
        head.loss(pairs).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert head.loss(pairs).item() < before / 2
    assert len(lengths(pair, head, windows[0], alone[0])) < len(untrained)


def lengths(pair: ModelPair, head: SpecVLMHead, window: Window, wanted: tuple[int, ...]) -> tuple[int, ...]:
    way = SpecVLM(pair, head.eval())
    try:
        written = way(window, QUESTION, Trace())
    finally:
        way.close()
    assert written.tokens == wanted
    assert sum(written.accept_lengths) == len(written.tokens)
    return written.accept_lengths
