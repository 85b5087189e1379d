"""The captioner on its topics: one report per closed window, whatever the window lacks."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from action_msgs.msg import GoalStatus
from crossspec_msgs.action import Ask as AskAction
from crossspec_msgs.msg import WindowClosed, WindowReport
from crossspec_msgs.srv import Ask
from diagnostic_msgs.msg import DiagnosticStatus
from fakes import FakeDecoder
from outsider import RELIABLE, STAGES, outsider, spinning, take_away
from rclpy.action import ActionClient
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from sensor_msgs.msg import Image
from std_msgs.msg import String

from crossspec_ros.captioning.comparison import Comparison
from crossspec_ros.drafting.policy import Limits
from crossspec_ros.engine.sampling import Sampling
from crossspec_ros.errors import InputError
from crossspec_ros.ros.captioner import FAILURE, SUCCESS, CaptionerNode
from crossspec_ros.ros.messages import closed_message, image_message, rgb8_array
from crossspec_ros.ros.run import NodeError, run
from crossspec_ros.windows.window import Counts

SECOND = 10**9
ERROR = TransitionCallbackReturn.ERROR
PIXELS = np.full((4, 4, 3), 100, np.uint8)
REACHED = np.full((4, 4, 3), 255, np.uint8)
REACHED[0, 0] = 255, 0, 0


@pytest.fixture
def stage():
    """An outsider that also plays the synchronizer, and a running captioner."""
    with outsider() as observer:
        topics = {
            "frame": observer.node.create_publisher(Image, "frame", RELIABLE),
            "event_image": observer.node.create_publisher(Image, "event_image", RELIABLE),
            "window_closed": observer.node.create_publisher(WindowClosed, "window_closed", RELIABLE),
        }
        decoder = FakeDecoder()
        with spinning(lambda: CaptionerNode(load=lambda params: decoder)) as node:
            observer.wait(lambda: all(topic.get_subscription_count() for topic in topics.values()))
            report = "/captioner/report"
            observer.wait(lambda: node.count_subscribers(report) and observer.node.count_publishers(report))

            def send(index, frames, images, seen=True):
                for i in range(frames):
                    stamp = index * SECOND + i * SECOND // 8
                    topics["frame"].publish(image_message(PIXELS + i if seen else 0 * PIXELS, stamp, ""))
                for i in range(images):
                    stamp = index * SECOND + (i + 1) * SECOND // 5
                    topics["event_image"].publish(image_message(REACHED, stamp, ""))
                counts = Counts(frames, images, 1000 * index, index, 10 * index, 1)
                topics["window_closed"].publish(closed_message((index + 1) * SECOND, counts))
                return topics

            yield observer, send, decoder, node


def test_each_window_gets_its_report_its_captions_and_its_latencies(stage):
    observer, send, _, _ = stage
    for index in (3, 4, 5):
        send(index, 8, 5)
        observer.wait(lambda index=index: len(observer["/captioner/report"]) == index - 2)
    text = "8 frames, 5 event images: What are the key elements in this scene?"
    reports = observer.reports()
    assert [end for end, *_ in reports] == [4 * SECOND, 5 * SECOND, 6 * SECOND]
    for end, level, message, report in reports:
        assert (level, message, report.outcome) == (WindowReport.OK, text, "captioned")
        caption = report.caption
        assert (caption.text, caption.source, caption.verified) == (text, "target", True)
        assert (caption.tokens, caption.target_passes, report.dropped_windows) == (10, 4, 0)
        drafted = {(count.name, count.drafted, count.accepted) for count in report.proposers}
        assert drafted == {("memory", 20, 6), ("event_draft", 5, 0)}
        assert report.acceptance_length == 2.5 and not report.cut_by_deadline
        index = end // SECOND - 1
        assert (report.events, report.lost_packets) == (1000 * index, index)
        assert (report.late_events, report.late_frames) == (10 * index, 1)
        stages = {stage.name: stage.ms for stage in report.stages}
        assert stages["total"] >= stages["event_encode"] >= 0
        spans = {span.name: (span.start_ms, span.end_ms) for span in report.spans}
        assert spans["total"] == (0.0, stages["total"]) and "verify[0]" in spans
        assert report.window_start.sec == index
    stamped = observer["/captioner/caption_stamped"]
    observer.wait(lambda: stamped == [report.caption for *_, report in reports])
    observer.wait(
        lambda: len(observer["/captioner/caption"]) == len(observer["/captioner/caption_draft"]) == 3
    )
    assert (
        observer["/captioner/caption"][0].data == text
        and observer["/captioner/caption_draft"][0].data == "draft"
    )
    observer.wait(lambda: [m.data for m in observer["/captioner/caption_partial"]] == [text] * 3)
    for name in STAGES:
        expected = 0 if name == "draft_prefill" else 3  # the fake has no such stage
        observer.wait(lambda name=name, n=expected: len(observer[f"/captioner/latency/{name}"]) == n)


def test_windows_without_frames_or_without_anything_say_so(stage, capfd):
    observer, send, _, node = stage
    # A comparison asks nothing of what the target did not say.
    node._outcomes.comparison = Comparison(None, None)
    send(0, 0, 5)
    observer.wait(lambda: len(observer["/captioner/report"]) == 1)
    send(1, 0, 0)
    observer.wait(lambda: len(observer["/captioner/report"]) == 2)
    draft, nothing = observer.reports()
    assert draft[1] == nothing[1] == WindowReport.WARN
    assert draft[3].caption.source == "event_draft" and draft[2].startswith("0 frames, 5 event images")
    assert (
        nothing[3].caption.source == "none"
        and nothing[2] == "nothing to be seen: events missing, rgb missing"
    )
    assert observer["/captioner/caption"] == []
    assert "could not caption" not in capfd.readouterr().err
    # The draft of all event images takes the place of the one that was told before the window closed.
    drafts = [message.data for message in observer["/captioner/caption_draft"]]
    assert drafts[-1].startswith("0 frames, 5 event images")


def test_the_viewer_gets_the_draft_of_each_window(stage):
    """The next window's draft may come before the caption of the window before."""
    observer, send, _, node = stage
    texts = []
    node._outcomes.view = SimpleNamespace(
        text=lambda kind, text, end_ns: texts.append((kind, text, end_ns)),
        captioned=lambda *told: None,
        close=lambda: None,
    )
    for index in (0, 1):
        node._outcomes.drafted(index, f"draft {index}")
    for index in (0, 1):
        send(index, 1, 1)
        observer.wait(lambda n=index + 1: len(observer["/captioner/report"]) == n)
    observer.wait(lambda: len(texts) == 2)
    assert texts == [("draft", f"draft {index}", (index + 1) * SECOND) for index in (0, 1)]


