"""Children of trials: what they say is heard, what they are told arrives, and an early end is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from crossspec_lab.trials.processes import Child

ECHO = """
import json, sys
print("no JSON")
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    if line.strip() == "end":
        sys.exit(3)
    if line.strip() != "nothing":
        print(json.dumps({"echo": line.strip()}), flush=True)
"""


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child(["-c", ECHO])
    yield made
    made.kill()


def test_a_child_is_heard_and_asked(child: Child) -> None:
    child.wait(lambda: child.lines, "it did not start")
    assert child.lines == [{"ready": True}] and child.said[0] == "no JSON\n"
    assert child.ask("a", 30.0) == {"echo": "a"} and child.ask("nothing", 0.1) is None
    assert child.ask("end", 30.0) is None and child.process.wait(30) == 3
    assert child.heard() == [{"ready": True}, {"echo": "a"}]


def test_what_a_child_does_not_do_before_its_end_is_told(child: Child) -> None:
    child.wait(lambda: child.lines, "it did not start")
    child.tell("end")
    with pytest.raises(RuntimeError, match="it said nothing before its process ended: see what it said"):
        child.wait(lambda: len(child.lines) > 1, "it said nothing")
