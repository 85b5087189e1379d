"""The captioner on its topics: one report per closed window, even if the window lacks images."""

from __future__ import annotations

import time
import weakref
from types import SimpleNamespace

import pytest
import torch
from action_msgs.msg import GoalStatus
from crossspec_msgs.msg import WindowReport
from crossspec_msgs.srv import Ask
from diagnostic_msgs.msg import DiagnosticStatus
from fakes import FakeDecoder
from outsider import RELIABLE, STAGES, outsider, spinning, take_away
from rclpy.parameter import Parameter
from sensor_msgs.msg import Image

from crossspec_ros.captioning.load_decoder import NO_MEMORY
from crossspec_ros.drafting.policy import Limits
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.ros.captioner_node import CaptionerNode
from crossspec_ros.ros.messages import rgb8_array
from crossspec_ros.settings import PROPOSERS, REHEARSAL

SECOND = 10**9
OK, WARN, ERROR = WindowReport.OK, WindowReport.WARN, WindowReport.ERROR


def test_window_has_report_captions_and_latencies(stage):
    text = "8 frames, 5 event images: What are the key elements in this scene?"
    for index in (3, 4, 5):
        report = stage.report(index, 8, 5)
        assert (report.level, report.message, report.outcome) == (OK, text, "captioned")
        caption = report.caption
        assert (caption.text, caption.source, caption.verified) == (text, "target", True)
        assert (caption.tokens, caption.target_passes) == (10, 4)
        drafted = {(count.name, count.drafted, count.accepted) for count in report.proposers}
        assert drafted == {("memory", 20, 6), ("event_draft", 5, 0)}
        assert report.acceptance_length == 2.5 and not report.cut_by_deadline
        assert stage.index(report) == index and report.window_start.sec == stage.start + index
        assert (report.events, report.lost_packets) == (1000 * index, index)
        assert (report.late_events, report.late_frames) == (10 * index, 1)
        stages = {stage.name: stage.ms for stage in report.stages}
        assert stages["total"] >= stages["event_encode"] >= 0
        spans = {span.name: (span.start_ms, span.end_ms) for span in report.spans}
        assert spans["total"] == (0.0, stages["total"]) and "verify[0]" in spans
    stage.wait(lambda: stage["caption_stamped"] == [report.caption for report in stage.received()])
    assert {report.caption.header.frame_id for report in stage.received()} == {"camera"}
    stage.wait(lambda: [one.data for one in stage["caption"]] == [text] * 3)
    words = [(text, 3), (text, 4), (text, 5)]
    stage.wait(lambda: [(one.text, stage.index(one)) for one in stage["caption_partial"]] == words)
    drafts = 3 * [("draft", "event_draft", False)]
    stage.wait(lambda: [(one.text, one.source, one.verified) for one in stage["caption_draft"]] == drafts)
    for name in STAGES:
        expected = 0 if name == "draft_prefill" else 3  # the fake has no such stage
        stage.wait(lambda name=name, n=expected: len(stage[f"latency/{name}"]) == n)


@pytest.mark.parametrize(
    ("sent", "level", "rests_on", "degraded", "text"),
    [
        ((0, 5), WARN, "events", ["rgb_missing"], "0 frames, 5 event images"),
        ((0, 0), WARN, "nothing", ["events_missing", "rgb_missing"], "nothing to be seen"),
        ((8, 5, False), WARN, "events", ["rgb_frozen", "rgb_dark"], "0 frames, 5 event images"),
        ((8, 5), OK, "frames", [], "8 frames, 5 event images"),
        ((8, 0, False), WARN, "nothing", None, "nothing to be seen"),
    ],
)
def test_report_names_the_inputs_of_its_caption(stage, sent, level, rests_on, degraded, text):
    report = stage.report(0, *sent)
    assert (report.level, report.rests_on) == (level, rests_on) and report.message.startswith(text)
    assert degraded is None or list(report.degraded) == degraded
    is_caption = rests_on == "frames"
    stage.wait(lambda: len(stage["caption"]) == is_caption)
    if rests_on == "events":
        # The draft of all event images replaces the one from before the close.
        stage.wait(lambda: stage["caption_draft"][-1].text.startswith(text))


