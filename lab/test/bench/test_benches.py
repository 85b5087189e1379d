"""Benches: decoders take turns, an interrupted one resumes, and each prediction has a figure or a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from crossspec_lab.baselines.one_shot import Alone, Written
from crossspec_lab.baselines.suffix import SuffixDecoding
from crossspec_lab.bench import alignment, frames
from crossspec_lab.bench import all as bench_all
from crossspec_lab.bench.ablated import Chain
from crossspec_lab.bench.ablations import LENGTHS
from crossspec_lab.bench.benches import BENCHES
from crossspec_lab.bench.columns import COLUMNS, EQUAL, SOONER, rows
from crossspec_lab.bench.decoders import ALONE, DECODERS, GAMMAS, OURS, STANDARD
from crossspec_lab.bench.device_use import BANDWIDTH
from crossspec_lab.bench.live import take_turns
from crossspec_lab.bench.predictions import PREDICTIONS, predicted
from crossspec_lab.bench.records import Log, Record
from crossspec_lab.bench.report import Result, publish, write
from crossspec_lab.bench.setting import Setting, compare, measure
from crossspec_lab.bench.statistics import Interval
from crossspec_lab.bench.stream import FRAME_RATES
from crossspec_lab.bench.tables import Table
from crossspec_lab.world import questions
from crossspec_lab.world.scene import drive
from matplotlib.figure import Figure
from refusals import refused

from crossspec_ros.cli import main, make_parser
from crossspec_ros.drafting.proposer import Context, Proposer
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.telemetry.trace import Trace

MS = 1_000_000


def test_take_turns_changes_the_first_decoder() -> None:
    found = take_turns({name: lambda case, trace: Written((case,)) for name in "abc"}, range(4))
    order = [f"{one.decoder}{one.tokens[0]}" for one in found]
    assert order == ["a0", "b0", "c0", "b1", "c1", "a1", "c2", "a2", "b2", "a3", "b3", "c3"]


def test_records_count_from_last_frame_and_close() -> None:
    def caption(case: int, trace: Trace) -> Written:
        trace.mark("last_frame", 900 * MS)
        trace.mark("closed", 1000 * MS)
        trace.add("answer", 900 * MS, case * MS)
        return Written((1, 2))

    early, late = take_turns({"a": caption}, (940, 1200))
    assert (early.wall_s, early.from_close_s) == (0.04, 0.0)
    assert late.wall_s == 0.3 and late.from_close_s == pytest.approx(0.2)
    assert COLUMNS[SOONER]([early], [late])["median"] == pytest.approx(7.5)
    assert early.stages_ms["answer"] == 40


def test_compare_measures_each_condition_once(setting: Setting, log: Log) -> None:
    made: list[str] = []

    def make(name: str) -> Alone:
        made.append(name)
        return SuffixDecoding(setting.pair) if name == "suffix" else Alone(setting.pair)

    makers = {name: partial(make, name) for name in ("alone", "suffix")}
    measure(setting, log, [compare(setting, "c", makers)])
    assert [(one.window, one.decoder) for one in log.records] == [
        *((0, "alone"), (0, "suffix"), (1, "suffix"), (1, "alone"))
    ]
    alone, suffix = log.rows("c", "alone"), log.rows("c", "suffix")
    assert [one.tokens for one in alone] == [one.tokens for one in suffix]
    assert all(one.wall_s > one.from_close_s >= 0 and one.first_token_s <= one.wall_s for one in log.records)
    assert alone[0].passes == len(alone[0].tokens) and alone[0].truth
    times = [frames.stage_ms(alone, stage)[0] for stage in ("frame_encode", "prefill", "verify")]
    assert all(time > 0 for time in times) and sum(times) <= 1e3 * alone[0].wall_s
    measure(setting, log, [compare(setting, "c", makers)])
    assert len(log.records) == 4 and made == ["alone", "suffix"]


def test_log_drops_only_an_interrupted_condition(tmp_path: Path) -> None:
    def record(condition: str, decoder: str, window: int) -> Record:
        return Record(condition, decoder, window, (5, 6, 2), (2, 1), stages_ms={"verify": 3.0}, more={"a": 1})

    log = Log(tmp_path, {"windows": 2})
    assert log.begin("done", 2)
    for window in range(2):
        log.add(record("done", "ours", window))
    assert log.begin("cut", 2)
    log.add(record("cut", "ours", 0))
    # Cut off in the middle of a line.
    file = tmp_path / "records.jsonl"
    file.write_text(file.read_text() + record("cut", "alone", 0).line()[:40])
    again = Log(tmp_path, {"windows": 2})
    assert again.rows("done", "ours") == log.rows("done", "ours")
    assert not again.begin("done", 2) and again.begin("cut", 2)
    assert not again.rows("cut", "ours") and not Log(tmp_path, {"windows": 2}).rows("cut", "ours")


def test_log_of_another_identity_is_refused(tmp_path: Path) -> None:
    """A refused log stays as it is; an incomplete identity is another one."""
    Log(tmp_path, {"seed": 0}).add(Record("c", "ours", 0))
    with refused("results-of-other-models"):
        Log(tmp_path, {"seed": 1})
    assert Log(tmp_path, {"seed": 0}).rows("c", "ours")
    file = tmp_path / "identity.json"
    file.write_bytes(file.read_bytes()[:-1])
    with refused("results-of-other-models"):
        Log(tmp_path, {"seed": 0})


def decoders_of(bench: str, setting: Setting) -> dict[str, tuple[str, ...]]:
    """Return the decoders under each condition of a bench."""
    return {
        "latency": {"windows": tuple(DECODERS), BANDWIDTH: (), "timeline": ()},
        "stream": {"windows": (OURS, ALONE)},
        "rates": {str(rate): (OURS, ALONE, "SpecVLM") for rate in FRAME_RATES},
        "structured": {},
        "frames": {str(count): frames.DECODERS for count in frames.COUNTS},
        "alignment": {
            alignment.CONDITION: (
                *(alignment.NONE, alignment.SPECVLM),
                *alignment.levels(setting.trained.sizes),
            )
        },
        "ablations": {"ideas": (OURS, "ours, no memory")},
        "draft_lengths": {LENGTHS: tuple(GAMMAS.values())},
    }[bench]


@pytest.mark.parametrize("name", sorted(BENCHES.keys() - {"structured"}))
@pytest.mark.parametrize("lengths", [(10,), (5, 3, 2, 1)])
def test_predictions_have_a_figure_or_a_reason(
    name: str, lengths: tuple[int, ...], setting: Setting, log: Log, fill: Callable[..., None]
) -> None:
    """Of logs as they may be: few windows, one pass or many, decoders that do not report passes."""
    for condition, decoders in decoders_of(name, setting).items():
        fill(condition, [one for one in decoders if one not in (STANDARD, *GAMMAS.values())], lengths)
        standard = [one for one in decoders if one in GAMMAS.values()]
        fill(f"{condition} ", standard, (5, 3, 2, 1))
        log.records += [replace(one, condition=condition) for one in log.records if one.decoder in standard]
    if name == "latency":
        log.add(Record(BANDWIDTH, BANDWIDTH, 0, more={"copied": 1e9, "pass_bytes": 1e6}))
        more = {"spans": [["verify", -5.0, 2.0]], "marks": {"closed": 0.0}, "verify_ms": {"1": 2.0}}
        log.add(Record("timeline", OURS, 0, more=more))
    found = BENCHES[name].result(setting, log)
    table = predicted(name, found.figures, found.unmeasured)
    assert len(table.rows if table else ()) == len(PREDICTIONS.get(name, ()))
    assert found.tables and not any("nan" in str(table).lower() for table in found.tables)


def test_predictions_name_benches() -> None:
    assert PREDICTIONS.keys() < BENCHES.keys()
    figures = {one["key"]: 1.0 for one in PREDICTIONS["rates"]}
    del figures["ours_dropped"]
    with pytest.raises(KeyError):
        predicted("rates", figures, {})
    assert "not measured: no camera" in str(predicted("rates", figures, {"ours_dropped": "no camera"}))


def test_equal_column_counts_other_captions(log: Log, fill: Callable[..., None]) -> None:
    fill("c", [OURS, ALONE, "SpecVLM"])
    for i, record in enumerate(log.records):
        if record.decoder == OURS and record.window == 3:
            log.records[i] = replace(record, tokens=(1, 2))
    found = rows(log, "c", [EQUAL], ALONE)
    assert (found[OURS][EQUAL], found["SpecVLM"][EQUAL]) == ("4 of 5", "5 of 5")


def test_write_and_publish_tables(tmp_path: Path) -> None:
    found = Result(
        figures={"a": Interval(2.0, 1.0, 3.0), "b": Interval(2.0, float("nan"), float("nan"))},
        tables=[
            Table("t", {"a|": {"x": Interval(1.5, 1.0, 2.0)}, "b": {"x": None, "y": {"median": 1.0}}}, "row")
        ],
        plots={"p": Figure()},
        notes=["a note"],
    )
    file, around = tmp_path / "one.json", {"command": "crossspec bench one", "commit": "abc", "machine": "m"}
    text = write(file, "One", found, around)
    assert "| a/  | 1.50 (1.00 to 2.00) |" in text and "a note" in text and "![One](one_p.png)" in text
    assert (tmp_path / "one_p.png").stat().st_size > 0 and file.with_suffix(".md").read_text() == text
    assert json.loads(file.read_text())["figures"] == {"a": {"value": 2.0, "low": 1.0, "high": 3.0}, "b": 2.0}
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures: one 0 -->\nold\n<!-- end -->\nafter\n")
    publish(tmp_path, page)
    shown = page.read_text()
    assert str(found.tables[0]) in shown and "old" not in shown and "commit abc; m" in shown
    assert shown.startswith("before\n<!-- figures") and shown.endswith("<!-- end -->\nafter\n")
    page.write_text("<!-- figures: other 0 -->\n<!-- end -->\n")
    with refused("figures-of-page"):
        publish(tmp_path, page)


def test_bench_all_keeps_results_and_reports_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def bench(command: list[str]) -> SimpleNamespace:
        make_parser().parse_args(command[3:])
        file = Path(command[-1])
        ran.append(file.stem)
        file.write_text(json.dumps({}))
        return SimpleNamespace(returncode=int(file.stem == "events"))

    monkeypatch.setattr(bench_all.subprocess, "run", bench)
    monkeypatch.setattr(bench_all, "_SMOL_FOLDER", tmp_path)
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "latency.json").write_text("{}")
    assert main(["bench", "all", "--results", str(tmp_path)]) == 1
    assert ran == [name for name in bench_all.RUNS if name != "latency"]
    assert "events: 0 minutes, exit code 1" in capsys.readouterr().out
    assert main(["bench", "all", "--results", str(tmp_path)]) == 1 and ran[-1] == "events"
    (tmp_path / "model.safetensors").unlink()
    assert main(["bench", "all", "--results", str(tmp_path)]) == 1
    assert "left out: runs of smol" in capsys.readouterr().out
    assert main(["bench", "all", "smol_stream", "--results", str(tmp_path)]) == 2


@pytest.mark.parametrize("bench", ["captions", "latency", "lossless"])
def test_benches_refuse_no_windows(bench: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", bench, "--windows", "0", "--json", str(tmp_path / "out.json")]) == 2
    assert "measures nothing" in capsys.readouterr().err


class Guess(Proposer):
    name = "guess"

    def propose(self, context: Context, budget: int, min_prob: float) -> DraftTree:
        return DraftTree((7, 8, 9, 10), (-1, -1, 1, 1), (0.3, 0.6, 0.5, 0.4), (("guess",),) * 4)


def test_chain_is_the_likeliest_path() -> None:
    tree = Chain([Guess()], None).propose(Context("q"), 1, 20)
    assert tree.token_ids == (8, 9) and tree.parents == (-1, 0) and tree.sources == (("guess",),) * 2


def test_true_answers_fit_the_schema() -> None:
    values = questions.SCHEMA["properties"]
    for seed in range(40):
        for scene in drive(seed, 4):
            true = questions.truth(scene)
            assert list(true) == list(values) and all(true[name] in values[name]["enum"] for name in true)


@pytest.mark.nightly
@pytest.mark.realtime
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(BENCHES))
def test_bench_measures_two_windows(name: str, tmp_path: Path) -> None:
    """Each bench as a user runs it; captions of lossless decoders are the target's own."""
    file = tmp_path / f"{name}.json"
    assert main(["bench", name, "--windows", "2", "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    assert document["environment"]["commit"] and document["tables"][0]["rows"]
    for decoder, row in document["tables"][0]["rows"].items():
        if "(lossy)" not in decoder and "llama" not in decoder:
            assert row.get(EQUAL, "2 of 2").split(" of ")[0] == row.get(EQUAL, "2 of 2").split(" of ")[1]
    assert file.with_suffix(".md").read_text().startswith("# ")
