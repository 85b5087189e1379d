"""`crossspec regress` with two bags of captions: equal bags pass, and each difference is named."""

from __future__ import annotations

import pytest
from planted import WINDOWS, FakeDecoder, captured, write_drive
from refusals import refused
from rosbags.rosbag2 import Reader
from stand_ins import write_models

from crossspec_ros.captioning.caption_bag import window_topics, write_captions
from crossspec_ros.captioning.code_replay import CodeReplay
from crossspec_ros.cli import main
from crossspec_ros.regress import regression
from crossspec_ros.regress.bag_golden import read_bag
from crossspec_ros.regress.golden import Setup

QUESTION = "Is it dark?"
CHANGED = "captioner: {ros__parameters: {when: changed}}\n"


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bags")
    flags = {"models": str(write_models(folder / "models")), "questions": [f"{QUESTION} [yes, no]"]}
    return Setup(write_drive(folder / "drive"), flags=flags)


def write(setup, bag, decoder, windows=WINDOWS):
    """Write the captions of the first windows, and return the bag."""
    topics = []
    for captioned in [*CodeReplay(setup, decoder).windows()][:windows]:
        topics += window_topics(captioned, setup.origin_ns, ["a line"])
    write_captions(bag, topics)
    return bag


@pytest.fixture(scope="module")
def bag(setup, tmp_path_factory):
    return write(setup, tmp_path_factory.mktemp("golden") / "bag", FakeDecoder())


def contents(golden):
    return [
        (one.end_ns, one.caption, one.source, one.events, one.lost_packets, one.degraded, one.answers)
        for one in golden.windows
    ]


def regress(capsys, *arguments):
    """Return the exit code of `crossspec regress`, and its lines."""
    code = main(["regress", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, (printed.out or printed.err).splitlines()


def test_bag_alone_has_no_inputs(bag):
    with Reader(bag) as reader:
        topics = {one.topic for one in reader.connections} - {"/rosout"}
    assert topics and {topic.rpartition("/")[0] for topic in topics} == {"/captioner"}


def test_bag_has_the_windows_of_goldens(setup, bag):
    golden, found = captured(setup, FakeDecoder()), read_bag(bag)
    assert contents(found) == contents(golden) and found.origin_ns == golden.origin_ns
    assert {one.answers[QUESTION] for one in found.windows} == {"yes"}


def test_bag_has_unchanged_windows(tmp_path, setup):
    config = tmp_path / "changed.yaml"
    config.write_text(CHANGED)
    still = write_drive(tmp_path / "still", silent=(0, WINDOWS * 100), still=True)
    setup = Setup(still, config, {"models": setup.flags["models"]})
    found = read_bag(write(setup, tmp_path / "bag", FakeDecoder(images=8)))
    assert contents(found) == contents(captured(setup, FakeDecoder(images=8)))
    assert [one.source for one in found.windows] == ["target", "unchanged", "unchanged"]


def test_equal_bags_pass(setup, bag, tmp_path, capsys):
    copy = write(setup, tmp_path / "copy", FakeDecoder())
    assert regress(capsys, copy, "--golden", bag) == (0, [f"all {WINDOWS} checks passed"])
    assert regression.regress(copy, golden=bag) == []


def test_differences_of_bags_are_named(setup, bag, tmp_path, capsys):
    other = write(setup, tmp_path / "other", FakeDecoder("a blue van in window {}"), WINDOWS - 1)
    outputs = tmp_path / "junit.xml", tmp_path / "page.html"
    code, lines = regress(capsys, other, "--golden", bag, "--junit", outputs[0], "--html", outputs[1])
    assert (code, lines[0]) == (1, "window 0-1 s: caption: a [-red-] {+blue+} van in window 50")
    events = read_bag(bag).windows[2].events
    dropped = f"expected {events} events, 'a red van in window 52', is no such window"
    assert lines[2:] == [f"window 2-3 s: dropped window: {dropped}", f"3 of {WINDOWS} checks failed"]
    assert all("blue" in output.read_text() for output in outputs)


def test_options_of_a_replay_are_refused(setup, bag, capsys):
    for option in (["--update"], ["--question", "Who is there?"]):
        code, (line,) = regress(capsys, setup.path, "--golden", bag, *option)
        assert code == 2 and line.startswith(f"crossspec: error: {option[0]} does not apply")


def test_other_recordings_are_refused(setup, bag, tmp_path):
    with refused("bag-without-reports"):
        read_bag(setup.path)
    with refused("no-bag-of-captions"):
        read_bag(tmp_path / "none")


def test_golden_without_goldens_is_named(bag, tmp_path, capsys):
    (tmp_path / "junit.xml").write_text("<testsuites/>")
    for name in ("junit.xml", "none", "."):
        code, (line,) = regress(capsys, bag, "--golden", tmp_path / name)
        assert code == 2 and f"'{tmp_path / name}' has no goldens" in line


def test_damaged_bag_is_refused(bag, tmp_path):
    (tmp_path / "cut.mcap").write_bytes((bag / "bag.mcap").read_bytes()[:-2000])
    with refused("bag-of-captions-cut", library_text=True):
        read_bag(tmp_path / "cut.mcap")
