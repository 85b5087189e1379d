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
        decode: Callable[[Sequence[int]], str],
        begun_ns: int,
        send: Callable[[wire.Down], None],
    ) -> None:
        self.number = number
        self._index, self._decode, self._begun_ns, self._send = index, decode, begun_ns, send
        self._tokens = self._passes = 0
        self._sent_s = 0.0
        self._drafted: Counter[str] = Counter()
        self._accepted: Counter[str] = Counter()

    @property
    def seconds(self) -> float:
        """Seconds since the question came."""
        return (time.perf_counter_ns() - self._begun_ns) / 1e9

    def __call__(self, answer: Answer) -> None:
        """Send the tokens since the last piece, unless that is too recent."""
        now_s = time.monotonic()
        # A message costs more than a pass of a small target.
        if not answer.ended and now_s < self._sent_s + _PAUSE_S:
            return
        step = answer.last
        assert step is not None
        piece = wire.Piece(
            number=self.number,
            token_ids=answer.tokens[self._tokens :],
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
        self._tokens, self._passes, self._sent_s = len(answer.tokens), answer.passes, now_s
        self._drafted, self._accepted = answer.drafted.copy(), answer.accepted.copy()
        self._send(wire.Down(session=self._index, piece=piece))
