"""The captioner node: it reads the images of windows, and publishes one caption and report per window."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.executors import Executor, MultiThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.timer import Timer

from crossspec_ros.captioning import health
from crossspec_ros.captioning.caption import Options
from crossspec_ros.captioning.caption_options import check_settings, requested_options
from crossspec_ros.captioning.captioner import MAX_QUESTIONS, Captioner
from crossspec_ros.captioning.comparison import Comparison
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder as Decoder
from crossspec_ros.captioning.load_decoder import load_decoder
from crossspec_ros.captioning.rerun_log import RerunLog
from crossspec_ros.captioning.wording import warning
from crossspec_ros.drafting.policy import Limits
from crossspec_ros.errors import InputError, described, one_line, plain_text
from crossspec_ros.models.placement import is_remote
from crossspec_ros.ros.bond import make_bond
from crossspec_ros.ros.diagnostics import STEADY, Updater
from crossspec_ros.ros.inputs import Inputs
from crossspec_ros.ros.node import GuardedNode, guarded_transition
from crossspec_ros.ros.publishers import Publishers
from crossspec_ros.ros.questions import Questions
from crossspec_ros.ros.run import NodeError, exit_code, run
from crossspec_ros.settings import CaptionerSettings
from crossspec_ros.telemetry.pulse import PATIENCE_S, Pulse
from crossspec_ros.windows.grid import WindowGrid

SUCCESS = TransitionCallbackReturn.SUCCESS
load = partial(load_decoder, is_live=True)


class CaptionerNode(GuardedNode, LifecycleNode):
    """Lifecycle node. Configuring it subscribes and loads the models; activating it starts the captions.

    Transitions and callbacks of window topics share a callback group. So windows that close while the models
    load wait in the queues of the topics.
    """

    def __init__(self, load: Callable[[CaptionerSettings], Decoder] = load, **options: Any) -> None:
        super().__init__("captioner", **options)
        self._load = load
        self._adopting = threading.Lock()
        self._settings = self.declare(CaptionerSettings, self._validate, self._adopt)
        self._inputs: Inputs | None = None
        self._decoder: Decoder | None = None
        self._options: Options | None = None
        self._captioner: Captioner | None = None
        self._health = health.CaptionHealth()
        self._outputs = Publishers(self, self._health)
        self._questions = Questions(self, self._outputs)
        self._bond = make_bond(self)
        self._updater = self._make_updater()
        self._failure: NodeError | None = None
        self._group = MutuallyExclusiveCallbackGroup()
        # A transition in work would keep the node alive, and with it the shared memory of DDS.
        self.at_end.append(self._state_machine.destroy_when_not_in_use)
        change_state = next(one for one in self.services if one.srv_name.endswith("/change_state"))
        change_state.callback_group = self._group
        self._group.add_entity(change_state)
        # A MultiThreadedExecutor raises the exception of a callback only when it wakes up again.
        self.create_timer(1.0, lambda: None, clock=STEADY)
        self._starter: Timer | None = None
        if self._settings.autostart:
            self._starter = self.create_timer(0.0, self._start, self._group, STEADY)

    @staticmethod
    def make_executor() -> Executor:
        """Return an executor with a thread for each question, and for transitions, services and actions."""
        return MultiThreadedExecutor(MAX_QUESTIONS + 4)

    @property
    def fixed(self) -> str:
        """See GuardedNode. `_inputs` is set from the beginning of `on_configure` until the cleanup."""
        if self._inputs is None:
            return ""
        return "it is read on configure: deactivate and clean up the captioner first (ros2 lifecycle set)"

    def _start(self) -> None:
        assert self._starter is not None
        self._starter.cancel()
        for trigger in (self.trigger_configure, self.trigger_activate):
            if trigger() != SUCCESS:
                raise self._failure or NodeError("ROS refused a lifecycle transition of the captioner")
        self._starter = None

    @guarded_transition
    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        started, settings = time.monotonic(), self.settings(CaptionerSettings)
        check_settings(settings)
        self._health.loading()
        grid = WindowGrid.at(settings.window_phase_s)
        self._inputs = Inputs(self, grid, self._outputs, self._health, self._group)
        self._decoder = decoder = self._load(settings)
        self._adopt()
        self._outputs.comparison = Comparison(decoder.alone()) if settings.compare else None
        self._outputs.view = RerunLog(settings.rerun) if settings.rerun else None
        self._outputs.open(grid, settings.stages)
        self._health.loaded(decoder, None if is_remote(settings.target) else decoder.pair.placement)
        took_s = time.monotonic() - started
        # Warming up includes a window, so no step of a caption takes as long as loading.
        self._updater.threads.patience_s = PATIENCE_S + round(3 * took_s)
        self.get_logger().info(f"models loaded and warmed up in {took_s:.1f} s")
        if text := warning(decoder.pair):
            self.get_logger().warning(text)
        return super().on_configure(state)

    @guarded_transition
    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        assert self._decoder is not None and self._inputs is not None and self._options is not None
        spec = self._decoder.pair.target.spec
        grid, self._inputs.frame_size = replace(self._outputs.grid, slots=spec.frames), spec.image_size
        self._captioner = Captioner(self._decoder, self._options, self._outputs, grid=grid)
        self._adopt()
        self._captioner.start()
        self._questions.captioner = self._captioner
        self._inputs.attach(self._captioner)
        if self._bond is not None:
            self._bond.start()
        self.get_logger().info(f"active: windows are captioned from now on ({self._settings.when})")
        return super().on_activate(state)

    @guarded_transition
    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._end()
        self.get_logger().info("inactive: windows are reported, but not captioned")
        return super().on_deactivate(state)

    @guarded_transition
    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._unload()
        self.get_logger().info("the models are unloaded")
        return SUCCESS

    on_shutdown = on_error = on_cleanup  # type: ignore[assignment]
    """A failed transition unconfigures the node. If this fails as well, ROS finalizes the node."""

    def stop(self) -> None:
        """Stop captioning, close the decoder and print the figures of the run."""
        self._unload()
        self._outputs.print_figures()

    def _end(self) -> None:
        """Stop captioning after the pass in work, and report the windows without an outcome."""
        self._questions.captioner = None
        if self._captioner is None or self._inputs is None:
            return
        self._inputs.attach(None)
        if self._bond is not None:
            self._bond.stop()
        # A decoder serves one captioner at a time. The watchdog ends a node whose pass is stuck.
        self._outputs.report_missed(self._captioner.stop(timeout_s=threading.TIMEOUT_MAX))
        with self._adopting:
            self._captioner = None

    def _unload(self) -> None:
        """Stop captioning, and destroy inputs, publishers and models."""
        self._end()
        if self._inputs is not None:
            self._inputs.close()
            self._inputs = None
        self._outputs.close()
        self._health.unloaded()
        try:
            if self._decoder is not None:
                self._decoder.close()
        except Exception as error:  # the node continues or ends without a saved memory
            self.get_logger().error(f"failed to save the caption memory: {error!r}")
        # Only now, so that the watchdog watches the decoder's threads until they end.
        with self._adopting:
            self._decoder = self._options = None

    def fail(self, task: str, error: Exception) -> None:
        """Store the error of a transition as the reason for the end of the process, or log it."""
        if isinstance(error, InputError):
            self._failure = NodeError(str(error), exit_code(error))
        else:
            self.get_logger().error(described(error))
            reason = f"{type(error).__name__}: {one_line(error)}"
            self._failure = NodeError(f"the captioner failed to {task}: {reason}")
        if self._starter is None:
            self.get_logger().error(plain_text(str(self._failure)))

    def _validate(self, settings: CaptionerSettings) -> None:
        """Raise InputError for settings that are invalid in general, or for the loaded models."""
        check_settings(settings)
        if (decoder := self._decoder) is not None:
            requested_options(settings, decoder)

    def _adopt(self) -> None:
        """Apply the current parameters."""
        with self._adopting:
            settings = self.settings(CaptionerSettings)
            if self._decoder is None:
                self._settings = settings
                return
            options = requested_options(settings, self._decoder)
            self._settings, self._options = settings, options
            is_plain = settings.mode == "autoregressive"
            proposers = () if is_plain else settings.enabled_proposers
            self._decoder.policy.limits = Limits(settings.max_nodes, settings.least_prob, proposers)
            if self._inputs is not None:
                self._inputs.reads_ahead = not is_plain
            if self._captioner is not None:
                self._captioner.options, self._captioner.deadline_s = options, settings.deadline_s
                # New settings of the gate also let it caption the next window.
                self._captioner.gate.settings = settings

    def _pulses(self) -> list[Pulse]:
        captioner, decoder = self._captioner, self._decoder
        return [*([captioner.pulse] if captioner else ()), *(decoder.pulses if decoder else ())]

    def _fill(self, fill: Callable[[Inputs, health.Status], None], status: health.Status) -> None:
        """Fill a row of the inputs, if the node is configured."""
        if (inputs := self._inputs) is not None:
            fill(inputs, status)

    def _make_updater(self) -> Updater:
        updater, summary = Updater(self, self._pulses), self._outputs.summary
        updater.add("captions", partial(self._fill, Inputs.fill_captions))
        updater.add("latency", lambda status: health.fill_latency(status, summary, self._settings.deadline_s))
        updater.add("acceptance", lambda status: health.fill_acceptance(status, summary))
        updater.add("inputs", partial(self._fill, Inputs.fill_inputs))
        updater.add("queue", lambda status: status.add("waiting", getattr(self._captioner, "waiting", 0)))
        updater.add("model", lambda status: self._health.fill_model(status, self._captioner is not None))
        updater.add("link", lambda status: health.fill_link(status, self._decoder))
        return updater


main = partial(run, CaptionerNode)
"""Entry point of the executable `captioner`."""

if __name__ == "__main__":
    main()