def test_windows_that_come_too_fast_are_skipped_and_reported(stage, capfd):
    observer, send, decoder, node = stage
    started, released = threading.Event(), threading.Event()

    def gate(window, cancel):
        started.set()
        assert released.wait(20.0)

    decoder.gate = gate
    send(0, 1, 1)
    assert started.wait(20.0)
    for index in range(1, 5):
        send(index, 1, 1)
    observer.wait(lambda: len(node._worker._waiting) == 4)
    released.set()
    observer.wait(lambda: len(observer["/captioner/report"]) == 5)
    messages = [message.split(":")[0] for _, _, message, _ in observer.reports()]
    assert messages[1:4] == ["skipped"] * 3 and "skipped" not in (messages[0], messages[4])
    assert observer.reports()[4][3].dropped_windows == 3
    counts = [(report.events, report.lost_packets, report.outcome) for *_, report in observer.reports()]
    skipped = [(1000 * index, index, "skipped") for index in (1, 2, 3)]
    assert counts == [(0, 0, "captioned"), *skipped, (4000, 4, "captioned")]
    # One line in five seconds.
    assert capfd.readouterr().err.count("skipped: a newer window closed") == 1


def test_a_caption_never_rests_on_blind_frames(stage):
    observer, send, _, _ = stage
    send(0, 8, 5, seen=False)
    observer.wait(lambda: len(observer["/captioner/report"]) == 1)
    send(1, 8, 5)
    observer.wait(lambda: len(observer["/captioner/report"]) == 2)
    send(2, 8, 0, seen=False)
    observer.wait(lambda: len(observer["/captioner/report"]) == 3)
    blind, seeing, nothing = observer.reports()
    assert blind[1] == WindowReport.WARN and blind[2].startswith("0 frames, 5 event images")
    assert (blind[3].rests_on, blind[3].degraded) == ("events", ["rgb_frozen", "rgb_dark"])
    assert seeing[1] == WindowReport.OK and seeing[2].startswith("8 frames, 5 event images")
    assert (seeing[3].rests_on, seeing[3].degraded) == ("frames", [])
    assert nothing[1:3] == (
        WindowReport.WARN,
        "nothing to be seen: events missing, rgb dark",
    )
    assert nothing[3].rests_on == "nothing"


