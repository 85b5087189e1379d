"""The grid of windows: every stamp has one window and one slot, wherever in the second windows end."""

from hypothesis import given
from hypothesis import strategies as st

from crossspec_ros.windows.grid import SECOND, WindowGrid


@given(
    st.integers(0, 2**62),
    st.integers(1, 64),
    st.one_of(st.just(0), st.integers(0, SECOND - 1)),
)
def test_a_stamp_lies_in_its_window_and_slot(stamp_ns, slots, phase_ns):
    grid = WindowGrid(slots=slots, phase_ns=phase_ns)
    index = grid.index(stamp_ns)
    assert index >= 0
    assert grid.start(index) <= stamp_ns < grid.end(index) == grid.start(index + 1)
    assert grid.end(index) % SECOND == phase_ns
    since_ns = stamp_ns - grid.start(index)
    assert grid.slot(stamp_ns) * SECOND <= since_ns * slots < (grid.slot(stamp_ns) + 1) * SECOND


def test_without_a_phase_windows_are_the_seconds():
    grid = WindowGrid()
    assert (grid.index(3 * SECOND), grid.start(3), grid.end(3)) == (3, 3 * SECOND, 4 * SECOND)