def test_viewer_gets_the_draft_of_each_window(stage, monkeypatch):
    """The next window's draft may be published before the caption of the previous window."""
    texts = []
    view = SimpleNamespace(text=lambda *args: texts.append(args), captioned=lambda *args: None)
    monkeypatch.setattr(stage.node._outputs, "view", view)
    for index in (0, 1):
        stage.node._outputs.drafted(stage.start + index, f"draft {index}", "event_draft")
    for index in (0, 1):
        stage.report(index)
    stage.wait(lambda: len(texts) == 2)
    assert texts == [("draft", f"draft {i}", (stage.start + i + 1) * SECOND) for i in (0, 1)]


def test_slow_captioner_reports_skipped_windows(stage, capfd):
    reached, release = stage.hold()
    stage.send(0)
    assert reached()
    for index in range(1, 5):
        stage.send(index)
    stage.wait(lambda: stage.node._captioner.waiting == 4)
    release()
    found = [(stage.index(report), report.events, report.outcome) for report in stage.reports(5)]
    skipped = [(index, 1000 * index, "skipped") for index in (1, 2, 3)]
    assert found == [(0, 0, "captioned"), *skipped, (4, 4000, "captioned")]
    assert stage.received()[4].dropped_windows == 3
    lines = [line for line in capfd.readouterr().err.splitlines() if "skipped" in line]
    first = round((stage.start * SECOND - stage.node._outputs._origin_ns) / SECOND)
    assert [line.split("captioner: ")[1].split(":")[0] for line in lines] == [
        f"{first + index}-{first + index + 1} s" for index in (1, 2, 3)
    ]


def test_picture_is_drawn_for_subscribers_only(stage):
    seen, node = [], stage.observer.node
    topic = "/captioner/annotated_image"
    stage.report(0, 8, 5)
    looking = node.create_subscription(Image, topic, seen.append, RELIABLE)
    stage.wait(lambda: node.count_publishers(topic))
    time.sleep(0.3)  # until the captioner has discovered the subscriber
    stage.report(1, 8, 5)
    stage.wait(lambda: len(seen) == 1)
    assert rgb8_array(seen[0]).shape[1] == 2 * 240 + 18 and stage.index(seen[0]) == 1
    take_away(node, looking)


def test_window_has_its_report_after_failures(stage, caplog, monkeypatch):
    class Models:
        """Stands for a large object."""

    held = []

    def run_out(*args):
        models = Models()
        models.cycle = models
        held.append(weakref.ref(models))
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB")

    stage.decoder.gate = run_out
    failed = stage.report(2)
    assert (failed.level, failed.outcome) == (ERROR, "failed") and NO_MEMORY in failed.message
    assert (failed.events, failed.lost_packets) == (2000, 2)
    assert held[0]() is None
    stage.decoder.gate = None
    with monkeypatch.context() as patch:
        patch.setattr("crossspec_ros.ros.publishers.caption_line", lambda *_: 1 / 0)
        assert stage.report(3, 8, 5).outcome == "captioned"
        stage.wait(lambda: "ZeroDivisionError" in caplog.text)
    assert stage.report(4).outcome == "captioned"


