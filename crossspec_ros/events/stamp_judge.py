"""The judge of stamps: it compares live streams with each other and with the host's clock, and names faults.

A message whose stamp follows earlier stamps is used at once. Another one is held until the streams decide. If
both jump alike, time has jumped. If one goes on as before, the odd messages of the other one are dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from crossspec_ros.events.stamps import BACKWARD_JUMP_NS, FORWARD_JUMP_NS, STRAY_NS

_LOG = logging.getLogger(__name__)
_SECOND = 1_000_000_000
_AHEAD_NS, _BACK_NS = _SECOND // 2, 3 * _SECOND // 4
"""Stamps that are farther ahead of the other stream, or behind their own, are odd."""
_DECIDE_NS = _SECOND // 4
"""A stream that goes on for this time contradicts the jump of the other one; in less, data may be delayed."""
_ALONE_NS = 3 * _SECOND // 4
"""A stream that goes on for longer without the other one counts as single."""
_STEP_NS = _SECOND // 5
"""Images that jump by more against the events may show that the clock was set."""
_CONSTANT_NS = 3 * _SECOND
"""A stream that has been odd for longer has another clock."""
_PASSING_NS = 2 * _SECOND
"""A clock that was set explains data that are late for so long."""
_HOST_NS = _SECOND
"""Stamps that are nearer to the host's clock come from it."""

_YEAR_S = 365.25 * 86400
_UNITS = (("years", _YEAR_S, _YEAR_S), ("days", 2 * 86400, 86400), ("hours", 5400, 3600))
"""Name, least time and length in s."""
_SCALES = ((37, "TAI"), (18, "GPS time"), (19, "TAI against GPS time"), (315_964_782, "GPS time"))
"""Seconds between UTC and other time scales."""
_NAMES = {"events": "events", "frames": "images"}

_CLOCK_SET = "the clock was set by {amount}: windows go on by the new time; set it before the nodes start"
_JUMPED = (
    "time has jumped by {amount} and windows started anew: the clock was set, a recording began again, or "
    "the cameras stood still"
)
_OFFSET = (
    "the {name} are stamped {amount} {order} the {other}{guess}: let the driver of the {name} stamp in ROS "
    "time"
)
_ODD = (
    "the {name}' stamps jump by {amount} and the {other}' do not: let a single node publish the {name}, and "
    "synchronise its clock"
)
_UNSTAMPED = "the {name} have no stamps (header.stamp is 0): let their driver stamp in ROS time"
_BY_STEPS = ("clock_steps", "backward_jumps", "forward_jumps", "late_events", "late_frames", "late_packets")
"""Counters that rise because the clock was set."""


def amount(ns: float) -> str:
    """Return a time in ns for people, as in "4.4 s" or "56.9 years"."""
    seconds = ns / _SECOND
    unit, length_s = next(((name, s) for name, least_s, s in _UNITS if abs(seconds) >= least_s), ("s", 1))
    return f"{seconds / length_s:.1f} {unit}"


def guess_clock(stamp_ns: int, other_ns: int) -> str:
    """Return a guess at the clock behind a constant offset, in brackets; empty if nothing fits."""
    offset_s = abs(stamp_ns - other_ns) / _SECOND
    names = [name for scale_s, name in _SCALES if abs(offset_s - scale_s) < 0.5]
    if min(stamp_ns, other_ns) < _YEAR_S * _SECOND < max(stamp_ns, other_ns):
        names = ["time since boot"]
    elif 0.2 < offset_s / 3600 < 14.5 and abs(offset_s - 900 * round(offset_s / 900)) < 2:
        names = ["local time in place of UTC"]
    return f" ({names[0]}?)" if names else ""


class Verdict(Enum):
    """The fate of a live message."""

    TAKE = "take it"
    JUMP_BACK = "start anew, for time jumps back, and take it"
    JUMP_AHEAD = "start anew, for time jumps ahead, and take it"
    STRAY = "drop it: its stamp is odd"


# Not frozen, which would take longer than judging it.
@dataclass(slots=True, eq=False)
class LiveMessage:
    """A message of a live stream ("events" or "frames") with `count` data."""

    item: Any
    stream: str
    stamp_ns: int
    count: int = 1
    is_silence: bool = False
    """A player's sign that its stream has come so far."""
    is_certain: bool = False
    """Its stamp needs no confirmation."""
    step_ns: int = 0
    """Time by which the host's clock was set before it, as the sensor's clock shows."""


