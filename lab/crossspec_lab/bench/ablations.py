"""Tokens a pass with and without each idea of ours, and by draft length, independent of time."""

from __future__ import annotations

from functools import partial
from typing import Any

from crossspec_lab.bench import statistics
from crossspec_lab.bench.ablated import HEADS, NODES, OURS, WITHOUT, Streamed
from crossspec_lab.bench.columns import EQUAL, TOKENS, WALL, cells, rows
from crossspec_lab.bench.decoders import GAMMAS, makers
from crossspec_lab.bench.records import Log
from crossspec_lab.bench.report import Result
from crossspec_lab.bench.setting import Bench, Part, Setting, compare
from crossspec_lab.bench.statistics import Interval
from crossspec_lab.bench.tables import Cell, Table
from crossspec_lab.heads.decoder import head_decoder

IDEAS, LENGTHS = "ideas", "draft lengths"


def _streamed(setting: Setting, **lacks: Any) -> Streamed:
    return Streamed(head_decoder(setting.pair, max_nodes=NODES, **lacks))


def _ideas(setting: Setting) -> list[Part]:
    variants: dict[str, dict[str, Any]] = {OURS: {}, **WITHOUT}
    if setting.models.heads:
        variants[HEADS] = {"heads": setting.models.heads}
    made = {name: partial(_streamed, setting, **lacks) for name, lacks in variants.items()}
    return [compare(setting, IDEAS, made)]


def _ideas_result(setting: Setting, log: Log) -> Result:
    title = (
        f"{len(setting.windows)} windows, all of each read and drafted before the answer begins, trees of "
        f"{NODES} nodes"
    )
    return Result(tables=[Table(title, rows(log, IDEAS, [TOKENS, EQUAL], OURS), "decoder")])


def _lengths(setting: Setting) -> list[Part]:
    return [compare(setting, LENGTHS, makers(setting.models, GAMMAS.values()))]


def _lengths_result(setting: Setting, log: Log) -> Result:
    found, shown, shares = Result(), dict[str, dict[str, Cell]](), dict[int, Interval]()
    for gamma, name in GAMMAS.items():
        records = log.rows(LENGTHS, name)
        # The end of a caption cuts its last pass off.
        accepted = [sum(length - 1 for length in record.accept_lengths[:-1]) for record in records]
        passes = [record.passes - 1 for record in records]
        shares[gamma] = statistics.share([100 * one / gamma for one in accepted], passes)
        tokens = statistics.share(accepted, passes)
        found.figures[f"gamma_{gamma}"] = f"{shares[gamma]} % ({statistics.number(tokens.value)} tokens)"
        columns: dict[str, Cell] = {"accepted, %": shares[gamma], "accepted tokens a pass": tokens}
        shown[str(gamma)] = columns | cells([WALL], records, records)
    title = (
        f"standard speculative decoding, {len(setting.windows)} windows; without the last pass of a caption"
    )
    found.tables.append(Table(title, shown, "tokens drafted a round"))
    return found


ABLATIONS = Bench("Tokens a pass without each idea", _ideas, _ideas_result)
DRAFT_LENGTHS = Bench("Draft length", _lengths, _lengths_result)