def test_a_picture_of_the_window_is_drawn_while_somebody_looks(stage):
    observer, send, *_ = stage
    seen = []
    send(0, 8, 5)
    observer.wait(lambda: len(observer["/captioner/report"]) == 1)
    topic = "/captioner/annotated_image"
    looking = observer.node.create_subscription(Image, topic, seen.append, RELIABLE)
    observer.wait(lambda: observer.node.count_publishers(topic))
    time.sleep(0.3)  # until the captioner has seen who looks
    send(1, 8, 5)
    observer.wait(lambda: len(seen) == 1)
    assert rgb8_array(seen[0]).shape[1] == 2 * 240 + 18 and seen[0].header.stamp.sec == 2
    take_away(observer.node, looking)


def test_a_window_has_its_report_whatever_fails(stage, caplog, capfd, monkeypatch):
    class Panic(BaseException):
        """As the tokenizers library raises it."""

    def panic(*_):
        raise Panic("in the tokenizer")

    observer, send, decoder, node = stage
    decoder.fail = True
    send(2, 1, 1)
    observer.wait(lambda: len(observer["/captioner/report"]) == 1)
    decoder.fail = False
    with monkeypatch.context() as patch:
        patch.setattr("crossspec_ros.ros.outcomes.caption_line", lambda *_: 1 / 0)
        send(3, 8, 5)
        observer.wait(lambda: len(observer["/captioner/report"]) == 2)
        observer.wait(lambda: "ZeroDivisionError" in caplog.text)
    node._outcomes.comparison = SimpleNamespace(add=panic, text=str, close=lambda: None)
    send(4, 8, 5)
    observer.wait(lambda: len(observer["/captioner/report"]) == 3)
    (_, level, message, failed), *others = observer.reports()
    assert (level, message, failed.outcome) == (WindowReport.ERROR, "failed: out of memory", "failed")
    assert (failed.events, failed.lost_packets) == (2000, 2)
    assert [report.outcome for *_, report in others] == ["captioned"] * 2
    assert "Panic('in the tokenizer')" in capfd.readouterr().err


def test_questions_are_answered_one_by_one_if_only_with_why_not(stage, capfd):
    observer, send, decoder, _ = stage
    questions = observer.node.create_publisher(String, "/captioner/question", RELIABLE)
    observer.wait(questions.get_subscription_count)
    send(0, 1, 1)
    observer.wait(lambda: len(observer["/captioner/report"]) == 1)

    def ask(text):
        questions.publish(String(data=text))
        asked = len(observer["/captioner/answer"]) + 1
        observer.wait(lambda: len(observer["/captioner/answer"]) == asked)
        return observer["/captioner/answer"][-1].data

    assert ask("who?") == "answer to who?"
    assert ask(" ") == "(no answer: the question is empty: ask a sentence)"
    # The answer is data and stays as it is, which the log must not.
    assert "who\x1b[2J\nand?" in ask("who\x1b[2J\nand?")
    logged = "".join(capfd.readouterr())
    assert r"who\x1b[2J\nand?" in logged and "\x1b[2J" not in logged
    decoder.fail = True
    assert ask("why?") == "(no answer: failed: out of memory)"


