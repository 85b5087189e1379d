"""Questions about the last captioned window: the service `~/ask` and the action `~/ask_action`.

The action streams the words of the answer, and can be cancelled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from crossspec_msgs.action import Ask as AskAction
from crossspec_msgs.srv import Ask
from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup, ReentrantCallbackGroup
from rclpy.qos import QoSProfile

from crossspec_ros.captioning.captioner import Captioner, Reply
from crossspec_ros.errors import InputError, plain_text, tried
from crossspec_ros.ros.node import GuardedNode
from crossspec_ros.ros.publishers import Publishers

STEP_S = 0.05
"""Seconds between two checks whether a goal was cancelled."""
RESULT_S = 60
"""Seconds for which a client can fetch the result of a goal."""
_QOS = QoSProfile(depth=100)
"""Maximum number of requests that wait. By default, ROS queues ten per service and drops the others."""
Response = TypeVar("Response", Ask.Response, AskAction.Result)


class Questions:
    """Answers questions while `captioner` is set. Each question blocks a thread of the executor."""

    def __init__(self, node: GuardedNode, publishers: Publishers) -> None:
        self.captioner: Captioner | None = None
        self._node, self._publishers = node, publishers
        node.create_service(
            Ask,
            "~/ask",
            lambda request, response: self._fill(response, request, self._ask(request)),
            qos_profile=_QOS,
            callback_group=MutuallyExclusiveCallbackGroup(),
        )
        self._server = ActionServer(
            node,
            AskAction,
            "~/ask_action",
            self._execute,
            cancel_callback=lambda goal: CancelResponse.ACCEPT,
            callback_group=ReentrantCallbackGroup(),
            goal_service_qos_profile=_QOS,
            result_service_qos_profile=_QOS,
            cancel_service_qos_profile=_QOS,
            result_timeout=RESULT_S,
        )
        node.at_end.append(self._server.destroy)

    def _execute(self, goal: ServerGoalHandle) -> AskAction.Result:
        """Answer a goal. A cancelled goal ends at once, or after the pass in work if it has words."""
        cancel, words = threading.Event(), []

        def publish(text: str) -> None:
            words.append(text)
            goal.publish_feedback(AskAction.Feedback(words=text))

        answer = self._ask(goal.request, publish, cancel)
        while not wait([answer], STEP_S).done:
            if goal.is_cancel_requested:
                cancel.set()
                if not words:
                    break
        result = AskAction.Result(reason="cancelled before its first words")
        if answer.done():
            result = self._fill(AskAction.Result(), goal.request, answer)
        if goal.is_cancel_requested:
            result.success, result.reason = False, result.reason or "cancelled: the answer is incomplete"
            goal.canceled()
        elif result.success:
            goal.succeed()
        else:
            goal.abort()
        return result

    def _ask(
        self,
        request: Ask.Request | AskAction.Goal,
        on_words: Callable[[str], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Future[Reply]:
        """Ask the captioner. The future fails with InputError without a captioner or a valid question."""
        try:
            if (captioner := self.captioner) is None:
                raise InputError("the captioner is not active: activate it, and ask again")
            if not request.question.strip():
                raise InputError("the question is empty: ask in words")
            return captioner.ask(request.question, request.schema, on_words, cancel)
        except InputError as error:
            refused: Future[Reply] = Future()
            refused.set_exception(error)
            return refused

    def _fill(
        self, response: Response, request: Ask.Request | AskAction.Goal, future: Future[Reply]
    ) -> Response:
        """Wait for an answer, log it, and fill the response. `reason` explains a failed or cut answer."""
        reply = tried(future.result)
        if isinstance(reply, Exception):
            is_input = isinstance(reply, InputError)
            response.reason = str(reply) if is_input else f"failed: {self._publishers.reason(reply)}"
            line = f"no answer to '{request.question[:200]}': {response.reason}"
            self._node.get_logger().warning(plain_text(line))
            return response
        self._publishers.answers += 1
        answer, index = reply
        self._publishers.answered(request.question, answer, index)
        response.answer = self._publishers.caption(answer, index)
        response.success = answer.is_json or not request.schema
        if not response.success:
            response.reason = (
                "the answer was cut and is not complete JSON: raise max_new_tokens, or bound the schema's "
                "texts (maxLength)"
            )
        return response
