"""The page of a regression run: it shows the inputs of each caption, and escapes all texts."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest
from planted import FakeDecoder, write_drive
from stand_ins import write_models

from crossspec_ros.captioning.code_replay import CodeReplay
from crossspec_ros.regress.checks import Check, Difference
from crossspec_ros.regress.golden import Setup, record
from crossspec_ros.regress.page import Page


@pytest.fixture(scope="module")
def captioned(tmp_path_factory):
    """Return three windows. The second one has no frames."""
    folder = tmp_path_factory.mktemp("page")
    setup = Setup(
        write_drive(folder / "drive", blind=(1,)), flags={"models": str(write_models(folder / "models"))}
    )
    decoder = FakeDecoder("a <red> van & window {}", images=None)
    return list(CodeReplay(setup, decoder).windows())


def rows(html):
    """Return the texts of each window's list by their names."""
    lists = re.findall(r"<dl>(.*?)</dl>", html, re.DOTALL)
    texts = [re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text, re.DOTALL) for text in lists]
    return [{name: unescape(re.sub(r"<[^>]*>", "", text)).strip() for name, text in each} for each in texts]


def test_window_shows_its_inputs_and_faults(captioned):
    page = Page()
    frames, events, _ = captioned
    partial = replace(frames, window=replace(frames.window, covered_ms=412), faults=("partial", "rgb_dark"))
    for name, window in (("a", frames), ("b", events), ("c", partial)):
        page.add(name, window, record(window), passed=True)
    a, b, c = rows(page.html("a drive", ["recording: 9"], [Check(name) for name in "abc"]))
    assert (a["source"], b["source"]) == ("target", "event draft")
    assert "degraded" not in a and b["degraded"] == "rgb missing" and c["degraded"] == "partial, rgb dark"
    assert "covered" not in b and c["covered"] == "412 of 1000 ms"
    assert a["caption"] == frames.caption.text and a["caption"].startswith("a <red> van & window")
    assert b["frames"] == "none"


def test_texts_are_escaped(captioned):
    old = replace(record(captioned[0]), caption="a <blue> van & window")
    difference = Difference("a", "caption", old.caption, captioned[0].caption.text)
    checks = [Check("<b>", [Difference("<b>", "<i>", "", "")]), Check("a", [difference])]
    page = Page()
    page.add("a", captioned[0], old, passed=False)
    html = page.html("<i>", ["question: <u>"], checks)
    assert not re.search(r"<(b|i|u|red|blue)>", html)
    assert "<del>&lt;blue&gt;</del> <ins>&lt;red&gt;</ins>" in html
    assert "<h2>a: failed</h2>" in html and "<h2>&lt;b&gt;: failed</h2>" in html
    (window,) = rows(html)
    assert window["caption"].startswith("a <blue> <red> van")