def test_live_parameters_are_followed_and_bad_values_refused(stage):
    observer, send, decoder, node = stage

    def change(name, value):
        return node.set_parameters([Parameter(name, value=value)])[0]

    assert change("question", "where?").successful and change("max_new_tokens", 7).successful
    send(0, 1, 1)
    observer.wait(lambda: len(observer["/captioner/report"]) == 1)
    assert observer.reports()[0][2] == "1 frames, 1 event images: where?" and decoder.max_new_tokens == 7
    assert decoder.policy.limits == Limits(128, 1e-4, ("memory", "event_draft", "heads", "grammar"))
    assert change("proposers", "memory").successful and change("max_nodes", 0).successful
    assert change("least_prob", 0.5).successful
    assert decoder.policy.limits == Limits(0, 0.5, ("memory",))
    assert change("mode", "autoregressive").successful and not decoder.policy.limits.proposers
    assert change("mode", "prefill_hidden").successful and decoder.policy.limits.proposers == ("memory",)
    assert change("temperature", 0.7).successful and change("top_p", 0.9).successful
    assert decoder.sampling == Sampling(0.7, 0.9, 0)
    assert "1e-06 or more" in change("temperature", 1e-9).reason and decoder.sampling.temperature == 0.7
    assert change("temperature", 0.0).successful and decoder.sampling is None
    bad = {"max_new_tokens": 0, "deadline_s": -1.0, "threads": 2, "proposers": "memory,luck"}
    for name, value in bad.items():
        result = change(name, value)
        assert (not result.successful and name in result.reason) or "read-only" in result.reason
    assert decoder.max_new_tokens == 7 and decoder.policy.limits.proposers == ("memory",)
    assert "shorten it" in change("question", 101 * "x").reason
    assert node._settings.question == "where?"


def trigger(observer, node, transition):
    # Where ROS does it too: the executor may not be looking at what goes.
    task = node.executor.create_task(transition)
    observer.wait(task.done)
    return task.result()


