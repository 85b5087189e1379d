"""The captioner node: the images of closed windows in, one report and caption per window out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from crossspec_msgs.msg import WindowClosed
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from sensor_msgs.msg import Image

from crossspec_ros.captioning.asked_models import asked_sampling
from crossspec_ros.captioning.assembly import load_decoder
from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.captioner import Captioner
from crossspec_ros.captioning.comparison import check_comparison, load_comparison
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder as Decoder
from crossspec_ros.captioning.health import HOLD_S, CaptionHealth, link_reading
from crossspec_ros.captioning.outcome import without_images
from crossspec_ros.captioning.rerun_log import RerunLog
from crossspec_ros.captioning.standing import read_standing
from crossspec_ros.captioning.target_server import is_remote
from crossspec_ros.captioning.wording import warning
from crossspec_ros.drafting.policy import Limits
from crossspec_ros.engine.json_grammar import read_schema
from crossspec_ros.errors import InputError, as_exception, described, one_line
from crossspec_ros.events.cdr import to_ns
from crossspec_ros.plain_text import plain_text
from crossspec_ros.ros.bond import Bond, make_bond
from crossspec_ros.ros.boundary import ENDS, GuardedNode, guarded_transition
from crossspec_ros.ros.diagnostics import STEADY, Diagnostics, Reading
from crossspec_ros.ros.messages import RELIABLE, closed_window, rgb8_array
from crossspec_ros.ros.outcomes import Outcomes
from crossspec_ros.ros.parameters import declare
from crossspec_ros.ros.questions import Questions
from crossspec_ros.ros.run import NodeError, interrupted, run
from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.telemetry.pulse import PATIENCE_S, Pulse
from crossspec_ros.windows.assembler import WindowAssembler
from crossspec_ros.windows.change import ChangeGate, GateSettings
from crossspec_ros.windows.grid import WindowGrid
from crossspec_ros.windows.window import EVENTS, FRAMES, Window

if TYPE_CHECKING:
    from rclpy.subscription import MessageInfo

DISCOVERY_S = 5.0
"""Nodes that start together may need three seconds to find each other, Fast DDS's announcement period."""

OLD_S = 5.0
"""Seconds that a transition waits for the pass that was in work when the node was deactivated."""

MOST_CLOSED = 64
"""Closings whose windows are not complete yet."""

_ACTIVE = {
    "always": "every window that closes now is captioned",
    "changed": "windows are captioned that show something else than the one captioned last",
    "asked": "no window is captioned before somebody asks on ~/question, ~/ask or ~/ask_action",
}
NO_WINDOWS = "no window has come yet: check that the synchronizer runs and receives events and images"

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


def load(settings: CaptionerSettings) -> Decoder:
    """Load and warm up the decoder.

    Raises InputError for missing or broken checkpoints, missing devices, bad sampling and too little memory.
    """
    return load_decoder(settings, is_live=True)


