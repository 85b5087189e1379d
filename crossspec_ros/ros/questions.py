"""Questions about the window captioned last: the topic `~/question`, the service `~/ask`, and the action
`~/ask_action`.

The service is for whoever waits: `ros2 service call`, a behaviour tree. The action's words can be heard as
they come, and its question cancelled.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from crossspec_msgs.action import Ask as AskAction
from crossspec_msgs.srv import Ask
from rclpy.action import CancelResponse, GoalResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor
from rclpy.qos import QoSProfile
from std_msgs.msg import String

from crossspec_ros.captioning.caption import MOST_QUESTION
from crossspec_ros.captioning.captioner import Captioner, Reply
from crossspec_ros.engine.json_grammar import MOST_SCHEMA
from crossspec_ros.errors import InputError, plain_text, tried
from crossspec_ros.ros.boundary import GuardedNode
from crossspec_ros.ros.messages import RELIABLE
from crossspec_ros.ros.outcomes import Outcomes
from crossspec_ros.ros.reports import caption_message
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.windows.grid import WindowGrid

STEP_S = 0.1
Response = TypeVar("Response", Ask.Response, AskAction.Result)
KEPT_S = 60
"""Seconds for which the answer to an action's question can be fetched."""
_SEVERAL = QoSProfile(depth=100)
"""Requests that may come at once: ROS keeps ten of a service, and drops the others without a word."""


def _admitted(goal: AskAction.Goal) -> GoalResponse:
    """Reject goals so long that ROS must not keep them until nobody may fetch their results any more."""
    is_long = len(goal.question) > MOST_QUESTION or len(goal.schema) > MOST_SCHEMA
    return GoalResponse.REJECT if is_long else GoalResponse.ACCEPT


class Questions:
    """Takes questions while a captioner is active; each gets one answer, in order, if only why it has none.

    The service has a thread and a hidden node of its own: a callback of rclpy either blocks its executor or,
    awaiting, keeps it spinning, and a captioner's executor has images to take. A second thread is the
    action's, so that it hears of goals and cancellations while the service waits.
    """

    def __init__(self, node: GuardedNode, captioner: Captioner, outcomes: Outcomes, grid: WindowGrid) -> None:
        self._owner, self._captioner, self._outcomes, self._grid = node, captioner, outcomes, grid
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
        self._node.create_service(Ask, node.resolve_service_name("~/ask"), self._serve, qos_profile=_SEVERAL)
        # Cancellations of goals that have no answer yet, and answers that wait to be told, by the goals' ids.
        self._cancels: dict[bytes, threading.Event] = {}
        self._results: dict[bytes, AskAction.Result] = {}
        self._action = self._node.create_action_server(
            AskAction,
            node.resolve_service_name("~/ask_action"),
            _SEVERAL,
            _admitted,
            self._accept,
            self._cancel,
            self._tell_result,
            callback_group=ReentrantCallbackGroup(),
            result_timeout=KEPT_S,
        )
        self._executor = MultiThreadedExecutor(2, context=node.context)
        self._executor.add_node(self._node)
        self.pulse = Pulse("answers")
        self._thread = self.pulse.start(self._spin, "ask")

    def stop(self) -> None:
        """Take no more questions; one that waits for the service gets no answer."""
        self._owner.destroy_subscription(self._subscription)
        self.pulse.end()
        self._stopping.set()
        self._thread.join(timeout=1.0)
        self._executor.shutdown(1.0)
        self._action.destroy()
        self._node.destroy_node()

    def _spin(self) -> None:
        # Goals that the end of the worker has answered are told first.
        ends_s = math.inf
        while self._node.context.ok() and time.monotonic() < ends_s:
            if self._stopping.is_set():
                ends_s = min(ends_s, time.monotonic() + (1.0 if self._results else 0.0))
            try:
                self._executor.spin_once(STEP_S)
            except ExternalShutdownException:
                return
            except Exception:
                # rclpy makes its wait set of a context that another thread may just have ended.
                if self._node.context.ok():
                    raise

    def _take(self, message: String) -> None:
        def tell(reply: Reply | Exception) -> None:
            text = f"(no answer: {reply})" if isinstance(reply, Exception) else reply[0].text
            self._outcomes.text("answer", text)

        self._ask(message.data.strip(), tell)

    def _serve(self, request: Ask.Request, response: Ask.Response) -> Ask.Response:
        answered = threading.Event()

        def tell(reply: Reply | Exception) -> None:
            self._fill(response, request.schema, reply)
            answered.set()

        self._ask(request.question, tell, request.schema)
        while not answered.wait(STEP_S):
            if self._stopping.is_set():
                response.reason = "the captioner is ending: ask again when it is back"
                break
        return response

    def _fill(self, response: Response, schema: str, reply: Reply | Exception) -> Response:
        """The response with an answer, or why there is none, or none that is whole JSON of the schema."""
        if isinstance(reply, Exception):
            response.reason = str(reply)
            return response
        answer, index = reply
        response.answer = caption_message(answer, self._grid.end(index))
        response.success = answer.is_json or not schema
        if not response.success:
            response.reason = (
                "the answer was cut before it was whole JSON: raise max_new_tokens, or let the schema bound "
                "its texts (maxLength)"
            )
        return response

    def _accept(self, goal: ServerGoalHandle) -> None:
        key = bytes(goal.goal_id.uuid)

        def tell(reply: Reply | Exception) -> None:
            result = self._fill(AskAction.Result(), goal.request.schema, reply)
            if result.success and goal.is_cancel_requested:
                result.success, result.reason = False, "cancelled: these are the words so far"
            self._results[key] = result
            # Either calls `_tell_result` in the executor.
            try:
                goal.execute()
            except Exception:  # a cancellation came in between
                self._action.notify_execute(goal, None)

        def hear(words: str) -> None:
            goal.publish_feedback(AskAction.Feedback(words=words))

        # The cancellation may have come before.
        cancel = self._cancels.setdefault(key, threading.Event())
        self._ask(goal.request.question, tell, goal.request.schema, hear, cancel)

    def _cancel(self, goal: ServerGoalHandle) -> CancelResponse:
        self._cancels.setdefault(bytes(goal.goal_id.uuid), threading.Event()).set()
        return CancelResponse.ACCEPT

    def _tell_result(self, goal: ServerGoalHandle) -> AskAction.Result:
        key = bytes(goal.goal_id.uuid)
        result = self._results.pop(key)
        if goal.is_cancel_requested:
            goal.canceled()
        elif result.success:
            goal.succeed()
        else:
            goal.abort()
        self._cancels.pop(key, None)
        return result

    def _ask(
        self,
        question: str,
        tell: Callable[[Reply | Exception], None],
        schema: str = "",
        hear: Callable[[str], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        """Ask, or tell at once why not."""

        def answered(done: Future[Reply]) -> None:
            self._outcomes.answers += 1
            reply = tried(done.result)
            if isinstance(reply, Exception):
                if not isinstance(reply, InputError):
                    reply = InputError(f"failed: {self._outcomes.reason(reply)}")
                self._owner.get_logger().warning(f"no answer to '{plain_text(question[:200])}': {reply}")
            else:
                answer, index = reply
                self._outcomes.answered(question, answer, self._grid.end(index))
            tell(reply)

        try:
            if not question.strip():
                raise InputError("the question is empty: ask a sentence")
            asked = self._captioner.ask(question, schema, hear, cancel)
        except InputError as error:
            tell(error)
        else:
            asked.add_done_callback(answered)
