"""`crossspec fuzz events`: damaged packets into long-lived decoders, and their events on into the windows.

Whatever the bytes are: no exception escapes, no coordinate leaves the sensor, memory stays flat, and damage
is counted by kind.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import struct
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress, TextColumn
from rich.table import Table

from crossspec_ros.bench.fuzz_packets import (
    ENCODINGS,
    LEAST_BYTES,
    MUTATIONS,
    SIZE,
    Dice,
    packet_start_us,
    valid_packets,
)
from crossspec_ros.bench.fuzz_windows import Downstream
from crossspec_ros.errors import InputError
from crossspec_ros.events.batch import EventBatch
from crossspec_ros.events.decoder import EventDecoder, make_decoder
from crossspec_ros.events.dvs import DvsDecoder
from crossspec_ros.events.messages import stamp_ns
from crossspec_ros.telemetry.memory import resident_mb
from crossspec_ros.windows.slices import CountSlices, TimeSlices

_VALID = 512
_BLOCK = 1000
"""Packets between two looks at the clock and at the memory."""
_SIZES = (SIZE, (346, 260), (1, 1), (2048, 2048))
_ODD_SIZES = (0, 1, 2, 640, 2047, 2048, 32_767, 65_535, 65_536, 1 << 31, (1 << 32) - 1)
_RECENT = 64
_WARM = 1 / 3
"""Share of the run after which memory must not grow any more."""
_MOST_GROWTH_MB = 20.0
_PUSHES_A_LIFE = 2000
_MOST_MAPPED = 4 << 30
_MOST_SECONDS = 20.0
"""CPU time of a block; a sound one takes a tenth of a second."""


class Broken(Exception):
    """A promise was broken; the message says which."""


@dataclass
class Stream:
    """One long-lived decoder, whatever it gets."""

    encoding: str
    size: tuple[int, int]
    packets: int = 0
    events: int = 0
    recent: deque[tuple[bytes, int]] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def __post_init__(self) -> None:
        self.decoder = self._fresh()
        self._last = EventBatch.empty(*self.size)
        self._last_bytes = _bytes(self._last)

    def _fresh(self) -> EventDecoder:
        return DvsDecoder() if self.encoding == "dvs" else make_decoder(self.encoding, *self.size)

    def decode(self, payload: bytes, time_base: int) -> EventBatch:
        """One packet's batch, checked; raises Broken."""
        self.recent.append((payload, time_base))
        self.packets += 1
        batch = self._checked(self.decoder, payload, time_base)
        _demand(_bytes(self._last) == self._last_bytes, "a packet changed the batch of the packet before")
        self._last, self._last_bytes = batch, _bytes(batch)
        self.events += len(batch)
        return batch

    def shortest_history(self) -> list[tuple[bytes, int]]:
        """The fewest of the last packets that break a fresh decoder too; the last alone when none do."""
        recent = list(self.recent)
        for count in range(1, len(recent) + 1):
            decoder = self._fresh()
            try:
                for packet in recent[-count:]:
                    self._checked(decoder, *packet)
            except Broken:
                return recent[-count:]
        return recent[-1:]

    def _checked(self, decoder: EventDecoder, payload: bytes, time_base: int) -> EventBatch:
        try:
            batch = decoder.decode(payload, time_base)
            triggers = decoder.triggers
        except Exception:
            raise Broken(f"the decoder raised\n{traceback.format_exc()}") from None
        count = len(batch.t)
        _demand(count == len(batch.x) == len(batch.y) == len(batch.p), "the arrays differ in length")
        _demand(batch.t.dtype == np.int64, "t is not int64")
        _demand(batch.x.dtype == batch.y.dtype == np.uint16, "x or y is not uint16")
        _demand(batch.p.dtype == np.uint8, "p is not uint8")
        # A word that the last packet ended in the middle of counts as well.
        most = (len(payload) + 12) / LEAST_BYTES[self.encoding]
        _demand(count <= most, f"{len(payload)} bytes hold {count} events")
        if count:
            inside = int(batch.x.max()) < batch.width and int(batch.y.max()) < batch.height
            _demand(inside, f"a coordinate is outside the sensor of {batch.width}x{batch.height}")
            _demand(int(batch.p.max()) <= 1, "a polarity is neither 0 nor 1")
        _demand(self.encoding == "dvs" or (batch.width, batch.height) == self.size, "the size changed")
        edges = len(triggers.t)
        _demand(edges == len(triggers.channel) == len(triggers.p), "the triggers' arrays differ in length")
        if edges:
            kinds = (triggers.t.dtype, triggers.channel.dtype, triggers.p.dtype)
            _demand(kinds == (np.int64, np.uint16, np.uint8), "the triggers' types are others")
            _demand(int(triggers.p.max()) <= 1, "a trigger's polarity is neither 0 nor 1")
            _demand(edges <= (len(payload) + 8) / 2, f"{len(payload)} bytes hold {edges} triggers")
        return batch