def test_live_parameters_apply_and_invalid_values_are_refused(stage):
    decoder, change = stage.decoder, stage.change
    assert change("question", "where?").successful and change("max_new_tokens", 7).successful
    assert stage.report(0).message.endswith(" event images: where?") and decoder.options.max_new_tokens == 7
    assert decoder.policy.limits == Limits(128, 1e-4, (REHEARSAL, *PROPOSERS))
    assert change("proposers", ["memory"]).successful and change("max_nodes", 0).successful
    assert change("least_prob", 0.5).successful
    assert decoder.policy.limits == Limits(0, 0.5, (REHEARSAL, "memory"))
    assert change("mode", "autoregressive").successful and not decoder.policy.limits.proposers
    assert change("mode", "prefill_hidden").successful
    assert decoder.policy.limits.proposers == (REHEARSAL, "memory")
    assert change("rehearse", False).successful and decoder.policy.limits.proposers == ("memory",)
    assert change("rehearse", True).successful
    assert change("temperature", 0.7).successful and change("top_p", 0.9).successful
    assert stage.node._captioner.options.sampling == Sampling(0.7, 0.9, 0)
    bad = {"max_new_tokens": 0, "deadline_s": -1.0, "threads": 2, "proposers": ["memory", "luck"]}
    bad |= {"temperature": 1e-9, "question": 101 * "x", "when": "sometimes", "schema": "{"}
    for name, value in (*bad.items(), ("questions", ["who? [yes]"])):
        assert not change(name, value).successful, name
    assert decoder.options.max_new_tokens == 7 and decoder.policy.limits.proposers == (REHEARSAL, "memory")
    assert stage.report(1).message.endswith("where?") and decoder.options.sampling.temperature == 0.7
    assert change("temperature", 0.0).successful and stage.node._captioner.options.sampling is None
    # A refused change refuses all changes of an atomic set.
    several = [Parameter("max_nodes", value=3), Parameter("schema", value="{")]
    assert not stage.node.set_parameters_atomically(several).successful
    assert decoder.policy.limits.max_nodes == 0


def test_values_are_checked_at_run_time(stage):
    """Field case 33."""
    assert stage.change("deadline_s", 1).successful
    assert stage.node.get_parameter("deadline_s").value == 1.0 and stage.node._captioner.deadline_s == 1.0
    assert isinstance(stage.node.get_parameter("deadline_s").value, float)
    for name, value, reason in (
        ("question", True, "question is True"),
        ("max_new_tokens", 32.0, "max_new_tokens is 32.0"),
        ("qestion", "who?", "no parameter qestion: did you mean question?"),
    ):
        refused = stage.change(name, value)
        assert not refused.successful and reason in refused.reason
    assert not stage.node.has_parameter("qestion")


def test_service_answers_questions(stage, capfd):
    stage.report(2)
    answered = stage.ask("who?")
    assert (answered.success, answered.answer.text, answered.reason) == (True, "answer to who?", "")
    assert answered.answer.verified and stage.index(answered.answer) == 2
    several = [stage.asking.call_async(Ask.Request(question=f"{i}?")) for i in range(3)]
    stage.wait(lambda: all(future.done() for future in several))
    assert [future.result().answer.text for future in several] == [f"answer to {i}?" for i in range(3)]
    empty = stage.ask(" ")
    assert not empty.success and "empty" in empty.reason
    # The answer is data and stays unchanged. The log escapes it.
    assert "who\x1b[2J\nand?" in stage.ask("who\x1b[2J\nand?").answer.text
    logged = "".join(capfd.readouterr())
    assert r"who\x1b[2J\nand?" in logged and "\x1b[2J" not in logged
    stage.decoder.fail = True
    assert "out of memory" in stage.ask("why?").reason


def test_action_streams_words_and_can_be_cancelled(stage):
    words = []
    stage.report(2)
    _, early = stage.goal("who?", '{"type":"integer"}', words.append)
    stage.wait(early.done)
    done = early.result()
    assert done.status == GoalStatus.STATUS_SUCCEEDED and done.result.success
    assert done.result.answer.text == 'answer to who?{"type":"integer"}'
    assert stage.index(done.result.answer) == 2
    stage.wait(lambda: words == ["answer"])
    _, refused = stage.goal(" ")
    stage.wait(refused.done)
    assert refused.result().status == GoalStatus.STATUS_ABORTED and "empty" in refused.result().result.reason
    _, long = stage.goal("x" * 10_001)
    stage.wait(long.done)
    assert long.result().status == GoalStatus.STATUS_ABORTED and "10000" in long.result().result.reason

    # Cancelling cuts the answer in work, and drops the waiting one.
    def gate(what, cancel):
        assert cancel.wait(20.0)

    stage.decoder.gate = gate
    words.clear()
    handles = [stage.goal("where?", on_words=words.append), stage.goal("why?")]
    stage.wait(lambda: words and all(handle.status == GoalStatus.STATUS_EXECUTING for handle, _ in handles))
    ends = []
    for handle, result in reversed(handles):
        stage.wait(handle.cancel_goal_async().done)
        stage.wait(result.done)
        ends.append(result.result())
    dropped, cut = ends
    assert {cut.status, dropped.status} == {GoalStatus.STATUS_CANCELED}
    assert cut.result.answer.text == "answer to where?" and not cut.result.success
    assert "cancelled" in dropped.result.reason


