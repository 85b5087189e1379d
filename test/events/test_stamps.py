"""Stamps that jump: which are strays, where a recording breaks, and in which order its streams come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossspec_ros.events.cdr import EVENT_PACKET, IMAGE, RecordedMessage
from crossspec_ros.events.stamp_judge import LiveMessage, StampJudge, Verdict
from crossspec_ros.events.stamps import Break, find_strays, merged, parts

SECOND = 10**9
YEAR_S = 365 * 86400


def judged(*seconds):
    """Return the accepted stamps in order, and the strays."""
    found = list(find_strays((s, round(s * SECOND)) for s in seconds))
    assert [s for s, _, _ in found] == list(seconds)
    return [s for s, _, is_stray in found if not is_stray], [s for s, _, is_stray in found if is_stray]


@pytest.mark.parametrize(
    ("seconds", "strays"),
    [
        ((100, 100.1, 0, 100.2, 100.3), [0]),
        ((100, 100.1, YEAR_S, 100.2, 100.3), [YEAR_S]),
        # It would close windows that are still being filled.
        ((100, 100.1, 105, 100.2, 100.3), [105]),
        ((0, 100, 100.1, 100.2), [0]),
        ((YEAR_S, 100, 100.1, 100.2), [YEAR_S]),
        ((100, 0, 100.1, 100.2), [0]),
        ((100, 100.1, 0), [0]),
        ((100, 100.1, YEAR_S), [YEAR_S]),
        # A recording has a gap, its clock was set, or it is slow: all are meant.
        ((100, 100.1, 150, 150.1), []),
        ((100, 100.1, 105), []),
        ((100, 100.1, 20, 20.1), []),
        ((100, 115, 20, 35, 50, 51), []),
        ((0, 15, 30, 45), []),
        ((100, 99.5, 100.1), []),
    ],
)
def test_find_strays_by_the_stamps_behind(seconds, strays):
    assert judged(*seconds)[1] == strays


@pytest.mark.parametrize("by_s", [1.5, -1.5, 4.4, -4.4, 40])
@pytest.mark.parametrize("count", [60, 64])
def test_stamps_that_jump_back_are_strays(by_s, count):
    """The last ones have not come back yet."""
    seconds = [100 + i / 20 + by_s * (i // 14 % 2) for i in range(count)]
    odd = [s for i, s in enumerate(seconds) if i // 14 % 2]
    assert judged(*seconds)[1] == odd


def test_a_clock_that_stays_set_is_no_excursion():
    assert not judged(*(100 + i / 20 + 4.4 * (20 <= i < 100) for i in range(120)))[1]


def heard(*seconds):
    """Return the verdicts on the messages of a live stream, except the last held one."""
    judge, verdicts = StampJudge(lambda stamp_ns: stamp_ns + SECOND), {}
    for s in seconds:
        for message, verdict in judge.judge(LiveMessage(s, "events", round(s * SECOND))):
            verdicts[message.item] = verdict
            if verdict is not Verdict.STRAY:
                judge.reached["events"] = max(judge.reached.get("events", 0), message.stamp_ns)
    return verdicts


BEFORE, AFTER = (100, 100.1, 100.2), (100.3, 100.4, 100.5)


@pytest.mark.parametrize("stray", [0, 50, 105, 130, YEAR_S])
def test_live_streams_and_recordings_have_the_same_strays(stray):
    found = heard(*BEFORE, stray, *AFTER)
    assert [s for s, verdict in found.items() if verdict is Verdict.STRAY] == [stray]
    assert judged(*BEFORE, stray, *AFTER) == ([*BEFORE, *AFTER], [stray])


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ((50, 50.1), Verdict.JUMP_BACK),
        ((130, 130.1), Verdict.JUMP_AHEAD),
        ((105, 105.1), Verdict.TAKE),
        ((99.5, 100.3), Verdict.TAKE),
    ],
)
def test_confirmed_jump_is_no_stray(after, verdict):
    assert heard(*BEFORE, *after)[after[0]] is verdict
    assert judged(*BEFORE, *after)[1] == []


def stream(kind, *seconds):
    type_name = {"events": EVENT_PACKET, "image": IMAGE}[kind]
    return [RecordedMessage(round(s * SECOND), kind, type_name, b"") for s in seconds]


def times_of(messages):
    return [
        (one.last_ns / SECOND, one.next_ns and one.next_ns / SECOND)
        if isinstance(one, Break)
        else one.stamp_ns / SECOND
        for one in messages
    ]


def test_stray_keeps_its_place():
    events = stream("events", 1.0, 1.1, 1.2, 1.3)
    images = stream("image", 1.05, YEAR_S, 1.15, 0, 1.25)
    messages = list(merged(events, images))
    assert times_of(messages) == [1.0, 1.05, YEAR_S, 1.1, 1.15, 0, 1.2, 1.25, 1.3]
    assert [m.stamp_ns / SECOND for m in messages if m.stray] == [YEAR_S, 0]
    assert times_of(parts(messages))[-1] == (1.3, None)


def test_merged_streams_keep_order_at_a_set_clock():
    events = stream("events", 50.0, 50.1, 50.2, 7.0, 7.1, 7.2)
    images = stream("image", 50.05, 50.25, 7.05, 7.15)
    inside = times_of(parts(merged(events, images)))
    assert inside == [50.0, 50.05, 50.1, 50.2, 50.25, (50.25, 7.0), 7.0, 7.05, 7.1, 7.15, 7.2, (7.2, None)]


def test_gap_breaks_a_recording():
    assert times_of(parts(merged(stream("events", 1, 5, 5.1, 30, 30.1)))) == [
        1, 5, 5.1, (5.1, 30), 30, 30.1, (30.1, None)
    ]  # fmt: skip
    assert times_of(parts(merged([]))) == []


@given(st.lists(st.integers(0, 10**4), max_size=30), st.lists(st.integers(0, 10**4), max_size=30))
def test_streams_in_order_are_merged_in_order(events, images):
    def kept(kind, stamps):
        return stream(kind, *(stamp / 1000 for stamp in sorted(stamps)))

    messages = list(merged(kept("events", events), kept("image", images)))
    assert [m.stamp_ns for m in messages if not m.stray] == sorted(
        m.stamp_ns for m in messages if not m.stray
    )
    assert len(messages) == len(events) + len(images)