def test_windows_that_close_while_it_is_inactive_are_reported_as_such(stage, capfd):
    observer, send, decoder, node = stage
    started, released = threading.Event(), threading.Event()

    def gate(window, cancel):
        started.set()
        assert released.wait(20.0) or cancel.is_set()

    decoder.gate = gate
    send(4, 1, 1)
    assert started.wait(20.0)
    threading.Timer(0.5, released.set).start()
    assert trigger(observer, node, node.trigger_deactivate) == SUCCESS
    observer.wait(lambda: not observer.node.count_publishers("/captioner/report"))
    decoder.gate = None
    send(5, 1, 1)
    send(6, 1, 1)
    observer.wait(lambda: len(node._outcomes._missed) == 3)
    parts = node._read_counters()
    assert (
        parts["captions"].flow["windows"] == 3 and "activate the node" in parts["model"].warnings["inactive"]
    )
    assert trigger(observer, node, node.trigger_activate) == SUCCESS
    observer.wait(lambda: len(observer["/captioner/report"]) == 3)
    send(7, 1, 1)
    observer.wait(lambda: len(observer["/captioner/report"]) == 4)
    outcomes = [(end // SECOND, report.level, report.outcome) for end, *_, report in observer.reports()]
    missed = [(second, WindowReport.WARN, "inactive") for second in (5, 6, 7)]
    assert outcomes == [*missed, (8, WindowReport.OK, "captioned")]
    said = capfd.readouterr().err
    assert "inactive: windows" in said and said.count("captioner: active: every window") == 1


def test_hundreds_of_windows_that_were_missed_are_all_reported_after_a_cleanup_too(stage):
    observer, send, _, node = stage
    assert trigger(observer, node, node.trigger_deactivate) == SUCCESS
    observer.wait(lambda: not observer.node.count_publishers("/captioner/report"))
    send(154, 0, 0)
    observer.wait(lambda: len(node._outcomes._missed) == 1)
    (window,) = node._outcomes._missed
    node._outcomes.miss(replace(window, end_ns=second * SECOND) for second in range(150))
    # One has closed whose frame has not come yet.
    node._assembler.close(156 * SECOND, 1, 0)
    assert trigger(observer, node, node.trigger_cleanup) == SUCCESS
    assert trigger(observer, node, node.trigger_configure) == SUCCESS
    assert trigger(observer, node, node.trigger_activate) == SUCCESS
    observer.wait(lambda: len(observer["/captioner/report"]) == 152)
    assert {end for end, *_ in observer.reports()} >= {0, 149 * SECOND, 155 * SECOND, 156 * SECOND}
    assert node._outcomes.summary.counts["inactive"] == 152


def test_two_threads_never_share_a_decoder(stage, capfd, monkeypatch):
    """A pass that does not end in time keeps the node inactive, and its models in memory."""
    monkeypatch.setattr("crossspec_ros.ros.captioner.OLD_S", 0.2)
    observer, send, decoder, node = stage
    started, released = threading.Event(), threading.Event()

    def gate(window, cancel):
        started.set()
        assert released.wait(20.0)

    decoder.gate = gate
    send(4, 1, 1)
    assert started.wait(20.0)
    assert trigger(observer, node, node.trigger_deactivate) == SUCCESS
    for transition, again in ((node.trigger_activate, "activate it"), (node.trigger_cleanup, "clean up it")):
        assert trigger(observer, node, transition) == FAILURE
        assert f"{again} again in a moment" in capfd.readouterr().err
    assert not decoder.closed and "captions" in {pulse.name for pulse in node._pulses()}
    released.set()
    assert trigger(observer, node, node.trigger_activate) == SUCCESS
    assert [thread.name for thread in threading.enumerate()].count("captioner") == 1
    assert trigger(observer, node, node.trigger_deactivate) == SUCCESS
    assert trigger(observer, node, node.trigger_cleanup) == SUCCESS and decoder.closed


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_transition_that_raises_is_told_and_leaves_nothing_behind(stage, capfd):
    class Panic(BaseException):
        """As libraries in Rust raise it."""

    def panic(*told):
        raise Panic("byte index 3")

    def panic_once(*told):
        del node._outcomes.miss
        panic()

    observer, _, decoder, node = stage
    node._outcomes.miss = panic_once
    assert trigger(observer, node, node.trigger_deactivate) == ERROR
    assert "on_deactivate could not be handled" in capfd.readouterr().err
    assert not node._inputs and decoder.closed and node.boundary.failed_callbacks >= 1
    node._load = panic
    assert trigger(observer, node, node.trigger_configure) == FAILURE
    assert "the captioner cannot load its models and warm up" in capfd.readouterr().err
    node._load = lambda settings: FakeDecoder()
    assert trigger(observer, node, node.trigger_configure) == SUCCESS and len(node._inputs) == 3
    assert trigger(observer, node, node.trigger_activate) == SUCCESS
    # Not even brought back, the node ends, for ROS would leave it up and of no use.
    node._outcomes.miss = panic
    assert trigger(observer, node, node.trigger_shutdown) == ERROR
    (end,) = [timer for timer in node.timers if timer.timer_period_ns == 0]
    with pytest.raises(NodeError, match="start it again"):
        end.callback()
    del node._outcomes.miss


def test_the_service_answers_the_question_that_it_was_asked(stage):
    observer, send, decoder, _ = stage
    ask = observer.node.create_client(Ask, "/captioner/ask")
    observer.wait(ask.service_is_ready)
    early = ask.call_async(Ask.Request(question="who?"))
    send(2, 1, 1)
    observer.wait(early.done)
    answer = early.result()
    assert (answer.success, answer.answer.text, answer.reason) == (True, "answer to who?", "")
    assert answer.answer.verified and answer.answer.header.stamp.sec == 3
    several = [ask.call_async(Ask.Request(question=f"{i}?")) for i in range(3)]
    observer.wait(lambda: all(future.done() for future in several))
    assert [future.result().answer.text for future in several] == [f"answer to {i}?" for i in range(3)]
    empty = ask.call_async(Ask.Request(question=" "))
    observer.wait(empty.done)
    assert not empty.result().success and "the question is empty" in empty.result().reason
    decoder.fail = True
    failed = ask.call_async(Ask.Request(question="why?"))
    observer.wait(failed.done)
    assert failed.result().reason == "failed: out of memory"


def test_an_action_tells_the_words_as_they_come_and_ends_where_it_is_cancelled(stage):
    observer, send, decoder, _ = stage
    client = ActionClient(observer.node, AskAction, "/captioner/ask_action")
    observer.wait(client.server_is_ready)
    words: list[str] = []

    def goal(question, schema=""):
        asked = AskAction.Goal(question=question, schema=schema)
        sent = client.send_goal_async(asked, lambda told: words.append(told.feedback.words))
        observer.wait(sent.done)
        return sent.result(), sent.result().get_result_async()

    _, early = goal("who?", '{"type":"integer"}')
    send(2, 1, 1)
    observer.wait(early.done)
    told = early.result()
    assert told.status == GoalStatus.STATUS_SUCCEEDED and told.result.success
    assert told.result.answer.text == 'answer to who?{"type":"integer"}'
    assert told.result.answer.header.stamp.sec == 3
    observer.wait(lambda: words == ["answer"])
    _, refused = goal(" ")
    observer.wait(refused.done)
    assert refused.result().status == GoalStatus.STATUS_ABORTED
    assert "the question is empty" in refused.result().result.reason
    assert not goal("x" * 10_001)[0].accepted and not goal("?", "x" * 70_000)[0].accepted
    # In work, it is cut short; behind that, it is never begun.
    decoder.gate = lambda what, cancel: cancel.wait(10)
    handles = [goal("where?"), goal("why?")]
    for handle, _ in reversed(handles):
        observer.wait(handle.cancel_goal_async().done)
    observer.wait(lambda: all(result.done() for _, result in handles))
    cut, dropped = (result.result() for _, result in handles)
    assert {cut.status, dropped.status} == {GoalStatus.STATUS_CANCELED}
    assert cut.result.answer.text == "answer to where?" and "words so far" in cut.result.reason
    assert not cut.result.success and "was cancelled" in dropped.result.reason


def test_a_goal_that_waits_at_the_end_is_told_why(stage):
    observer, _, _, node = stage
    client = ActionClient(observer.node, AskAction, "/captioner/ask_action")
    observer.wait(client.server_is_ready)
    sent = client.send_goal_async(AskAction.Goal(question="who?"))
    observer.wait(sent.done)
    result = sent.result().get_result_async()
    assert trigger(observer, node, node.trigger_deactivate) == SUCCESS
    observer.wait(result.done)
    assert result.result().status == GoalStatus.STATUS_ABORTED
    assert "was deactivated" in result.result().result.reason


def test_standing_questions_are_answered_on_a_topic_and_may_be_changed(stage):
    observer, send, _, node = stage
    answers = observer["/captioner/answers"]

    def set_questions(text):
        return node.set_parameters([Parameter("questions", value=text)])[0]

    assert set_questions("who? [me, you]|where? [here, there]").successful
    send(1, 1, 1)
    observer.wait(lambda: len(answers) == 2)
    assert [one.question for one in answers] == ["who?", "where?"]
    assert [one.answer.text for one in answers] == ["me", "here"]
    assert {(one.answer.header.stamp.sec, one.answer.verified) for one in answers} == {(2, False)}
    assert answers[0].choices == ["me", "you"] and list(answers[0].probabilities) == [0.5, 0.5]
    refused = set_questions("who? [yes]")
    assert not refused.successful and "is no question with choices" in refused.reason
    assert set_questions("").successful
    send(2, 1, 1)
    observer.wait(lambda: len(observer.reports()) == 2)
    assert len(answers) == 2


def test_captions_and_answers_follow_a_schema_and_what_is_no_whole_json_is_told(stage):
    observer, send, decoder, node = stage

    def set_schema(text):
        return node.set_parameters([Parameter("schema", value=text)])[0]

    assert set_schema('{"type": "boolean"}').successful
    for index, is_json in ((1, True), (2, False)):
        decoder.is_json = is_json
        send(index, 8, 5)
        observer.wait(lambda index=index: len(observer.reports()) == index)
    reports = [report for *_, report in observer.reports()]
    assert [list(report.degraded) for report in reports] == [[], ["no_json"]]
    assert [report.level for report in reports] == [WindowReport.OK, WindowReport.WARN]
    assert [one.data for one in observer["/captioner/caption_json"]] == [reports[0].caption.text]
    refused = set_schema("{")
    assert not refused.successful and "is no JSON" in refused.reason
    ask = observer.node.create_client(Ask, "/captioner/ask")
    observer.wait(ask.service_is_ready)
    decoder.is_json = True
    schemas = ("", '{"type":"integer"}', "{")
    asked = [ask.call_async(Ask.Request(question="who?", schema=schema)) for schema in schemas]
    observer.wait(lambda: all(future.done() for future in asked))
    plain, structured, bad = (future.result() for future in asked)
    assert plain.answer.text == "answer to who?"
    assert structured.answer.text == 'answer to who?{"type":"integer"}'
    assert structured.success
    decoder.is_json = False
    cut = ask.call_async(Ask.Request(question="who?", schema=schemas[1]))
    observer.wait(cut.done)
    assert not cut.result().success and "whole JSON" in cut.result().reason
    assert cut.result().answer.text == structured.answer.text
    assert not bad.success and "is no JSON" in bad.reason
    assert set_schema("").successful
    send(3, 8, 5)
    observer.wait(lambda: len(observer.reports()) == 3)
    assert not observer.reports()[2][3].degraded


def test_windows_that_show_nothing_new_are_reported_with_the_caption_that_holds(stage):
    observer, send, decoder, node = stage
    assert node.set_parameters([Parameter("when", value="changed")])[0].successful
    for index, seen in ((1, True), (2, True), (3, False)):
        send(index, 8, 5, seen)
        observer.wait(lambda index=index: len(observer.reports()) == index)
    reports = [report for *_, report in observer.reports()]
    assert [report.outcome for report in reports] == ["captioned", "unchanged", "captioned"]
    assert reports[1].caption == reports[0].caption and reports[1].caption.header.stamp.sec == 2
    assert (reports[1].message, reports[1].level) == ("unchanged since 0-1 s", WindowReport.OK)
    assert len(observer["/captioner/caption_stamped"]) == 2
    assert {index for index, _ in decoder.streamed} == {1, 3}
    refused = node.set_parameters([Parameter("when", value="sometimes")])[0]
    assert not refused.successful and "always" in refused.reason


def test_no_parameter_is_the_prefix_of_another(stage):
    # ros2 param dump writes a tree, in which a name is a value or a branch.
    names = [name for name, *_ in stage[3]._parameters.items()]
    assert not [(a, b) for a in names for b in names if b.startswith(f"{a}.")]


def test_shut_down_it_leaves_nothing_behind_but_its_diagnostics(stage):
    observer, _, decoder, node = stage
    assert trigger(observer, node, node.trigger_shutdown) == SUCCESS and decoder.closed
    gone = ("/captioner/report", "/captioner/caption")
    observer.wait(lambda: not any(map(observer.node.count_publishers, gone)))
    observer.wait(lambda: not observer.node.count_subscribers("/captioner/question"))
    assert not observer.node.count_subscribers("/frame")


def refuse(error):
    def load(params):
        raise error

    return load


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (InputError("no models"), 2, "crossspec: error: no models\n"),
        (MemoryError("of\n4 GB"), 1, "cannot load its models and warm up: MemoryError: of 4 GB\n"),
        (RuntimeError("\x1b]0;owned\x07"), 1, r"RuntimeError: \x1b]0;owned\x07" + "\n"),
    ],
)
def test_a_captioner_that_cannot_start_ends_with_a_sentence(capfd, error, code, sentence):
    with pytest.raises(SystemExit) as end:
        run(lambda: CaptionerNode(load=refuse(error)), [])
    assert end.value.code == code
    told = capfd.readouterr().err
    assert told.endswith(sentence) and "\x1b]" not in told


def test_a_captioner_to_which_no_window_comes_says_so(monkeypatch):
    monkeypatch.setattr("crossspec_ros.ros.captioner.HOLD_S", 0.5)
    with outsider() as observer, spinning(lambda: CaptionerNode(lambda params: FakeDecoder())) as node:
        assert node.get_namespace() == "/"
        observer.wait(lambda: observer.status("captioner: inputs")[1].startswith("no window has come yet: "))
        assert observer.status("captioner: inputs")[0] == DiagnosticStatus.WARN


def test_configuring_again_after_a_failure_subscribes_once():
    errors = [InputError("not yet"), RuntimeError("not yet")]

    def load(params):
        if errors:
            raise errors.pop()
        return FakeDecoder()

    manual = [Parameter("autostart", value=False)]
    with spinning(lambda: CaptionerNode(load, parameter_overrides=manual)) as node:
        for result in (FAILURE, FAILURE, SUCCESS):
            assert node.trigger_configure() == result
        topics = [subscription.topic_name for subscription in node.subscriptions]
        inputs = [topic for topic in topics if not topic.startswith("/diagnostics")]
        assert len(inputs) == 3
