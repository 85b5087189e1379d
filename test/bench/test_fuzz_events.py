"""`crossspec fuzz events` finds nothing in the decoders, and finds what is planted in them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crossspec_ros.bench import fuzz_events, fuzz_windows
from crossspec_ros.bench.fuzz_events import Stream, fuzz
from crossspec_ros.bench.fuzz_packets import ENCODINGS, MUTATIONS, SIZE, packet_start_us, valid_packets
from crossspec_ros.cli import main
from crossspec_ros.events.decoder import make_decoder
from crossspec_ros.windows.slices import TimeSlices
from crossspec_ros.windows.synchronizer import Synchronizer, WindowClosed

SEED = 7


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_packets_are_valid_before_they_are_damaged(encoding: str) -> None:
    stream = Stream(encoding, SIZE)
    edges = 0
    for number, payload in enumerate(valid_packets(encoding, 50, SEED)):
        stream.decode(payload, packet_start_us(number) * 1000)
        edges += len(stream.decoder.triggers)
    assert not stream.decoder.damage
    assert (stream.events > 200) == (encoding != "trigger")
    assert (edges > 40) == (encoding in ("evt3", "trigger"))


def test_nothing_breaks_and_everything_is_exercised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fuzz.json"
    assert main(["fuzz", "events", "--seconds", "3", "--seed", str(SEED), "--json", str(file)]) == 0
    assert "nothing broke" in capsys.readouterr().out
    figures = json.loads(file.read_text())
    assert figures["mutations"].keys() == MUTATIONS.keys() and min(figures["mutations"].values()) > 100
    assert figures["encodings"].keys() == set(ENCODINGS)
    assert figures["windows"] > 100 and figures["failure"] is None
    damage = {encoding: row["damage"].keys() for encoding, row in figures["encodings"].items()}
    for encoding, row in figures["encodings"].items():
        assert row["packets"] > 100 and (row["events"] > 1000) == (encoding != "trigger")
    for encoding in ("evt3", "libcaer", "libcaer_cmp", "mono"):
        assert damage[encoding] >= {"events_outside_sensor", "torn_words"}
    assert damage["evt3"] >= {"unknown_words", "words_before_time"}
    assert "unknown_words" in damage["libcaer_cmp"] and "torn_words" in damage["trigger"]
    assert damage["dvs"] >= {"events_outside_sensor", "torn_messages"}


def test_a_seed_gives_the_same_packets_again() -> None:
    one, same, other = (fuzz(60, seed, packets=1500) for seed in (1, 1, 2))
    assert one["packets"] == 1500
    assert one["mutations"] == same["mutations"] and one["encodings"] == same["encodings"]
    assert one["encodings"] != other["encodings"]


class Planted:
    """A decoder that is sound until its thousandth byte is on the way."""

    def __init__(self, defect, encoding, width, height):
        self._inner = make_decoder(encoding, width, height)
        self._defect = defect
        self._bytes = 0
        self._kept = []
        self.damage = Counter()

    @property
    def triggers(self):
        return self._inner.triggers

    def decode(self, payload, time_base=0):
        batch = self._inner.decode(payload, time_base)
        self._bytes += len(payload)
        return self._defect(batch, self._kept) if self._bytes > 1000 and len(batch) else batch


def raises(batch, kept):
    raise IndexError("planted")


def leaks_a_coordinate(batch, kept):
    return replace(batch, x=np.full(len(batch), batch.width, np.uint16))


def returns_another_dtype(batch, kept):
    return replace(batch, y=batch.y.astype(np.int32))


def loses_a_polarity(batch, kept):
    return replace(batch, p=batch.p[1:])


def makes_a_third_polarity(batch, kept):
    return replace(batch, p=batch.p + np.uint8(2))


def makes_events_up(batch, kept):
    return batch[np.zeros(100_000, np.intp)]


def takes_all_memory(batch, kept):
    return replace(batch, t=np.empty(1 << 30, np.int64))


def reuses_its_arrays(batch, kept):
    for before in kept:
        before.t[:] += 1
    kept[:] = [replace(batch, t=batch.t.copy())]
    return kept[0]


@pytest.mark.parametrize(
    ("defect", "told"),
    [
        (raises, "IndexError: planted"),
        (leaks_a_coordinate, "a coordinate is outside the sensor"),
        (returns_another_dtype, "x or y is not uint16"),
        (loses_a_polarity, "the arrays differ in length"),
        (makes_a_third_polarity, "a polarity is neither 0 nor 1"),
        (makes_events_up, "bytes hold 100000 events"),
        (takes_all_memory, "MemoryError"),
        (reuses_its_arrays, "changed the batch of the packet before"),
    ],
)
def test_a_planted_defect_is_found_and_told(monkeypatch, capsys, tmp_path, defect, told) -> None:
    def plant(encoding, width, height):
        decoder = make_decoder(encoding, width, height)
        return Planted(defect, encoding, width, height) if encoding == "mono" else decoder

    monkeypatch.setattr(fuzz_events, "make_decoder", plant)
    file = tmp_path / "fuzz.json"
    assert main(["fuzz", "events", "--seconds", "20", "--seed", str(SEED), "--json", str(file)]) == 1
    failure = json.loads(file.read_text())["failure"]
    assert told in failure["reason"] and failure["encoding"] == "mono" and failure["seed"] == SEED
    out = capsys.readouterr().out
    assert told in out and f"seed {SEED}" in out
    assert all(packet["hex"] in out for packet in failure["packets"])


def test_the_packets_that_are_told_break_a_fresh_decoder(monkeypatch) -> None:
    monkeypatch.setattr(fuzz_events, "make_decoder", lambda *kind: Planted(raises, *kind))
    failure = fuzz(20, SEED)["failure"]
    decoder = Planted(raises, failure["encoding"], *failure["size"])
    payloads = [bytes.fromhex(packet["hex"]) for packet in failure["packets"]]
    assert sum(map(len, payloads[1:])) <= 1000 < sum(map(len, payloads))
    for payload in payloads[:-1]:
        decoder.decode(payload)
    with pytest.raises(IndexError, match="planted"):
        decoder.decode(payloads[-1])


def test_memory_that_grows_is_found(monkeypatch) -> None:
    hoard = []

    class Hoarder(Planted):
        def decode(self, payload, time_base=0):
            hoard.append(np.ones(1 << 16, np.uint8))
            return super().decode(payload, time_base)

    monkeypatch.setattr(fuzz_events, "make_decoder", lambda *kind: Hoarder(lambda b, kept: b, *kind))
    assert "memory grew by" in fuzz(60, SEED, packets=4000)["failure"]["reason"]


def test_sensor_sizes_may_be_refused_but_must_not_crash(monkeypatch) -> None:
    def crashes(encoding, width, height):
        if width > 1 << 20:
            raise OverflowError("planted")
        return make_decoder(encoding, width, height)

    monkeypatch.setattr(fuzz_events, "make_decoder", crashes)
    assert "OverflowError: planted" in fuzz(20, SEED)["failure"]["reason"]


class LosesEvents(Synchronizer):
    def add_events(self, batch, lost_packets=0):
        yield from super().add_events(batch[1:], lost_packets)


class ClosesTwice(Synchronizer):
    def add_events(self, batch, lost_packets=0):
        for update in super().add_events(batch, lost_packets):
            yield update
            if isinstance(update, WindowClosed):
                yield replace(update, frames=0, event_images=0, events=0, lost_packets=0)


class HidesAnImage(Synchronizer):
    def add_events(self, batch, lost_packets=0):
        for update in super().add_events(batch, lost_packets):
            yield replace(update, event_images=4) if isinstance(update, WindowClosed) else update


class CountsLossesTwice(Synchronizer):
    def add_events(self, batch, lost_packets=0):
        yield from super().add_events(batch, 2 * lost_packets)


class Overflows(Synchronizer):
    def add_events(self, batch, lost_packets=0):
        if self.slicing == TimeSlices and len(batch):
            raise OverflowError("planted")
        yield from super().add_events(batch, lost_packets)


@pytest.mark.parametrize(
    ("defect", "told"),
    [
        (LosesEvents, "are in windows or counted as dropped"),
        (ClosesTwice, "comes after"),
        (HidesAnImage, "but says"),
        (CountsLossesTwice, "miss more packets than were lost"),
        (Overflows, "OverflowError: planted"),
    ],
)
def test_a_defect_of_the_synchronizer_is_found(monkeypatch, defect, told) -> None:
    monkeypatch.setattr(fuzz_windows, "Synchronizer", defect)
    assert told in fuzz(20, SEED, packets=6000)["failure"]["reason"]


def test_a_hang_is_found(monkeypatch) -> None:
    class Hangs(Synchronizer):
        def add_events(self, batch, lost_packets=0):
            while len(batch):
                pass
            yield from ()

    monkeypatch.setattr(fuzz_windows, "Synchronizer", Hangs)
    monkeypatch.setattr(fuzz_events, "_MOST_SECONDS", 0.5)
    assert "TimeoutError" in fuzz(20, SEED)["failure"]["reason"]
