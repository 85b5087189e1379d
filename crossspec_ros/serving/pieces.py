"""Pieces of an answer, as they go to the robot."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from crossspec_ros.captioning.answer import Answer
from crossspec_ros.wire import captions_pb2 as wire

_PAUSE_S = 0.05
"""Pause between two pieces of an answer; the first and the last go at once."""


class Pieces:
    """Sends what the passes of an answer have added since the last piece."""

    def __init__(
        self,
        index: int,
        number: int,
        answer: Answer,
        decode: Callable[[Sequence[int]], str],
        begun_ns: int,
        send: Callable[[wire.Down], None],
    ) -> None:
        self.number = number
        self._index, self._answer, self._decode, self._begun_ns = index, answer, decode, begun_ns
        self._send = send
        self._sent, self._ended = 0, False
        self._passes, self._sent_s = 0, 0.0
        self._drafted: Counter[str] = Counter()
        self._accepted: Counter[str] = Counter()

    @property
    def seconds(self) -> float:
        """Seconds since the question came."""
        return (time.perf_counter_ns() - self._begun_ns) / 1e9

    def __call__(self) -> None:
        """Send new tokens, if there are any."""
        answer, now_s = self._answer, time.monotonic()
        if self._ended or (len(answer.tokens) == self._sent and not answer.ended):
            return
        # A message costs more than a pass of a small target.
        if not answer.ended and now_s < self._sent_s + _PAUSE_S:
            return
        step = answer.last
        assert step is not None
        piece = wire.Piece(
            number=self.number,
            token_ids=answer.tokens[self._sent :],
            text=self._decode(answer.tokens).strip(),
            ended=answer.ended,
            tokens_read=step.tokens_read,
            rows=step.rows,
            most_read=step.most_read,
            seconds=step.seconds,
            drafted=answer.drafted - self._drafted,
            accepted=answer.accepted - self._accepted,
            since_asked_s=self.seconds,
            passes=answer.passes - self._passes,
        )
        self._sent, self._ended = len(answer.tokens), answer.ended
        self._passes, self._sent_s = answer.passes, now_s
        self._drafted, self._accepted = answer.drafted.copy(), answer.accepted.copy()
        self._send(wire.Down(session=self._index, piece=piece))
