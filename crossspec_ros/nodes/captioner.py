"""The captioner node: the images of closed windows in, one report and caption per window out."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.subscription import Subscription
from sensor_msgs.msg import Image
from std_msgs.msg import Float64, Header, String

from crossspec_ros.errors import InputError
from crossspec_ros.nodes.bond import Bond, make_bond
from crossspec_ros.nodes.caption_health import CaptionHealth
from crossspec_ros.nodes.caption_worker import CaptionWorker, Decoder, Outcome
from crossspec_ros.nodes.diagnostics import Diagnostics, Reading
from crossspec_ros.nodes.messages import RELIABLE, closed_counts, image_message, rgb8_array, to_ns
from crossspec_ros.nodes.model_loading import (
    NO_MEMORY,
    asked_placement,
    asked_sampling,
    is_out_of_memory,
    load_decoder,
    load_smaller,
    release,
)
from crossspec_ros.nodes.params import declare, read_names
from crossspec_ros.nodes.reports import caption_values, latencies, log_lines, plain, report
from crossspec_ros.nodes.run import NodeError, interrupted, run
from crossspec_ros.nodes.topic_watch import TopicWatch
from crossspec_ros.speculation.limits import Limits
from crossspec_ros.telemetry.span_text import write_spans
from crossspec_ros.telemetry.summary import Summary
from crossspec_ros.telemetry.trace import LATENCIES
from crossspec_ros.windows.annotation import annotated
from crossspec_ros.windows.assembler import WindowAssembler
from crossspec_ros.windows.grid import WindowGrid
from crossspec_ros.windows.quality import HARMLESS
from crossspec_ros.windows.window import Window

if TYPE_CHECKING:
    from crossspec_ros.speculation.caption import Caption

DISCOVERY_S = 5.0
"""Nodes that start together may need three seconds to find each other, Fast DDS's announcement period."""

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


def load(params: SimpleNamespace) -> Decoder:
    """Load and warm up the decoder, as it is asked for or smaller where memory runs out.

    Raises InputError for missing or broken checkpoints, missing devices and bad sampling.
    """
    return load_smaller(asked_placement(params), lambda placement: load_decoder(params, placement))