def test_standing_questions_are_answered_on_a_topic(stage):
    answers = stage["answers"]
    assert stage.change("questions", ["who? [me, you]", "where? [here, there]"]).successful
    stage.report(1)
    stage.wait(lambda: len(answers) == 2)
    assert [(one.question, one.answer.text) for one in answers] == [("who?", "me"), ("where?", "here")]
    assert {(stage.index(one.answer), one.answer.verified) for one in answers} == {(1, False)}
    assert answers[0].choices == ["me", "you"] and list(answers[0].probabilities) == [0.5, 0.5]
    assert stage.change("questions", [""]).successful
    stage.report(2)
    assert len(answers) == 2


def test_captions_and_answers_follow_a_schema(stage):
    """Incomplete JSON is a fault."""
    assert stage.change("schema", '{"type": "boolean"}').successful
    complete = stage.report(1, 8, 5)
    stage.decoder.is_json = False
    cut = stage.report(2, 8, 5)
    assert [(one.level, list(one.degraded)) for one in (complete, cut)] == [(OK, []), (WARN, ["no_json"])]
    stage.wait(lambda: [one.data for one in stage["caption_json"]] == [complete.caption.text])
    answer = stage.ask("who?", '{"type":"integer"}')
    assert answer.answer.text == 'answer to who?{"type":"integer"}'
    assert not answer.success and "complete JSON" in answer.reason
    stage.decoder.is_json = True
    assert stage.ask("who?", '{"type":"integer"}').success
    assert stage.ask("who?").answer.text == "answer to who?"
    assert "schema is invalid" in stage.ask("who?", "{").reason
    assert stage.change("schema", "").successful
    assert not stage.report(3, 8, 5).degraded


def test_unchanged_windows_are_reported_with_the_valid_caption(stage):
    assert stage.change("when", "changed").successful
    first, still, other = (stage.report(index, 8, 5, seen=index < 3) for index in (1, 2, 3))
    assert [report.outcome for report in (first, still, other)] == ["captioned", "unchanged", "captioned"]
    assert still.caption == first.caption and stage.index(still.caption) == 1
    assert still.message.startswith("unchanged since") and still.level == OK
    stage.wait(lambda: len(stage["caption_stamped"]) == 2)
    assert stage.change("when", "asked").successful
    assert stage.report(4, 8, 5).outcome == "unasked"


def test_no_parameter_is_the_prefix_of_another(stage):
    # ros2 param dump writes a tree, in which a name is either a value or a branch.
    names = [parameter.name for parameter in stage.parameters]
    assert not [(a, b) for a in names for b in names if b.startswith(f"{a}.")]


def test_missing_windows_are_a_warning(monkeypatch):
    monkeypatch.setattr("crossspec_ros.ros.inputs.HOLD_S", 0.5)
    with outsider() as observer, spinning(lambda: CaptionerNode(lambda params: FakeDecoder())) as node:
        assert node.get_namespace() == "/"
        observer.wait(lambda: observer.status("captioner: inputs")[1].startswith("no window has arrived yet"))
        assert observer.status("captioner: inputs")[0] == DiagnosticStatus.WARN


def test_too_small_frames_are_a_warning(stage):
    stage.decoder.pair.target.spec.image_size = 5
    try:
        stage.go("deactivate", "activate")
        stage.report(0)
        stage.wait(lambda: "the same target" in stage.observer.status("captioner: inputs")[1])
    finally:
        stage.decoder.pair.target.spec.image_size = 4
        stage.go("deactivate", "activate")