class StampJudge:
    """Judge the messages of two live streams, each before the next one arrives.

    `reached` is the last stamp of each stream since windows started anew; the caller sets it.
    `closing(stamp_ns)` is a stamp at which the window of `stamp_ns` has closed for any stream.
    `findings` explains counters with a clear cause, each in a sentence.
    """

    def __init__(
        self,
        closing: Callable[[int], int],
        lateness_ns: int = 0,
        host_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.reached: dict[str, int] = {}
        self.findings: dict[str, str] = {}
        self._closing, self._lateness_ns, self._host_ns = closing, lateness_ns, host_ns
        self._held: list[LiveMessage] = []
        self._held_at_ns: dict[str, int] = {}
        """By stream, how far all had come when the first of its held messages came."""
        self._refused_ns: dict[str, int] = {}
        """By stream, the last odd stamp, unless it has fitted since."""
        self._heard: dict[str, int] = {}
        self._signed: set[str] = set()
        """Streams whose last message was a sign of silence."""
        self._lone_stream, self._lone_ns = "", 0
        self._lag_ns: int | None = None
        self._image_step = 0, 0
        """The last jump of the images against the events, and how far the events had come."""
        self._passing_ns: dict[str, int] = {}
        """Counters whose findings explain a moment only, and the events' time then."""
        self._logged: dict[str, str] = {}
        """What the log has about each stream, or about time."""

    def forget(self) -> None:
        """Start anew; held messages stay."""
        self.reached.clear()
        self._refused_ns.clear()
        self._lag_ns = None

    def fits(self, stream: str, stamp_ns: int, is_silence: bool = False) -> bool:
        """Return whether a stamp goes on from those before."""
        if not self.reached:
            return True
        now_ns = max(self.reached.values())
        after_ns = stamp_ns - self._refused_ns.get(stream, stamp_ns + 1)
        if 0 <= after_ns <= _SECOND // 2 and abs(stamp_ns - now_ns) > _AHEAD_NS:
            return False
        has_other = len(self.reached) > (stream in self.reached) and not self._is_alone(stream)
        last_ns = now_ns + (max(_AHEAD_NS, self._lateness_ns) if has_other else STRAY_NS)
        # A player closes the last window by a sign.
        return not self._is_back(stream, stamp_ns) and stamp_ns <= (
            self._closing(last_ns) if is_silence else last_ns
        )

    def image_step_ns(self) -> int | None:
        """Return by how much the images have just jumped against the events; None if there are no images."""
        if self._is_alone("events") or "events" not in self.reached:
            return None
        step_ns, at_ns = self._image_step
        return step_ns if 0 <= self.reached["events"] - at_ns <= _SECOND // 2 else 0

    def judge(self, message: LiveMessage) -> Iterator[tuple[LiveMessage, Verdict]]:
        """Yield verdicts on held messages, and on the message unless it is held now.

        The caller acts on each before it asks for the next.
        """
        self._hear(message)
        yield from self._release()
        peers = [held for held in self._held if self._go_together(held, message)]
        if message.is_certain:
            yield from self._end_doubt(message)
        elif message.step_ns:
            yield message, self._follow(message)
        elif self._is_believed(message, peers):
            meant = [one for one in self._held if one in peers or self._leads_to(one, message)]
            self._held = [held for held in self._held if held not in meant]
            for one in (*meant, message):
                before_ns = max(self.reached.values(), default=one.stamp_ns)
                verdict = self._admit(one)
                if verdict is not Verdict.TAKE:
                    self._note(_COUNTERS[verdict], _JUMPED, amount=amount(one.stamp_ns - before_ns))
                yield one, verdict
        elif self.fits(message.stream, message.stamp_ns, message.is_silence):
            yield from self._release(message.stamp_ns)
            yield message, Verdict.TAKE
            yield from self._refuse(message.stream, [one for one in self._held if self.fits(*_key(one))])
            self._refused_ns.pop(message.stream, None)
        else:
            yield from self._refuse(message.stream, peers)
            if all(held.stream != message.stream for held in self._held):
                self._held_at_ns[message.stream] = max(self.reached.values())
            self._held.append(message)
            return
        yield from self._settle(message)

    def refuse_unstamped(self, stream: str) -> None:
        """Note that a stream's messages are stamped with zero."""
        self._note(f"unstamped_{stream}", _UNSTAMPED, name=_NAMES[stream])

    def note_odd_packets(self, offset_ns: int) -> None:
        """Note how far the stamps of event packets are off from the sensor's clock; 0 if they are not."""
        if offset_ns:
            self._note("late_packets", _ODD, name="events", other="images", amount=amount(offset_ns))
            self._passing_ns["late_packets"] = self.reached["events"]

    def _follow(self, message: LiveMessage) -> Verdict:
        """Go on by a clock that was set."""
        self._note("clock_steps", _CLOCK_SET, amount=amount(message.step_ns))
        self.findings |= dict.fromkeys(_BY_STEPS, self.findings["clock_steps"])
        self._passing_ns |= dict.fromkeys(_BY_STEPS, message.stamp_ns)
        if -_BACK_NS < message.step_ns <= BACKWARD_JUMP_NS:
            return Verdict.TAKE
        self.forget()
        return Verdict.JUMP_BACK if message.step_ns < 0 else Verdict.JUMP_AHEAD

    def _end_doubt(self, message: LiveMessage) -> Iterator[tuple[LiveMessage, Verdict]]:
        """Judge all that is held by a stamp that is certain."""
        is_back = self._is_back(*_key(message))
        meant = [one for one in self._held if self._is_back(*_key(one)) == is_back]
        held, self._held = self._held, []
        for one in held:
            is_meant = one in meant and one.stamp_ns <= message.stamp_ns + BACKWARD_JUMP_NS
            yield one, self._admit(one) if is_meant else Verdict.STRAY
        yield message, self._admit(message)

    def _release(self, until_ns: int = 0) -> Iterator[tuple[LiveMessage, Verdict]]:
        """Take held messages that the streams have come up to, or will with a message of `until_ns`."""
        for held in tuple(self._held):
            if self.fits(*_key(held)) or max(self.reached.values()) <= held.stamp_ns <= until_ns:
                self._held.remove(held)
                yield held, Verdict.TAKE

    def _settle(self, message: LiveMessage) -> Iterator[tuple[LiveMessage, Verdict]]:
        """Judge the held messages after this message was used."""
        yield from self._release()
        others = [held for held in self._held if held.stream != message.stream]
        if not others or message.stamp_ns <= self._held_at_ns[others[0].stream] + _DECIDE_NS:
            return
        last = others[-1]
        is_now = 0 <= self._host_ns() - last.stamp_ns < _SECOND
        if is_now and last.stream in self.reached and message.stamp_ns < others[0].stamp_ns:
            # Both waited while this process stood still, and this stream catches up.
            return
        is_better = last.stream not in self.reached and self._rank(last) > self._rank(message)
        if not is_better or last.is_silence:
            yield from self._refuse(last.stream, [])
            return
        self._held = [held for held in self._held if held.stream == message.stream]
        is_far = message.stamp_ns < last.stamp_ns - self._lateness_ns - _BACK_NS
        for held in others:
            verdict = self._admit(held)
            if is_far and held is others[0] and verdict is Verdict.TAKE:
                # Without a new start all data of the other stream would be late.
                self.forget()
                verdict = Verdict.JUMP_AHEAD
            if verdict is not Verdict.TAKE:
                self._note_offset(_COUNTERS[verdict], message, held.stream, held.stamp_ns, is_constant=True)
            yield held, verdict

    def _rank(self, message: LiveMessage) -> tuple[bool, bool]:
        """Return the rank of a stream that never fitted the other: by the host's clock, then by events."""
        return abs(self._host_ns() - message.stamp_ns) < _HOST_NS, message.stream == "events"

    def _is_believed(self, message: LiveMessage, peers: Sequence[LiveMessage]) -> bool:
        if not peers or any(held.is_silence for held in peers):
            return bool(peers)
        are_both = any(held.stream != message.stream for held in peers)
        return (are_both or self._is_alone(message.stream)) and not self.fits(*_key(message))

    def _go_together(self, held: LiveMessage, message: LiveMessage) -> bool:
        """Return whether a message confirms the stamp of a held one."""
        if held.stream != message.stream or held.is_silence:
            return abs(message.stamp_ns - held.stamp_ns) <= BACKWARD_JUMP_NS
        return self._leads_to(held, message)

    def _leads_to(self, held: LiveMessage, message: LiveMessage) -> bool:
        """Return whether both are ahead, or both behind, and the message is not before the held one."""
        now_ns = max(self.reached.values(), default=0)
        are_alike = (message.stamp_ns < now_ns) == (held.stamp_ns < now_ns)
        return are_alike and message.stamp_ns >= held.stamp_ns - BACKWARD_JUMP_NS

    def _is_back(self, stream: str, stamp_ns: int) -> bool:
        """Return whether a stamp is far behind its stream, or behind the other one, which ended with a sign.

        A stream that was held up is behind the other one as well, but its stamps are right.
        """
        others_ns = max(self.reached.values(), default=stamp_ns) - self._lateness_ns
        own_ns = self.reached.get(stream, others_ns)
        if self._is_alone(stream) and self._signed - {stream}:
            own_ns = max(own_ns, others_ns)
        return stamp_ns < own_ns - _BACK_NS

    def _admit(self, message: LiveMessage) -> Verdict:
        verdict = Verdict.TAKE
        if self._is_back(*_key(message)):
            verdict = Verdict.JUMP_BACK
        elif message.stamp_ns > max(self.reached.values(), default=message.stamp_ns) + FORWARD_JUMP_NS:
            verdict = Verdict.JUMP_AHEAD
        if verdict is not Verdict.TAKE:
            self.forget()
        return verdict

    def _refuse(self, stream: str, but: Sequence[LiveMessage]) -> Iterator[tuple[LiveMessage, Verdict]]:
        """Drop the held messages of a stream."""
        refused = [held for held in self._held if held.stream == stream and held not in but]
        self._held = [held for held in self._held if held not in refused]
        if refused:
            self._refused_ns[stream] = refused[-1].stamp_ns
            self.findings.pop(f"stray_{stream}", None)
            if refused[0].stamp_ns == 0:
                self._note(f"stray_{stream}", _UNSTAMPED, name=_NAMES[stream])
            elif other := next((other for other in self.reached if other != stream), ""):
                last_ns = self.reached.get(stream)
                is_constant = last_ns is None or self.reached[other] - last_ns > _CONSTANT_NS
                self._note_offset(f"stray_{stream}", refused[0], other, self._held_at_ns[stream], is_constant)
        for held in refused:
            yield held, Verdict.STRAY

    def _hear(self, message: LiveMessage) -> None:
        stream, stamp_ns = message.stream, message.stamp_ns
        before_ns, self._heard[stream] = self._heard.get(stream, stamp_ns), stamp_ns
        (self._signed.add if message.is_silence else self._signed.discard)(stream)
        if stream != self._lone_stream:
            self._lone_stream, self._lone_ns = stream, 0
        # A clock that stands still, or jumps, shows no time.
        self._lone_ns += min(max(0, stamp_ns - before_ns), _SECOND // 4)
        if stream == "frames" and "events" in self.reached:
            lag_ns = stamp_ns - self.reached["events"]
            if self._lag_ns is not None and abs(lag_ns - self._lag_ns) > _STEP_NS:
                self._image_step = lag_ns - self._lag_ns, self.reached["events"]
            self._lag_ns = lag_ns
        if stream == "events":
            for counter in [
                name for name, ns in self._passing_ns.items() if abs(stamp_ns - ns) > _PASSING_NS
            ]:
                del self._passing_ns[counter]
                self.findings.pop(counter, None)

    def _is_alone(self, stream: str) -> bool:
        """Return whether no other stream has come for a while, if ever."""
        return len(self._heard) < 2 or (stream == self._lone_stream and self._lone_ns > _ALONE_NS)

    def _note_offset(
        self, counter: str, odd: LiveMessage, other: str, other_ns: int, is_constant: bool
    ) -> None:
        offset_ns = odd.stamp_ns - other_ns
        self._note(
            counter,
            _OFFSET if is_constant else _ODD,
            name=_NAMES[odd.stream],
            other=_NAMES[other],
            amount=amount(abs(offset_ns) if is_constant else offset_ns),
            order="before" if offset_ns < 0 else "after",
            guess=guess_clock(odd.stamp_ns, other_ns),
        )

    def _note(self, counter: str, template: str, **values: str) -> None:
        self.findings[counter] = template.format_map(values)
        about = values.get("name", "")
        if self._logged.get(about) != template or template is _CLOCK_SET:
            self._logged[about] = template
            _LOG.warning("%s", self.findings[counter])


_COUNTERS = {Verdict.JUMP_BACK: "backward_jumps", Verdict.JUMP_AHEAD: "forward_jumps"}


def _key(message: LiveMessage) -> tuple[str, int]:
    return message.stream, message.stamp_ns
