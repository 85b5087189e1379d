"""Texts from outside contain no control characters in logs, terminals and XML."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from crossspec_ros.captioning.caption import Caption
from crossspec_ros.captioning.wording import caption_line
from crossspec_ros.errors import InputError, described, plain_text
from crossspec_ros.recordings.info import _print
from crossspec_ros.recordings.recording import print_sentences
from crossspec_ros.regress.checks import Check, Difference, junit
from crossspec_ros.windows.assembler import WindowAssembler
from crossspec_ros.windows.grid import SECOND, WindowGrid

HOSTILE = "a\x1b[2Jb\nc\r\x00\x9b31m\u202ed\ud800\u2028e\x7f\uffff"
"""Escape sequences of both kinds, line breaks, a direction mark, a surrogate and a noncharacter."""
OBEYED = set(HOSTILE) - set("abcde[2J31m\uffff")


@pytest.mark.parametrize("text", ["Ein grüner Wagen, 200 m", "नी\u200cली", "赤い\u3000車", "👩\u200d🚒", ""])
def test_readable_text_is_unchanged(text):
    assert plain_text(text) == text


def test_control_characters_are_escaped():
    assert plain_text(HOSTILE).startswith(r"a\x1b[2Jb\nc\r\x00\x9b31m\u202ed\ud800\u2028e\x7f")
    assert plain_text("a\n\x1bb", keep="\n") == "a\n\\x1bb"


def test_described_error_forges_no_log_line():
    try:
        try:
            raise KeyError("first\n[FATAL] forged")
        except KeyError:
            raise RuntimeError(f"x\n[ERROR] [1.0] captioner: forged{HOSTILE}\n\ny") from None
    except RuntimeError as error:
        first, *others = described(error).splitlines()
    assert first == "Traceback (most recent call last):" and len(others) > 2
    assert all(line.startswith("  ") for line in others) and not OBEYED & set("".join(others))
    assert described(InputError("a\nb")) == r"a\nb"


def test_errors_are_bounded():
    error = RuntimeError(f"first {1_000_000 * HOSTILE} last")
    error.__cause__ = KeyError("its cause")
    text = described(error)
    assert len(text) < 30_000 and text.endswith("last") and not OBEYED - {"\n"} & set(text)
    assert "its cause" in text
    text = str(InputError(f"no topic '{1_000_000 * HOSTILE}'"))
    assert not OBEYED & set(text) and len(text) < 10_000


def test_captions_remarks_and_reports_are_harmless(capsys):
    (window,) = WindowAssembler(WindowGrid()).close(SECOND, 0, 0)
    line = caption_line(window, 0, Caption(text=HOSTILE, token_ids=(), source="target", target_passes=1), ())
    assert not OBEYED & set(line)

    print_sentences([HOSTILE])
    topic = {"topic": HOSTILE, "type": HOSTILE, "kind": "images", "messages": 1, "rate_hz": 1.0}
    topic |= {"encodings": {HOSTILE: 1}, "first_stamp_ns": 0, "last_stamp_ns": 0}
    topic |= {"gaps": [], "resolutions": [], "events": 0}
    report = {"path": HOSTILE, "format": HOSTILE, "bytes": 1, "messages": 1, "duration_s": 1.0}
    _print({**report, "topics": [topic], "plays": HOSTILE, "findings": [HOSTILE]}, False)
    printed = "".join(capsys.readouterr())
    assert r"\x1b[2J" in printed and not (OBEYED - {"\n"}) & set(printed)


def test_junit_of_hostile_texts_is_valid_xml():
    differences = [
        Difference(HOSTILE, "caption", "a red van", f"a {HOSTILE}"),
        Difference("w", HOSTILE, "", ""),
    ]
    suite = ElementTree.fromstring(junit(HOSTILE, [Check(HOSTILE, differences)])).find("testsuite")
    (failed,) = suite.iter("testcase")
    assert r"\x1b[2J" in failed.find("failure").text
