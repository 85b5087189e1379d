"""Latency and correctness of captions as JSON of a schema."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from crossspec_lab.baselines.generate import TransformersGenerate
from crossspec_lab.baselines.one_shot import Waiting
from crossspec_lab.bench.columns import CLOSE, EQUAL, SOONER, TOKENS, WALL, rows
from crossspec_lab.bench.decoders import ALONE, GENERATE, OURS
from crossspec_lab.bench.live import Lived
from crossspec_lab.bench.records import Log
from crossspec_lab.bench.report import Result
from crossspec_lab.bench.setting import Bench, Part, Setting, compare
from crossspec_lab.bench.tables import Table
from crossspec_lab.world import questions
from crossspec_lab.world.phrases import QUESTION
from crossspec_lab.world.scene import Scene
from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.load_decoder import speculative_decoder
from crossspec_ros.errors import InputError

MAX_TOKENS = 128
"""Tokens of an answer: the tiny target spells its keys in pieces."""
_WINDOWS = "windows"


def _parts(setting: Setting) -> list[Part]:
    if not all(scene for _, scene in setting.windows):
        raise InputError("bench structured needs the right answers, which no recording has: omit --recording")
    pair, schema = setting.pair, json.dumps(questions.SCHEMA)
    ours = cache(partial(speculative_decoder, pair))

    def options() -> Options:
        return Options(QUESTION, MAX_TOKENS, grammar=ours().grammar(schema))

    makers: dict[str, Callable[[], Any]] = {
        OURS: lambda: Lived(ours(), options()),
        ALONE: lambda: Waiting(ours().alone(), options()),
        GENERATE: partial(TransformersGenerate, pair, "plain", schema, MAX_TOKENS),
    }
    return [compare(setting, _WINDOWS, makers)]


def _result(setting: Setting, log: Log) -> Result:
    compared = rows(log, _WINDOWS, [SOONER, WALL, CLOSE, TOKENS, EQUAL], ALONE)
    scenes = [scene for _, scene in setting.windows if scene]
    right = _right([record.text for record in log.rows(_WINDOWS, OURS)], scenes)
    title = f"{len(scenes)} windows, JSON of a schema; median (10th to 90th percentile)"
    return Result(
        tables=[Table(title, compared, "decoder"), Table("share of answers that are right", right, "field")]
    )


def _right(texts: Sequence[str], scenes: Sequence[Scene]) -> dict[str, dict[str, float]]:
    """Return the share of windows with the right field, and the share of the field's commonest value.

    The row `all` is for complete answers.
    """
    pairs = [(json.loads(text), questions.truth(scene)) for text, scene in zip(texts, scenes, strict=True)]
    columns = {name: [(ours[name], true[name]) for ours, true in pairs] for name in pairs[0][1]}
    columns["all"] = [(json.dumps(ours), json.dumps(true)) for ours, true in pairs]
    return {name: _shares(column) for name, column in columns.items()}


def _shares(column: list[tuple[str, str]]) -> dict[str, float]:
    """Return the share of right answers in (answer, truth), and the share of the commonest truth."""
    right = sum(ours == true for ours, true in column)
    commonest = Counter(true for _, true in column).most_common(1)[0][1]
    return {"right": right / len(column), "commonest": commonest / len(column)}


STRUCTURED = Bench("Captions as JSON of a schema", _parts, _result)
