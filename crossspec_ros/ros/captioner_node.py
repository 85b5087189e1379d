"""The captioner node: the images of closed windows in, one report and caption per window out."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from crossspec_msgs.msg import WindowClosed
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.executors import Executor, MultiThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.subscription import Subscription
from rclpy.timer import Timer
from sensor_msgs.msg import Image

from crossspec_ros.captioning.asked_models import asked_sampling
from crossspec_ros.captioning.assembly import load_decoder
from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.captioner import MAX_QUESTIONS, Captioner
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
from crossspec_ros.ros.bond import make_bond
from crossspec_ros.ros.diagnostics import STEADY, Diagnostics, Reading
from crossspec_ros.ros.messages import RELIABLE, closed_window, rgb8_array
from crossspec_ros.ros.node import GuardedNode, guarded_transition
from crossspec_ros.ros.publishers import Publishers
from crossspec_ros.ros.questions import Questions
from crossspec_ros.ros.run import NodeError, interrupted, run
from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.telemetry.pulse import PATIENCE_S, Pulse
from crossspec_ros.windows.assembler import WindowAssembler
from crossspec_ros.windows.change import ChangeGate, GateSettings
from crossspec_ros.windows.grid import SECOND, WindowGrid
from crossspec_ros.windows.window import EVENTS, FRAMES, Window

if TYPE_CHECKING:
    from rclpy.subscription import MessageInfo

OLD_S = 5.0
"""Seconds that a transition waits for the pass that was in work when the node was deactivated."""
MAX_CLOSED = 64
"""Closed windows whose images have not all come yet."""
_ACTIVE = {
    "always": "every window that closes now is captioned",
    "changed": "windows are captioned that show something else than the one captioned last",
    "asked": "no window is captioned before a question comes on ~/ask or ~/ask_action",
}
NO_WINDOWS = "no window has come yet: check that the synchronizer runs and receives events and images"
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE
load = partial(load_decoder, is_live=True)


class CaptionerNode(GuardedNode, LifecycleNode):
    """Configured: subscribed, loaded and warm. Active: captioning.

    Transitions and messages of windows exclude each other, so windows that close while the models load wait
    in the topics' queues.
    """

    def __init__(self, load: Callable[[CaptionerSettings], Decoder] = load, **options: Any) -> None:
        super().__init__("captioner", **options)
        self._load = load
        self._settings = self.declare(CaptionerSettings, self._options_of, self._adopt)
        self._adopting = threading.Lock()
        self._inputs: list[Subscription] = []
        self._decoder: Decoder | None = None
        self._options: Options | None = None
        self._captioner: Captioner | None = None
        # A stopped captioner that is still in the middle of a pass.
        self._old: Captioner | None = None
        self._closed_ns: dict[int, int] = {}
        self._assembler = WindowAssembler(WindowGrid())
        self._health = CaptionHealth()
        self._publishers = Publishers(self, self._health)
        self._questions = Questions(self, self._publishers)
        self._bond = make_bond(self)
        self._unusable = self._windows = 0
        self._active_s = math.inf
        self._diagnostics = Diagnostics(self, self._read_counters, self._pulses)
        self._failure: NodeError | None = None
        self._group = MutuallyExclusiveCallbackGroup()
        change_state = next(one for one in self.services if one.srv_name.endswith("/change_state"))
        change_state.callback_group = self._group
        self._group.add_entity(change_state)
        self._starter: Timer | None = None
        if self._settings.autostart:
            self._starter = self.create_timer(0.0, self._start, self._group, STEADY, is_watched=False)

    @staticmethod
    def make_executor() -> Executor:
        """Return an executor in which each question may block a thread.

        The other threads are for the transitions, `~/ask`, the action's requests and all else.
        """
        return MultiThreadedExecutor(MAX_QUESTIONS + 4)

    @property
    def fixed(self) -> str:
        """As in GuardedNode."""
        # It is subscribed from the beginning of `on_configure` on.
        remedy = "deactivate and clean up the captioner first, with ros2 lifecycle set"
        return f"it is read when the captioner is configured: {remedy}" if self._inputs else ""

    def _start(self) -> None:
        assert self._starter is not None
        self._starter.cancel()
        for trigger in (self.trigger_configure, self.trigger_activate):
            if trigger() != SUCCESS:
                raise self._failure or NodeError("the captioner was refused a lifecycle transition by ROS")
        self._starter = None

    @guarded_transition
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        started = time.monotonic()
        try:
            self._configure()
        except BaseException as error:  # libraries in Rust raise no Exception
            self._unload()
            return self._fail("load its models and warm up", error)
        took_s = time.monotonic() - started
        # Warm, the models have read a window and more: no step of a caption takes as long.
        self._diagnostics.threads.patience_s = PATIENCE_S + round(3 * took_s)
        self.get_logger().info(f"models loaded and warm after {took_s:.1f} s")
        return super().on_configure(state)

    def _configure(self) -> None:
        settings = self._settings = self.settings(CaptionerSettings)
        check_comparison(settings)
        grid = WindowGrid.at(settings.window_phase_s)
        self._assembler = WindowAssembler(grid)
        for kind, topic, complete in (
            (Image, "frame", partial(self._add_image, FRAMES)),
            (Image, "event_image", partial(self._add_image, EVENTS)),
            (WindowClosed, "window_closed", self._close_window),
        ):
            take = partial(self._take, complete)
            topic = f"synchronizer/{topic}"
            self._inputs.append(
                self.create_subscription(kind, topic, take, RELIABLE, callback_group=self._group)
            )
        self._decoder = decoder = self._load(settings)
        self._adopt()
        self._publishers.comparison = load_comparison(settings, decoder)
        self._publishers.view = RerunLog(settings.rerun) if settings.rerun else None
        self._publishers.open(grid, settings.stages)
        # Images of the windows until then came before the subscriptions, or in the meantime.
        self._assembler.whole_from_ns = time.time_ns() + SECOND
        placement = None if is_remote(settings.target) else decoder.pair.placement
        self._health.loaded(settings.models_folder or "models/tiny", decoder, placement)
        if text := warning(decoder.pair):
            self.get_logger().warning(text)

    @guarded_transition
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            self._await_old("activate")
            self._activate()
        except BaseException as error:  # libraries in Rust raise no Exception
            self._end()
            return self._fail("start to caption", error)
        self.get_logger().info(f"active: {_ACTIVE[self._settings.when]}")
        return super().on_activate(state)

    def _activate(self) -> None:
        assert self._decoder is not None
        slots = self._decoder.pair.target.spec.frames
        with self._adopting:
            assert self._options is not None
            self._captioner = Captioner(
                self._decoder,
                self._options,
                self._publishers,
                self._settings.deadline_s,
                ChangeGate(GateSettings.of(self._settings)),
                replace(self._assembler.grid, slots=slots),
            )
        self._captioner.start()
        self._questions.captioner = self._captioner
        self._active_s = time.monotonic()
        if self._bond is not None:
            self._bond.start()

    @guarded_transition
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._end()
        self.get_logger().info("inactive: windows that close now are reported, but not captioned")
        return super().on_deactivate(state)

    @guarded_transition
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            self._await_old("clean up")
        except InputError as error:
            return self._fail("unload its models", error)
        self._unload()
        self.get_logger().info("unconfigured: its models are unloaded")
        return super().on_cleanup(state)

    @guarded_transition
    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._end()
        # ROS lets no node refuse a shutdown; the decoder waits for a pass in work.
        self._unload()
        return super().on_shutdown(state)

    @guarded_transition
    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Unconfigure the node after a transition that raised; a second failure is the end of its lifecycle."""
        self._end()
        self._unload()
        return super().on_error(state)

    def stop(self) -> None:
        """Cancel what is in work, close the decoder and print the figures of the run."""
        self._end()
        self._unload()
        self._publishers.print_figures()

    def _end(self) -> None:
        """Stop captioning, and report the windows in work."""
        self._questions.captioner = None
        if self._captioner is not None:
            self._publishers.miss(self._captioner.stop())
            self._old = None if self._captioner.is_over() else self._captioner
            self._captioner = None
            if self._bond is not None:
                self._bond.stop()

    def _unload(self) -> None:
        """Drop the inputs, the publishers and the models."""
        for subscription in self._inputs:
            self.destroy_subscription(subscription)
        self._inputs = []
        self._publishers.miss(self._assembler.clear())
        self._closed_ns.clear()
        self._publishers.close()
        self._health.unloaded()
        view, self._publishers.view = self._publishers.view, None
        try:
            for part in (view, self._publishers.comparison, self._decoder):
                if part is not None:
                    part.close()
        except Exception as error:  # the node has to go on, or to end
            self.get_logger().error(f"the caption memory could not be saved: {error!r}")
        # Until now its threads were watched.
        self._decoder = self._options = None

    def _await_old(self, task: str) -> None:
        """Raise InputError while the window is in work that was so at the deactivation: two threads would
        share one decoder."""
        if self._old is not None and not self._old.is_over(OLD_S):
            raise InputError(
                f"the window that was in work when the captioner was deactivated is not done after another "
                f"{OLD_S:g} s: {task} it again in a moment"
            )
        self._old = None

    def _fail(self, task: str, error: BaseException) -> TransitionCallbackReturn:
        """Keep the reason for the end of the process, or log it if the node goes on."""
        # ROS fails in everything that is under way once it shuts down, at times before this node knows.
        if interrupted() or not self.context.ok():
            return FAILURE
        error = as_exception(error)
        if isinstance(error, InputError):
            self._failure = NodeError(str(error), code=2)
        else:
            self.get_logger().error(described(error))
            reason = f"{type(error).__name__}: {one_line(error)}"
            self._failure = NodeError(f"the captioner cannot {task}: {reason}")
        if self._starter is None:
            self.get_logger().error(plain_text(str(self._failure)))
        return FAILURE

    def _take(
        self, complete: Callable[[Any, int], list[Window]], message: Any, info: MessageInfo
    ) -> None:
        try:
            # Only the publisher's time tells the order of messages on several topics.
            windows = complete(message, info["source_timestamp"])
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
                self._publishers.miss([window])

    def _add_image(self, kind: str, message: Image, published_ns: int) -> list[Window]:
        """Return the windows that an image completes; an image of an open window is read ahead."""
        stamp_ns, image, taken = to_ns(message.header.stamp), rgb8_array(message), self._assembler.taken
        # An event image is of the time before its stamp.
        at_ns = stamp_ns if kind == FRAMES else stamp_ns - 1
        if kind == FRAMES:
            self._publishers.frame_id = message.header.frame_id
            windows = self._assembler.add_frame(stamp_ns, image, published_ns)
        else:
            windows = self._assembler.add_event_image(stamp_ns, image, published_ns)
        reads_ahead = self._settings.mode != "autoregressive" and self._assembler.taken > taken
        if self._captioner is not None and reads_ahead:
            self._captioner.add_image(self._assembler.grid.index(at_ns), kind, image, stamp_ns)
        return windows

    def _close_window(self, message: WindowClosed, published_ns: int) -> list[Window]:
        """Return the windows that a closing completes."""
        closed = closed_window(message)
        self._closed_ns[closed.end_ns] = time.perf_counter_ns()
        if len(self._closed_ns) > MAX_CLOSED:  # these windows are of another grid
            del self._closed_ns[next(iter(self._closed_ns))]
        return self._assembler.close(*closed, published_ns=published_ns)

    def _options_of(self, settings: CaptionerSettings) -> Options | None:
        """Return how the models answer by these settings; raise InputError for what they cannot take."""
        decoder, before, now = self._decoder, self._options, self._settings
        if decoder is None:
            return None
        decoder.check_question(settings.question)
        # An answer that was begun is about the objects that it knows.
        if before is not None and settings.schema == now.schema:
            grammar = before.grammar
        else:
            grammar = decoder.grammars.compiled(read_schema(settings.schema))
        if before is not None and settings.questions == now.questions:
            standing = before.first, before.later
        else:
            standing = decoder.standing(read_standing(settings.questions))
        sampling = asked_sampling(settings)
        return Options(settings.question, settings.max_new_tokens, sampling, grammar, *standing)

    def _adopt(self) -> None:
        """Follow the parameters as they are now."""
        with self._adopting:
            settings = self.settings(CaptionerSettings)
            options = self._options_of(settings)
            if self._decoder is not None and options is not None:
                proposers = () if settings.mode == "autoregressive" else settings.enabled_proposers
                self._decoder.policy.limits = Limits(settings.max_nodes, settings.least_prob, proposers)
            if self._captioner is not None and options is not None:
                self._captioner.options, self._captioner.deadline_s = options, settings.deadline_s
                # Once more, whatever was set: what it changes is to be seen.
                self._captioner.gate.settings = GateSettings.of(settings)
            self._options, self._settings = options, settings

    def _pulses(self) -> list[Pulse]:
        pulses = [part.pulse for part in (self._captioner, self._old) if part is not None]
        # A decoder without models, as tests have it, has no threads.
        return pulses + list(getattr(self._decoder, "pulses", ()))

    def _read_counters(self) -> dict[str, Reading]:
        counts, captioner = self._publishers.summary.counts, self._captioner
        unread = {f"{kind}_windows": counts[kind] for kind in ("unchanged", "unasked")}
        wrong = {"dropped_windows": counts["skipped"], "failed_windows": counts["failed"]}
        wrong |= {"late_captions": counts["late"]}
        wrong |= {"unanswered_questions": captioner.unanswered if captioner else 0}
        wrong |= {"unusable_messages": self._unusable, **self._assembler.counts}
        # An inactive captioner takes windows too, and must not warn that none come.
        flow = {"windows": self._windows, "answers": self._publishers.answers} if self._inputs else {}
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
