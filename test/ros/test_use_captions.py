"""The node of docs/use_captions.md stops a robot on an alert, and then lets it continue."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from builtin_interfaces.msg import Time
from crossspec_msgs.msg import Answer, Caption, WindowReport
from geometry_msgs.msg import Twist
from outsider import RELIABLE, outsider
from std_msgs.msg import Header

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "use_captions.md").read_text()
QUESTION = "Is a person on the road?"


@contextmanager
def running(path):
    code = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 31 and QUESTION in code
    path.write_text(code)
    with subprocess.Popen([sys.executable, path], env=dict(os.environ), stderr=subprocess.PIPE) as process:
        try:
            yield process
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=20.0)[1] == b"" and process.returncode == 0
        finally:
            process.kill()


def test_robot_stops_for_people_and_without_answers(tmp_path):
    with outsider() as observer, running(tmp_path / "stop.py"):
        stops = []
        observer.node.create_subscription(Twist, "stop/cmd_vel", stops.append, RELIABLE)
        answers = observer.node.create_publisher(Answer, "/captioner/answers", RELIABLE)
        reports = observer.node.create_publisher(WindowReport, "/captioner/report", RELIABLE)
        observer.wait(lambda: answers.get_subscription_count() and reports.get_subscription_count() > 1)
        observer.wait(lambda: stops)  # there is no answer yet

        def about(second):
            return Caption(header=Header(stamp=Time(sec=second)))

        def publish(yes, no):
            answer = Answer(question=QUESTION, choices=["yes", "no"], probabilities=[yes, no])
            answer.answer = about(7)
            answers.publish(answer)

        def hold(second):
            reports.publish(WindowReport(outcome="unchanged", caption=about(second)))

        def is_quiet():
            before = len(stops)
            with pytest.raises(AssertionError):
                observer.wait(lambda: len(stops) > before + 1, 0.5)

        publish(0.1, 0.9)
        observer.wait(lambda: len(observer["/captioner/answers"]) == 1)
        is_quiet()
        # A person; and an answer outside of the choices.
        for yes, no in ((0.9, 0.1), (0.1, 0.2)):
            publish(yes, no)
            before = len(stops)
            observer.wait(lambda before=before: len(stops) > before + 2)
        publish(0.1, 0.9)
        observer.wait(lambda: len(observer["/captioner/answers"]) == 4)
        is_quiet()
        for _ in range(5):  # longer than the node waits for an answer
            hold(7)
            is_quiet()
            is_quiet()
        before = len(stops)
        observer.wait(lambda: hold(8) or len(stops) > before + 2)  # this window has no answer