def _bytes(batch: EventBatch) -> bytes:
    return b"".join(values.tobytes() for values in (batch.t, batch.x, batch.y, batch.p))


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Broken(otherwise)


class Fuzzer:
    """Everything that runs, seeded: the same seed gives the same packets, however long each run takes."""

    def __init__(self, seed: int) -> None:
        self.dice = Dice(seed)
        self.mutations: Counter[str] = Counter()
        self.packets = self.sizes_tried = 0
        self.streams = {name: [Stream(name, size) for size in _SIZES] for name in ENCODINGS}
        # The size of a dvs stream is in its messages.
        self.streams["dvs"] = self.streams["dvs"][:1]
        self.downstream = {
            name: [Downstream(slicing) for slicing in (CountSlices, TimeSlices)] for name in ENCODINGS
        }
        self._short_lived = {name: Counter[str]() for name in ENCODINGS}
        self._valid = {name: valid_packets(name, _VALID, seed) for name in ENCODINGS}
        self._kinds = list(MUTATIONS.items())
        self.current: Stream | None = None

    def block(self, packets: int) -> None:
        """Run so many packets; raises Broken, and `current` is then the stream whose promise it was."""
        self._try_odd_sizes()
        for _ in range(packets):
            self.packets += 1
            encoding = ENCODINGS[self.packets % len(ENCODINGS)]
            streams = self.streams[encoding]
            self.current = stream = streams[self.dice.below(len(streams))]
            payload, time_base = self._packet(encoding)
            batch = stream.decode(payload, time_base)
            if encoding == "dvs":
                # As documented, for a message that is torn.
                with suppress(struct.error):
                    stamp_ns(payload)
            # Mostly of one size, so that windows fill, at times of another, which the synchronizer refuses.
            if stream is streams[0] or (stream is streams[1] and not self.dice.below(64)):
                self._push(encoding, batch)

    def _packet(self, encoding: str) -> tuple[bytes, int]:
        valid, dice = self._valid[encoding], self.dice
        number = self.packets // len(ENCODINGS) % _VALID
        kind, mutate = self._kinds[dice.below(len(self._kinds))]
        self.mutations[kind] += 1
        payload = mutate(valid[number], valid[dice.below(_VALID)], encoding, dice)
        time_base = packet_start_us(number) * 1000
        if not dice.below(64):
            time_base = dice.below(1 << 32) << 32 | dice.below(1 << 32)
        return payload, time_base

    def _push(self, encoding: str, batch: EventBatch) -> None:
        for downstream in self.downstream[encoding]:
            try:
                downstream.push(batch, encoding == "dvs", self.dice)
                if not self.dice.below(_PUSHES_A_LIFE):
                    downstream.finish()
            except Exception:
                raise Broken(f"clock or synchronizer failed\n{traceback.format_exc()}") from None

    def finish(self) -> None:
        """Close all windows."""
        for encoding, each in self.downstream.items():
            self.current = self.streams[encoding][0]
            for downstream in each:
                try:
                    downstream.finish()
                except Exception:
                    raise Broken(f"the synchronizer failed\n{traceback.format_exc()}") from None

    def _try_odd_sizes(self) -> None:
        dice = self.dice
        for encoding in ENCODINGS:
            width, height = (
                _ODD_SIZES[dice.below(len(_ODD_SIZES))] if dice.below(2) else dice.below(1 << 32)
                for _ in range(2)
            )
            self.sizes_tried += 1
            try:
                stream = Stream(encoding, (width, height))
            except InputError:
                continue
            except Exception:
                raise Broken(f"a sensor of {width}x{height} raised\n{traceback.format_exc()}") from None
            self.current = stream
            for _ in range(3):
                stream.decode(*self._packet(encoding))
            self._short_lived[encoding] += stream.decoder.damage

    def damage(self, encoding: str) -> Counter[str]:
        """What the decoders of an encoding could not use, by kind."""
        long_lived = (stream.decoder.damage for stream in self.streams[encoding])
        return sum(long_lived, self._short_lived[encoding])


class Memory:
    """Resident memory in MB: when the run had warmed up, now, and at most."""

    def __init__(self) -> None:
        self.start: float | None = None
        self.now = self.peak = 0.0

    def look(self, is_warm: bool) -> None:
        """Measure; the first time that `is_warm` is the start."""
        self.now = resident_mb()
        self.peak = max(self.peak, self.now)
        if is_warm and self.start is None:
            self.start = self.now

    def growth(self) -> float:
        """Since the start."""
        return 0.0 if self.start is None else self.now - self.start


