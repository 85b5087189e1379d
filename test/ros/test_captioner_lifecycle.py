"""Windows, questions and models in transitions of the captioner."""

from __future__ import annotations

import threading
import time

import pytest
from action_msgs.msg import GoalStatus
from crossspec_msgs.msg import WindowReport
from fakes import FakeDecoder
from lifecycle_msgs.srv import GetState
from outsider import outsider, spinning, state
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter

from crossspec_ros.errors import InputError
from crossspec_ros.ros.captioner_node import SUCCESS, CaptionerNode
from crossspec_ros.ros.messages import closed_message
from crossspec_ros.windows.window import WindowClosed as Closed

SECOND = 10**9
OK, WARN, ERROR = WindowReport.OK, WindowReport.WARN, WindowReport.ERROR


def test_inactive_captioner_reports_windows_at_once(stage):
    reached, release = stage.hold()
    stage.send(4)
    assert reached()
    threading.Timer(0.5, release).start()
    assert stage.trigger("deactivate")
    stage.decoder.gate = None
    for index in (5, 6):
        stage.send(index)
        stage.wait(lambda index=index: stage.received() and stage.index(stage.received()[-1]) == index)
    stage.wait(lambda: "activate it" in stage.observer.status("captioner: model")[1])
    assert stage.trigger("activate")
    stage.report(7)
    found = [(stage.index(report), report.level, report.outcome) for report in stage.received()]
    missed = [(index, WARN, "inactive") for index in (4, 5, 6)]
    assert found == [*missed, (7, OK, "captioned")]
    assert not [one for one in stage["caption_stamped"] if stage.index(one) in (4, 5, 6)]


def test_cleanup_reports_windows_that_wait_for_images(stage):
    node = stage.node
    assert stage.trigger("deactivate")
    node._inputs._assembler.close((stage.start + 1) * SECOND, 1, 0, published_ns=2**62)
    stage.go("cleanup", "configure", "activate")
    (report,) = stage.reports(1)
    assert report.outcome == "inactive"


def test_images_before_configuration_are_not_missing(stage):
    """Field case 35: the camera ran while the captioner was unconfigured."""
    stage.go("deactivate", "cleanup", "configure", "activate")
    closed = closed_message(Closed((stage.start + 1) * SECOND, 8, 5, 1000, 0, 0, 0))
    stage.topics["window_closed"].publish(closed)
    # This frame arrives after the closing, so no more images of that window can arrive.
    stage.send(1)
    report, _ = stage.reports(2)
    assert not report.missing_images and not stage.node._inputs.counts["missing"]


def test_target_may_change_after_cleanup(stage):
    refused = stage.change("target", "other")
    assert not refused.successful
    assert "parameter target cannot change now" in refused.reason and "clean up" in refused.reason
    assert stage.change("target", "").successful, "no change"
    stage.go("deactivate", "cleanup")
    assert stage.change("target", "other").successful
    stage.go("configure", "activate")
    assert stage.loaded[-1].target == "other"
    assert stage.report(1, 8, 5).outcome == "captioned"
    stage.go("deactivate", "cleanup")
    assert stage.change("target", "").successful


def test_services_answer_while_models_load():
    loading, loaded = threading.Event(), threading.Event()

    def load(settings):
        loading.set()
        assert loaded.wait(20.0)
        return FakeDecoder()

    with outsider() as observer, spinning(lambda: CaptionerNode(load, namespace="/load")) as node:
        assert loading.wait(20.0)
        client = observer.node.create_client(GetState, "/load/captioner/get_state")
        observer.wait(client.service_is_ready)
        answer = client.call_async(GetState.Request())
        observer.wait(answer.done)
        assert answer.result().current_state.label == "configuring"
        changed = node.set_parameters([Parameter("question", value="where?"), Parameter("threads", value=2)])
        assert [one.successful for one in changed] == [True, False]
        loaded.set()
        observer.wait(lambda: state(node) == "active")
        assert node._captioner.options.question == "where?"


def test_inactive_captioner_refuses_questions(stage):
    assert stage.trigger("deactivate")
    assert "not active" in stage.ask("who?").reason


def test_deactivation_waits_for_the_pass_in_work(stage):
    """Two captioners never share a decoder."""
    reached, release = stage.hold()
    stage.send(4)
    assert reached()
    threading.Timer(1.5, release).start()
    begun_s = time.monotonic()
    assert stage.trigger("deactivate") and time.monotonic() - begun_s > 1.4
    assert stage.trigger("cleanup") and stage.decoder.closed


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_failed_transition_unconfigures_the_node(stage, capfd, monkeypatch):
    class Panic(BaseException):
        """Stands for a panic of a Rust library."""

    def panic(*args):
        monkeypatch.undo()
        raise Panic("byte index 3\x1b]0;owned\x07")

    node = stage.node
    monkeypatch.setattr(node._outputs, "report_missed", panic)
    assert not stage.trigger("deactivate")
    assert state(node) == "unconfigured" and stage.decoder.closed
    monkeypatch.setattr(node, "_load", panic)
    assert not stage.trigger("configure")
    logged = capfd.readouterr().err
    assert r"byte index 3\x1b]0;owned" in logged and "\x1b]" not in logged
    assert stage.trigger("configure")


def test_deactivation_aborts_waiting_goals(stage):
    # A new captioner has no window to answer about.
    stage.go("deactivate", "cleanup", "configure", "activate")
    _, result = stage.goal("who?")
    assert stage.trigger("deactivate")
    stage.wait(result.done)
    assert result.result().status == GoalStatus.STATUS_ABORTED
    assert "deactivated" in result.result().result.reason


def test_shut_down_captioner_has_only_diagnostics():
    decoder = FakeDecoder()
    with spinning(lambda: CaptionerNode(lambda params: decoder, namespace="/shut")) as node:
        while state(node) != "active":
            time.sleep(0.01)
        assert node.trigger_shutdown() == SUCCESS and decoder.closed
        left = {publisher.topic_name for publisher in node.publishers}
        assert "/diagnostics" in left and not any("/captioner/" in topic for topic in left)
        assert not [one.topic_name for one in node.subscriptions if one.topic_name.startswith("/shut/")]


def test_repeated_configuration_subscribes_once():
    errors = [InputError("not yet"), RuntimeError("not yet")]

    def load(params):
        if errors:
            raise errors.pop()
        return FakeDecoder()

    manual = [Parameter("autostart", value=False)]
    with spinning(lambda: CaptionerNode(load, parameter_overrides=manual)) as node:
        failure = TransitionCallbackReturn.ERROR
        for result in (failure, failure, SUCCESS):
            assert node.trigger_configure() == result
        topics = [subscription.topic_name for subscription in node.subscriptions]
        assert len([topic for topic in topics if not topic.startswith("/diagnostics")]) == 3