class CaptionerNode(LifecycleNode):
    """Configured: subscribed, loaded and warm. Active: captioning, as its publisher of `~/report` shows."""

    def __init__(self, load: Callable[[SimpleNamespace], Decoder] = load, **options: Any) -> None:
        super().__init__("captioner", automatically_declare_parameters_from_overrides=True, **options)
        self._params = declare(self, "captioner", self._adjust)
        self._load = load
        self._inputs: list = []
        self._outputs: dict = {}
        self._decoder: Decoder | None = None
        self._worker: CaptionWorker | None = None
        self._closed_ns: dict[int, int] = {}
        self._assembler = WindowAssembler(WindowGrid())
        self._summary = Summary()
        self._health = CaptionHealth()
        self._unusable = self._answers = 0
        self._asking: Subscription | None = None
        self._bond: Bond | None = None
        self._origin_ns: int | None = None
        self._diagnostics = Diagnostics(self, self._read_counters, TopicWatch(self, self._inputs))
        self._failure: Exception | None = None
        self._is_started = not self._params.autostart
        if self._params.autostart:
            try:
                self._start()
            except Exception:
                self.destroy_node()
                raise

    def _start(self) -> None:
        for trigger in (self.trigger_configure, self.trigger_activate):
            if trigger() != SUCCESS:
                raise self._failure or NodeError("the captioner was refused a lifecycle transition by ROS")
        self._is_started = True

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._assembler.clear()
        self._closed_ns.clear()
        # Subscribed before the models load, so that nothing that closes meanwhile is lost.
        for kind, topic, take in (
            (Image, "frame", self._take_frame),
            (Image, "event_image", self._take_event_image),
            (Header, "window_closed", self._take_closed),
        ):
            self._inputs.append(self.create_subscription(kind, topic, take, RELIABLE))
        started = time.monotonic()
        try:
            self._decoder = self._load(self._params)
            self._adjust(self._params)
        except Exception as error:
            self._drop_inputs()
            return self._fail("load its models and warm up", error)
        # A decoder without models, as tests have it, is nowhere.
        asked = asked_placement(self._params) if hasattr(self._decoder, "pair") else None
        self._health.loaded(self._params.models or "models/tiny", self._decoder, asked)
        self.get_logger().info(f"models loaded and warm after {time.monotonic() - started:.1f} s")
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            self._activate()
        except Exception as error:
            self._end()
            return self._fail("start to caption", error)
        return super().on_activate(state)

    def _activate(self) -> None:
        topics = {"caption": String, "caption_partial": String, "caption_draft": String, "answer": String}
        topics |= {"acceptance_length": Float64, "annotated_image": Image}
        topics |= {f"latency/{stage}": Float64 for stage in LATENCIES}
        for topic, kind in topics.items():
            self._outputs[topic] = self.create_publisher(kind, f"~/{topic}", RELIABLE)
        assert self._decoder is not None
        self._worker = CaptionWorker(
            self._decoder,
            self._params.question,
            on_draft=lambda text: self._publish_text("caption_draft", text),
            on_words=lambda text: self._publish_text("caption_partial", text),
            on_outcome=self._tell,
            deadline_s=self._params.deadline_s,
        )
        self._asking = self.create_subscription(String, "~/question", self._ask, RELIABLE)
        # Last, because a player takes it as the sign to start: by then the synchronizer must know this node.
        self._await_synchronizer()
        self._outputs["report"] = self.create_publisher(DiagnosticArray, "~/report", RELIABLE)
        self._bond = make_bond(self)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._end()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._drop_inputs()
        self._close_decoder()
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._end()
        self._drop_inputs()
        self._close_decoder()
        return super().on_shutdown(state)

    def stop(self) -> None:
        """Cancel what is in work, close the decoder and print the figures of the run."""
        self._end_worker()
        self._close_decoder()
        if self._summary.counts:
            print(self._summary.table(), flush=True)

    def _close_decoder(self) -> None:
        decoder, self._decoder = self._decoder, None
        self._health.unloaded()
        try:
            if decoder is not None:
                decoder.close()
        except Exception as error:  # whatever it is, the node has to end
            self.get_logger().error(f"the caption memory could not be saved: {error!r}")

    def _fail(self, task: str, error: Exception) -> TransitionCallbackReturn:
        """Keep the sentence for the end of the process, or log it where somebody else starts this node."""
        self._failure = error
        if interrupted():
            return FAILURE
        if not isinstance(error, InputError):
            self.get_logger().error("".join(traceback.format_exception(error)))
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            self._failure = NodeError(f"the captioner cannot {task}: {reason}")
        if self._is_started:
            self.get_logger().error(str(self._failure))
        return FAILURE

    def _end(self) -> None:
        self._end_worker()
        if self._bond is not None:
            self._bond.stop()
            self._bond = None
        if self._asking is not None:
            self.destroy_subscription(self._asking)
            self._asking = None
        for publisher in self._outputs.values():
            self.destroy_publisher(publisher)
        self._outputs.clear()

    def _drop_inputs(self) -> None:
        for subscription in self._inputs:
            self.destroy_subscription(subscription)
        self._inputs.clear()

    def _await_synchronizer(self) -> None:
        """Whoever sees a publisher has been seen by it; without any synchronizer go on after a while."""
        deadline_s = time.monotonic() + DISCOVERY_S
        topics = [subscription.topic_name for subscription in self._inputs]
        while not all(map(self.count_publishers, topics)) and time.monotonic() < deadline_s:
            time.sleep(0.02)

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def _take_frame(self, message: Image) -> None:
        def add() -> list[Window]:
            stamp_ns, frame = to_ns(message.header.stamp), rgb8_array(message)
            if self._worker is not None and self._params.mode != "autoregressive":
                self._worker.stream_frame(self._assembler.grid.index(stamp_ns), frame)
            return self._assembler.add_frame(stamp_ns, frame)

        self._take(add)

    def _take_event_image(self, message: Image) -> None:
        def add() -> list[Window]:
            stamp_ns, image = to_ns(message.header.stamp), rgb8_array(message)
            if self._worker is not None and self._params.mode != "autoregressive":
                self._worker.stream_event_image(self._assembler.grid.index(stamp_ns - 1), image)
            return self._assembler.add_event_image(stamp_ns, image)

        self._take(add)

    def _take_closed(self, message: Header) -> None:
        end_ns = to_ns(message.stamp)
        self._closed_ns[end_ns] = time.perf_counter_ns()
        self._take(lambda: self._assembler.close(end_ns, *closed_counts(message)))

    def _take(self, complete: Callable[[], list[Window]]) -> None:
        try:
            windows = complete()
        except InputError as error:
            self._unusable += 1
            self.get_logger().warning(str(error), throttle_duration_sec=5.0)
            return
        for window in windows:
            closed_ns = self._closed_ns.pop(window.end_ns, time.perf_counter_ns())
            if self._worker is not None:
                self._worker.submit(window, closed_ns)

    def _adjust(self, params: SimpleNamespace) -> None:
        """Take over what was set, also while the node runs; InputError for what the models cannot take."""
        if self._decoder is not None:
            self._decoder.check_question(params.question)
            self._decoder.sampling = asked_sampling(params)
            self._decoder.max_new_tokens = params.max_new_tokens
            proposers = () if params.mode == "autoregressive" else read_names(params.proposers)
            self._decoder.policy.limits = Limits(params.max_nodes, params.least_prob, proposers)
        if self._worker is not None:
            self._worker.question, self._worker.deadline_s = params.question, params.deadline_s

    def _ask(self, message: String) -> None:
        """Every question gets one answer, in order, if only why it has none."""
        question, worker = message.data.strip(), self._worker
        if worker is None:
            return  # a subscription that is just ending
        try:
            if not question:
                raise InputError("the question is empty: publish a sentence")
            worker.ask(question, lambda answer: self._answer(question, answer))
        except InputError as error:
            self._answer(question, error)

    def _answer(self, question: str, answer: Caption | Exception) -> None:
        self._answers += 1
        if isinstance(answer, Exception):
            reason = str(answer) if isinstance(answer, InputError) else f"failed: {self._reason(answer)}"
            self.get_logger().warning(f"no answer to '{question}': {reason}")
            self._publish_text("answer", f"(no answer: {reason})")
        else:
            self.get_logger().info(f"{question} {answer.text}")
            self._publish_text("answer", answer.text)

    def _publish_text(self, topic: str, text: str) -> None:
        if self.context.ok():
            self._outputs[topic].publish(String(data=text))

    def _tell(self, outcome: Outcome) -> None:
        # Told to end, ROS fails in whatever is under way.
        if not self.context.ok():
            return
        try:
            self._finish(outcome)
        except Exception:
            if self.context.ok():
                raise

    def _finish(self, outcome: Outcome) -> None:
        window = outcome.window
        if self._origin_ns is None:
            self._origin_ns = window.start_ns
        values: dict[str, object] = {}
        if outcome.caption is None:
            if outcome.skipped:
                self._summary.count(windows=1, skipped=1)
                level, message = (
                    DiagnosticStatus.WARN,
                    "skipped: a newer window closed while captions were behind",
                )
                self.get_logger().warning(f"{(window.start_ns - self._origin_ns) / 1e9:g} s: {message}")
            else:
                self._summary.count(windows=1, failed=1)
                assert outcome.error is not None
                level, message = DiagnosticStatus.ERROR, f"failed: {self._reason(outcome.error)}"
        else:
            level, message, values = self._publish_caption(outcome)
        values["degraded"] = ",".join(outcome.flags)
        values |= {"dropped_windows": self._summary.counts["skipped"], "missing_images": window.missing}
        self._outputs["report"].publish(report(window, level, message, values))
        if outcome.caption is not None:
            self._publish_picture(window, message, latencies(outcome.trace))

    def _reason(self, error: Exception) -> str:
        """Why there is no caption; where memory ran out, the next window is to find it freed."""
        self.get_logger().error("".join(traceback.format_exception(error)))
        if not is_out_of_memory(error):
            return str(error)
        release(error)
        return NO_MEMORY

    def _publish_caption(self, outcome: Outcome) -> tuple[bytes, str, dict[str, object]]:
        caption, stages = outcome.caption, latencies(outcome.trace)
        assert caption is not None
        if caption.source == "target":
            level, message = DiagnosticStatus.OK, caption.text
            if set(outcome.flags) - HARMLESS:
                level = DiagnosticStatus.WARN
            self._outputs["caption"].publish(String(data=caption.text))
            self._outputs["acceptance_length"].publish(Float64(data=float(caption.mean_acceptance_length)))
        else:
            level = DiagnosticStatus.WARN
            message = caption.text or f"nothing to be seen: {plain(outcome.flags)}"
            if caption.text:
                self._publish_text("caption_draft", caption.text)
        for stage in LATENCIES:
            if stage in stages:
                self._outputs[f"latency/{stage}"].publish(Float64(data=stages[stage]))
        self._summary.add(stages)
        self._health.add(caption, stages, outcome.flags)
        self._summary.count(
            windows=1,
            tokens=len(caption.token_ids),
            target_passes=caption.target_passes,
            late=int(caption.late),
        )
        self._summary.count(**{f"drafted by {name}": n for name, n in caption.drafted.items()})
        self._summary.count(**{f"accepted of {name}": n for name, n in caption.accepted.items()})
        self.get_logger().info(
            log_lines(outcome.window, self._origin_ns or 0, caption, stages, outcome.flags)
        )
        values = caption_values(caption) | {f"{name}_ms": ms for name, ms in stages.items()}
        return level, message, values | {"spans": write_spans(outcome.trace)}

    def _publish_picture(self, window: Window, message: str, stages: Mapping[str, float]) -> None:
        """For people, who are not always there."""
        publisher = self._outputs["annotated_image"]
        if publisher.get_subscription_count():
            picture = annotated(window, [message, f"{stages['total']:.0f} ms after the window closed"])
            publisher.publish(image_message(picture, window.end_ns, ""))

    def _read_counters(self) -> dict[str, Reading]:
        counts = self._summary.counts
        wrong = {"dropped_windows": counts["skipped"], "failed_windows": counts["failed"]}
        wrong |= {"late_captions": counts["late"]}
        wrong |= {"unusable_messages": self._unusable, **self._assembler.counts}
        flow = {"windows": counts["windows"], "answers": self._answers}
        worker = self._worker
        health = self._health.readings(self._params.deadline_s, worker.waiting if worker else None)
        return {"captions": Reading(flow, wrong), **health}


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the executable `captioner`."""
    run(CaptionerNode, args)


if __name__ == "__main__":
    main()