def run(args: argparse.Namespace) -> int:
    """Fuzz, print a table, write figures if asked; 1 when a promise was broken."""
    seconds = args.seconds or (float("inf") if args.packets else 60.0)
    columns = (*Progress.get_default_columns(), TextColumn("{task.fields[told]}"))
    progress = Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())
    with _limited_memory(), progress:
        task = progress.add_task("fuzzing", total=1.0, told="")
        figures = fuzz(
            seconds,
            args.seed,
            args.packets,
            lambda share, told: progress.update(task, completed=share, told=told),
        )
    _print(figures)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 1 if figures["failure"] else 0


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"{_BLOCK} packets took more than {_MOST_SECONDS:.0f} s")


@contextmanager
def _limited_time() -> Iterator[None]:
    """Make what hangs fail, and be told with its packet."""
    # CPU time: a machine that is busy with something else is no defect.
    before = signal.signal(signal.SIGVTALRM, _too_slow)
    signal.setitimer(signal.ITIMER_VIRTUAL, _MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Make what takes too much fail, and be told with its packet, before the kernel ends it all unheard."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    most = mapped + _MOST_MAPPED
    resource.setrlimit(resource.RLIMIT_AS, (most if before[0] < 0 else min(most, before[0]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def fuzz(
    seconds: float,
    seed: int = 0,
    packets: int | None = None,
    tell: Callable[[float, str], None] = lambda share, told: None,
) -> dict[str, Any]:
    """Run until `seconds` or `packets` have passed, or a promise was broken, which `failure` then tells."""
    fuzzer, memory, failure = Fuzzer(seed), Memory(), None
    started, share = time.perf_counter(), 0.0
    try:
        while share < 1:
            left = _BLOCK if packets is None else min(_BLOCK, packets - fuzzer.packets)
            with _limited_time():
                fuzzer.block(left)
            elapsed = time.perf_counter() - started
            share = max(elapsed / seconds, fuzzer.packets / packets if packets else 0.0)
            memory.look(share >= _WARM)
            damage = sum(fuzzer.damage(name).total() for name in ENCODINGS)
            tell(share, f"{fuzzer.packets / elapsed:,.0f} packets/s, {damage:,} times damage")
        fuzzer.current = None
        fuzzer.finish()
        _demand(memory.growth() <= _MOST_GROWTH_MB, f"memory grew by {memory.growth():.0f} MB")
    except Broken as broken:
        failure = _failure(fuzzer, seed, str(broken))
    return _figures(fuzzer, memory, seed, time.perf_counter() - started, failure)


def _failure(fuzzer: Fuzzer, seed: int, reason: str) -> dict[str, Any]:
    stream = fuzzer.current
    history = stream.shortest_history() if stream else []
    return {
        "reason": reason,
        "seed": seed,
        "packet": fuzzer.packets,
        "encoding": stream.encoding if stream else None,
        "size": stream.size if stream else None,
        "packets": [{"hex": payload.hex(), "time_base": time_base} for payload, time_base in history],
    }


def _figures(
    fuzzer: Fuzzer, memory: Memory, seed: int, elapsed: float, failure: dict[str, Any] | None
) -> dict[str, Any]:
    return {
        "seed": seed,
        "seconds": elapsed,
        "packets": fuzzer.packets,
        "packets_per_s": fuzzer.packets / elapsed,
        "events": sum(stream.events for streams in fuzzer.streams.values() for stream in streams),
        "windows": sum(down.windows for each in fuzzer.downstream.values() for down in each),
        "sizes_tried": fuzzer.sizes_tried,
        "mutations": dict(fuzzer.mutations),
        "encodings": {
            name: {
                "packets": sum(stream.packets for stream in streams),
                "events": sum(stream.events for stream in streams),
                "damage": dict(fuzzer.damage(name)),
            }
            for name, streams in fuzzer.streams.items()
        },
        "rss_mb": {"start": memory.start, "end": memory.now, "peak": memory.peak},
        "failure": failure,
    }


def _print(figures: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table("encoding", "packets", "events", "damage")
    for name, row in figures["encodings"].items():
        damage = ", ".join(f"{kind} {count:,}" for kind, count in sorted(row["damage"].items()))
        table.add_row(name, f"{row['packets']:,}", f"{row['events']:,}", damage)
    console.print(table)
    console.print("mutations: " + ", ".join(f"{kind} {n:,}" for kind, n in figures["mutations"].items()))
    memory = ", ".join(f"{n} {mb:.0f} MB" for n, mb in figures["rss_mb"].items() if mb is not None)
    console.print(
        f"{figures['packets']:,} packets with {figures['events']:,} events in {figures['seconds']:.1f} s: "
        f"{figures['packets_per_s']:,.0f} packets/s; {figures['windows']:,} windows; "
        f"{figures['sizes_tried']} odd sensor sizes; memory: {memory}"
    )
    failure = figures["failure"]
    if not failure:
        console.print("nothing broke")
        return
    console.print(
        f"BROKEN at packet {failure['packet']} of seed {failure['seed']} ({failure['encoding']}, sensor "
        f"{failure['size']}): {failure['reason']}",
        markup=False,
    )
    for packet in failure["packets"]:
        console.print(f"time_base {packet['time_base']} payload {packet['hex']}")
