"""The service `~/ask`: a question, and the answer that belongs to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from crossspec_msgs.srv import Ask
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor

from crossspec_ros.captioning.worker import OnAnswer
from crossspec_ros.errors import InputError
from crossspec_ros.ros.boundary import GuardedNode
from crossspec_ros.ros.reports import caption_message
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.windows.grid import WindowGrid

if TYPE_CHECKING:
    from crossspec_ros.captioning.caption import Caption

STEP_S = 0.1


class AskService:
    """Serves `name` in a thread and a hidden node of its own.

    A callback of rclpy either blocks its executor or, awaiting, keeps it spinning; a captioner's executor has
    images to take. Questions are handed to `ask`, one after the other. What fails is counted by `node`.
    """

    def __init__(
        self, name: str, node: GuardedNode, ask: Callable[[str, OnAnswer], None], grid: WindowGrid
    ) -> None:
        self._ask, self._grid = ask, grid
        self._stopping = threading.Event()
        # A leading underscore keeps a node out of `ros2 node list`.
        self._node = GuardedNode(
            f"_{node.get_name()}_ask",
            namespace=node.get_namespace(),
            context=node.context,
            # Those of launch name every node of a process.
            use_global_arguments=False,
            start_parameter_services=False,
            enable_rosout=False,
        )
        self._node.boundary.note = node.boundary.note  # type: ignore[method-assign]
        self._node.create_service(Ask, name, self._serve)
        self._executor = SingleThreadedExecutor(context=node.context)
        self._executor.add_node(self._node)
        self.pulse = Pulse("answers")
        self._thread = self.pulse.start(self._spin, "ask")

    def stop(self) -> None:
        """Take the service away; a question that waits gets no answer."""
        self.pulse.end()
        self._stopping.set()
        self._thread.join(timeout=1.0)
        self._node.destroy_node()

    def _spin(self) -> None:
        with suppress(ExternalShutdownException):
            while self._node.context.ok() and not self._stopping.is_set():
                self._executor.spin_once(STEP_S)

    def _serve(self, request: Ask.Request, response: Ask.Response) -> Ask.Response:
        answered = threading.Event()

        def take(answer: Caption | Exception, index: int | None) -> None:
            if isinstance(answer, Exception):
                response.reason = str(answer)
            else:
                assert index is not None
                response.success, response.answer = True, caption_message(answer, self._grid.end(index))
            answered.set()

        try:
            self._ask(request.question, take)
        except InputError as error:
            take(error, None)
        while not answered.wait(STEP_S):
            if self._stopping.is_set():
                response.reason = "the captioner is ending: ask again when it is back"
                break
        return response
