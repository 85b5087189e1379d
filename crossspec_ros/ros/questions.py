"""Questions about the window captioned last: the topic `~/question`, and the service `~/ask`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from crossspec_msgs.srv import Ask
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from std_msgs.msg import String

from crossspec_ros.captioning.worker import CaptionWorker, OnAnswer
from crossspec_ros.errors import InputError
from crossspec_ros.plain_text import plain_text
from crossspec_ros.ros.boundary import GuardedNode
from crossspec_ros.ros.messages import RELIABLE
from crossspec_ros.ros.outcomes import Outcomes
from crossspec_ros.ros.reports import caption_message
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.windows.grid import WindowGrid

if TYPE_CHECKING:
    from crossspec_ros.captioning.caption import Caption

STEP_S = 0.1


class Questions:
    """Takes questions while a captioner is active; each gets one answer, in order, if only why it has none.

    The service has a thread and a hidden node of its own: a callback of rclpy either blocks its executor or,
    awaiting, keeps it spinning, and a captioner's executor has images to take.
    """

    def __init__(
        self, node: GuardedNode, worker: CaptionWorker, outcomes: Outcomes, grid: WindowGrid
    ) -> None:
        self._owner, self._worker, self._outcomes, self._grid = node, worker, outcomes, grid
        self._subscription = node.create_subscription(String, "~/question", self._take, RELIABLE)
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
        # What fails is counted with the captioner's own.
        self._node.boundary.note = node.boundary.note  # type: ignore[method-assign]
        self._node.create_service(Ask, node.resolve_service_name("~/ask"), self._serve)
        self._executor = SingleThreadedExecutor(context=node.context)
        self._executor.add_node(self._node)
        self.pulse = Pulse("answers")
        self._thread = self.pulse.start(self._spin, "ask")

    def stop(self) -> None:
        """Take no more questions; one that waits for the service gets no answer."""
        self._owner.destroy_subscription(self._subscription)
        self.pulse.end()
        self._stopping.set()
        self._thread.join(timeout=1.0)
        self._node.destroy_node()

    def _spin(self) -> None:
        while self._node.context.ok() and not self._stopping.is_set():
            try:
                self._executor.spin_once(STEP_S)
            except ExternalShutdownException:
                return
            except Exception:
                # rclpy makes its wait set of a context that another thread may just have ended.
                if self._node.context.ok():
                    raise

    def _take(self, message: String) -> None:
        def tell(answer: Caption | Exception, index: int | None) -> None:
            text = f"(no answer: {answer})" if isinstance(answer, Exception) else answer.text
            self._outcomes.text("answer", text)

        self._ask(message.data.strip(), tell)

    def _serve(self, request: Ask.Request, response: Ask.Response) -> Ask.Response:
        answered = threading.Event()

        def tell(answer: Caption | Exception, index: int | None) -> None:
            if isinstance(answer, Exception):
                response.reason = str(answer)
            else:
                assert index is not None
                response.success, response.answer = True, caption_message(answer, self._grid.end(index))
            answered.set()

        self._ask(request.question, tell, request.schema)
        while not answered.wait(STEP_S):
            if self._stopping.is_set():
                response.reason = "the captioner is ending: ask again when it is back"
                break
        return response

    def _ask(self, question: str, tell: OnAnswer, schema: str = "") -> None:
        def answered(answer: Caption | Exception, index: int | None) -> None:
            self._outcomes.answers += 1
            if isinstance(answer, Exception):
                if not isinstance(answer, InputError):
                    answer = InputError(f"failed: {self._outcomes.reason(answer)}")
                self._owner.get_logger().warning(f"no answer to '{plain_text(question[:200])}': {answer}")
            else:
                self._owner.get_logger().info(plain_text(f"{question} {answer.text}"))
            tell(answer, index)

        try:
            if not question.strip():
                raise InputError("the question is empty: publish a sentence")
            self._worker.ask(question, answered, schema)
        except InputError as error:
            tell(error, None)
