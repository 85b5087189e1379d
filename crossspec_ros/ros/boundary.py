"""The boundary between messages and a node: whatever a callback raises, the node goes on."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any

from rclpy.node import Node

from crossspec_ros.errors import InputError, as_exception
from crossspec_ros.plain_text import plain_text
from crossspec_ros.ros.run import NodeError

LOG_S = 5.0


class GuardedNode(Node):
    """A node whose subscriptions, timers and services outlive what their callbacks raise.

    That is logged, of each callback at most every five seconds, and counted for the diagnostics. A service
    then answers with an empty response. Only a NodeError ends the node, and anything once ROS has been told
    to end. Callbacks are functions, not coroutines.
    """

    def __init__(self, name: str, **options: Any) -> None:
        self.failed_callbacks = 0
        self.last_failure = ""
        self._logged_s: dict[str, float] = {}
        super().__init__(name, **options)

    def create_subscription(
        self, msg_type: Any, topic: str, callback: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        """As rclpy has it."""
        callback = self._guarded(callback, f"a message on {topic}")
        return super().create_subscription(msg_type, topic, callback, *args, **options)

    def create_timer(self, timer_period_sec: float, callback: Any, *args: Any, **options: Any) -> Any:
        """As rclpy has it."""
        callback = self._guarded(callback, "a timer")
        return super().create_timer(timer_period_sec, callback, *args, **options)

    def create_service(self, srv_type: Any, srv_name: str, callback: Any, *args: Any, **options: Any) -> Any:
        """As rclpy has it."""
        callback = self._guarded(callback, f"a request to {srv_name}")
        return super().create_service(srv_type, srv_name, callback, *args, **options)

    def _guarded(self, callback: Callable[..., Any], what: str) -> Callable[..., Any]:
        @wraps(callback)
        def guarded(*args: Any) -> Any:
            try:
                return callback(*args)
            except (NodeError, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                # Told to end, ROS fails in whatever is under way.
                if not self.context.ok():
                    raise
                self._note(what, error)
                # Of a service: the response, as far as it was filled.
                return args[-1] if args else None

        return guarded

    def _note(self, what: str, error: BaseException) -> None:
        self.failed_callbacks += 1
        self.last_failure = f"{what}: {InputError(as_exception(error))}"
        now_s = time.monotonic()
        # rclpy's own throttle goes by the line of code, and would let one callback hide another.
        if now_s - self._logged_s.get(what, -LOG_S) < LOG_S:
            return
        self._logged_s[what] = now_s
        told = str(error) if isinstance(error, InputError) else "".join(traceback.format_exception(error))
        told = plain_text(told, keep="\n")
        self.get_logger().error(f"{what} could not be handled: {told}")