class CaptionerNode(GuardedNode, LifecycleNode):
    """Configured: subscribed, loaded and warm. Active: captioning, as its publisher of `~/report` shows."""

    def __init__(self, load: Callable[[CaptionerSettings], Decoder] = load, **options: Any) -> None:
        super().__init__("captioner", automatically_declare_parameters_from_overrides=True, **options)
        self._settings = declare(self, CaptionerSettings, self._adjust)
        self._load = load
        self._inputs: list = []
        self._decoder: Decoder | None = None
        # Made of the settings, once there is a decoder.
        self._options: Options | None = None
        self._captioner: Captioner | None = None
        # One that was stopped, and is still in the middle of a pass.
        self._old: Captioner | None = None
        self._closed_ns: dict[int, int] = {}
        self._assembler = WindowAssembler(WindowGrid.at(self._settings.window_phase_s))
        self._health = CaptionHealth()
        self._outcomes = Outcomes(self, self._health, self._settings.stages)
        self._unusable = self._windows = 0
        self._active_s = math.inf
        self._questions: Questions | None = None
        self._bond: Bond | None = None
        self._diagnostics = Diagnostics(self, self._read_counters, self._pulses)
        self._failure: Exception | None = None
        self._is_started = not self._settings.autostart
        if self._settings.autostart:
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

    @guarded_transition
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        started = time.monotonic()
        try:
            check_comparison(self._settings)
            # Subscribed before the models load, so that what closes meanwhile waits: the last 64 windows do.
            for kind, topic, take in (
                (Image, "frame", self._take_frame),
                (Image, "event_image", self._take_event_image),
                (WindowClosed, "window_closed", self._take_closed),
            ):
                self._inputs.append(self.create_subscription(kind, topic, take, RELIABLE))
            self._decoder = self._load(self._settings)
            self._adjust(self._settings)
            self._outcomes.comparison = load_comparison(self._settings, self._decoder)
            where = self._settings.rerun
            self._outcomes.view = RerunLog(where) if where else None
        except ENDS:
            raise
        except BaseException as error:  # also a panic in a library
            self._drop_inputs()
            self._close_decoder()
            return self._fail("load its models and warm up", error)
        pair = self._decoder.pair
        placement = None if is_remote(self._settings.target) else pair.placement
        self._health.loaded(self._settings.models_folder or "models/tiny", self._decoder, placement)
        took_s = time.monotonic() - started
        # Warm, they have read a whole window and more: no step of a caption takes as long.
        self._diagnostics.threads.patience_s = PATIENCE_S + round(3 * took_s)
        self.get_logger().info(f"models loaded and warm after {took_s:.1f} s")
        if told := warning(pair):
            self.get_logger().warning(told)
        return super().on_configure(state)

    @guarded_transition
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            self._await_old("activate")
            self._activate()
        except ENDS:
            raise
        except BaseException as error:
            self._end()
            return self._fail("start to caption", error)
        return super().on_activate(state)

    def _activate(self) -> None:
        assert self._decoder is not None and self._options is not None
        grid = self._assembler.grid
        self._outcomes.open(grid)
        self._captioner = Captioner(
            self._decoder,
            self._options,
            self._outcomes,
            self._settings.deadline_s,
            ChangeGate(GateSettings.of(self._settings)),
            replace(grid, slots=self._decoder.pair.target.spec.frames),
        )
        self._captioner.start()
        self._questions = Questions(self, self._captioner, self._outcomes, grid)
        # Last, because a player takes it as the sign to start: by then the synchronizer must know this node.
        self._await_synchronizer()
        self._outcomes.open_report()
        self._bond = make_bond(self)
        self._active_s = time.monotonic()
        self._outcomes.tell_missed_soon()
        self.get_logger().info(f"active: {_ACTIVE[self._settings.when]}")

    @guarded_transition
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._end()
        self.get_logger().info("inactive: windows that close now are reported when it is active again")
        return super().on_deactivate(state)

    @guarded_transition
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            self._await_old("clean up")
        except InputError as error:
            return self._fail("unload its models", error)
        self._drop_inputs()
        self._close_decoder()
        self.get_logger().info("unconfigured: its models are unloaded")
        return super().on_cleanup(state)

    @guarded_transition
    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._end()
        self._drop_inputs()
        # ROS lets nobody refuse this one; the decoder waits for a pass in work.
        self._close_decoder()
        return super().on_shutdown(state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """After a transition that raised: unconfigured, as ROS takes it to be then; else the end."""
        try:
            self._end()
            self._drop_inputs()
            self._close_decoder()
        except ENDS:
            raise
        except BaseException as error:
            self.boundary.note("the way back from a transition that failed", error)
            self._failure = NodeError(f"the captioner cannot be unconfigured ({error!r}): start it again")
            # What is raised here ROS would keep to itself.
            self.create_timer(0.0, self._raise_failure, clock=STEADY)
        return super().on_error(state)

    def _raise_failure(self) -> None:
        assert self._failure is not None
        raise self._failure

    def stop(self) -> None:
        """Cancel what is in work, close the decoder and print the figures of the run."""
        self._end()
        self._close_decoder()
        self._outcomes.print_figures()

    def _close_decoder(self) -> None:
        self._health.unloaded()
        view, self._outcomes.view = self._outcomes.view, None
        if view is not None:
            view.close()
        try:
            if self._outcomes.comparison is not None:
                self._outcomes.comparison.close()
            if self._decoder is not None:
                self._decoder.close()
        except Exception as error:  # whatever it is, the node has to end
            self.get_logger().error(f"the caption memory could not be saved: {error!r}")
        # Not before, so that its threads are watched to their end.
        self._decoder = self._options = None

    def _await_old(self, task: str) -> None:
        """Raises InputError where the window that was in work at the deactivation still is: two threads would
        share one decoder."""
        if self._old is not None and not self._old.is_over(OLD_S):
            raise InputError(
                f"the window that was in work when the captioner was deactivated is not done after another "
                f"{OLD_S:g} s: {task} it again in a moment"
            )
        self._old = None

    def _fail(self, task: str, error: BaseException) -> TransitionCallbackReturn:
        """Keep the sentence for the end of the process, or log it where somebody else starts this node."""
        error = as_exception(error)
        self._failure = error
        # Told to end, ROS fails in whatever is under way, and at times before this node hears of it.
        if interrupted() or not self.context.ok():
            return FAILURE
        if not isinstance(error, InputError):
            self.get_logger().error(described(error))
            reason = f"{type(error).__name__}: {one_line(error)}"
            self._failure = NodeError(f"the captioner cannot {task}: {reason}")
        if self._is_started:
            self.get_logger().error(plain_text(str(self._failure)))
        return FAILURE

    def _end(self) -> None:
        if self._captioner is not None:
            self._outcomes.miss(self._captioner.stop())
            self._old = None if self._captioner.is_over() else self._captioner
            self._captioner = None
        if self._bond is not None:
            self._bond.stop()
            self._bond = None
        if self._questions is not None:
            self._questions.stop()
            self._questions = None
        self._outcomes.close()

    def _drop_inputs(self) -> None:
        for subscription in self._inputs:
            self.destroy_subscription(subscription)
        self._inputs.clear()
        self._take(self._assembler.clear)
        self._closed_ns.clear()

    def _await_synchronizer(self) -> None:
        """Wait until its publishers are seen, which see this node then; without any go on after a while."""
        deadline_s = time.monotonic() + DISCOVERY_S
        topics = [subscription.topic_name for subscription in self._inputs]
        while not all(map(self.count_publishers, topics)) and time.monotonic() < deadline_s:
            time.sleep(0.02)

    # Of the topics' messages only the publisher's time tells the order.
    def _take_frame(self, message: Image, info: MessageInfo) -> None:
        self._take(lambda: self._take_image(message, info, is_frame=True))

    def _take_event_image(self, message: Image, info: MessageInfo) -> None:
        self._take(lambda: self._take_image(message, info, is_frame=False))

    def _take_image(self, message: Image, info: MessageInfo, is_frame: bool) -> list[Window]:
        """Return the windows that an image completes; an image of an open window is read ahead."""
        stamp_ns, image = to_ns(message.header.stamp), rgb8_array(message)
        taken = self._assembler.taken
        add = self._assembler.add_frame if is_frame else self._assembler.add_event_image
        windows = add(stamp_ns, image, info["source_timestamp"])
        reads_ahead = self._settings.mode != "autoregressive" and self._assembler.taken > taken
        if self._captioner is not None and reads_ahead:
            # An event image is of the time before its stamp.
            kind, at_ns = (FRAMES, stamp_ns) if is_frame else (EVENTS, stamp_ns - 1)
            self._captioner.add_image(self._assembler.grid.index(at_ns), kind, image, stamp_ns)
        return windows

    def _take_closed(self, message: WindowClosed, info: MessageInfo) -> None:
        end_ns = to_ns(message.header.stamp)
        self._closed_ns[end_ns] = time.perf_counter_ns()
        if len(self._closed_ns) > MOST_CLOSED:  # nobody closes these windows
            del self._closed_ns[next(iter(self._closed_ns))]
        published_ns = info["source_timestamp"]
        self._take(lambda: self._assembler.close(*closed_window(message), published_ns=published_ns))

    def _take(self, complete: Callable[[], list[Window]]) -> None:
        try:
            windows = complete()
        except InputError as error:
            self._unusable += 1
            self.get_logger().warning(str(error), throttle_duration_sec=5.0)
            return
        for window in windows:
            self._windows += 1
            closed_ns = self._closed_ns.pop(window.end_ns, time.perf_counter_ns())
            if self._captioner is not None:
                self._captioner.close(window, closed_ns)
            else:
                self._outcomes.miss([without_images(window)])

    def _adjust(self, settings: CaptionerSettings) -> None:
        """Take over what was set, also while the node runs; InputError for what the models cannot take."""
        if self._decoder is not None:
            self._decoder.check_question(settings.question)
            # An answer that was begun is about the objects that it knows.
            before, now = self._options, self._settings
            if before is not None and settings.schema == now.schema:
                grammar = before.grammar
            else:
                grammar = self._decoder.grammars.compiled(read_schema(settings.schema))
            if before is not None and settings.questions == now.questions:
                standing = before.first, before.later
            else:
                standing = self._decoder.standing(read_standing(settings.questions))
            how = settings.max_new_tokens, asked_sampling(settings), grammar
            self._options = Options(settings.question, *how, *standing)
            proposers = () if settings.mode == "autoregressive" else settings.enabled_proposers
            self._decoder.policy.limits = Limits(settings.max_nodes, settings.least_prob, proposers)
            if self._captioner is not None:
                self._captioner.options, self._captioner.deadline_s = self._options, settings.deadline_s
                # Once more, whatever was set: what it changes is to be seen.
                self._captioner.gate.settings = GateSettings.of(settings)
        self._settings = settings

    def _pulses(self) -> list[Pulse]:
        parts = (self._captioner, self._old, self._questions)
        pulses = [part.pulse for part in parts if part is not None]
        # A decoder without models, as tests have it, has no threads.
        return pulses + list(getattr(self._decoder, "pulses", ()))

    def _read_counters(self) -> dict[str, Reading]:
        counts, captioner = self._outcomes.summary.counts, self._captioner
        unread = {f"{kind}_windows": counts[kind] for kind in ("unchanged", "unasked")}
        wrong = {"dropped_windows": counts["skipped"], "failed_windows": counts["failed"]}
        wrong |= {"late_captions": counts["late"]}
        wrong |= {"unanswered_questions": captioner.unanswered if captioner else 0}
        wrong |= {"unusable_messages": self._unusable, **self._assembler.counts}
        # Those that came in, so that a captioner that is inactive does not say that none do.
        flow = {"windows": self._windows, "answers": self._outcomes.answers} if self._inputs else {}
        waiting = captioner.waiting if captioner else None
        health = self._health.readings(self._settings.deadline_s, waiting)
        if captioner and not self._windows and time.monotonic() - self._active_s > HOLD_S:
            health["inputs"] = health["inputs"]._replace(warnings={"none": NO_WINDOWS})
        return {"captions": Reading(flow, wrong, unread), **health, **link_reading(self._decoder)}


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the executable `captioner`."""
    run(CaptionerNode, args)


if __name__ == "__main__":
    main()
