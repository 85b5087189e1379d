"""Memory, goldens and bags after SIGKILL at random moments of their writing.

A child writes one of them in a loop and tells when each write begins and ends. It is killed a random time
after a write has begun. Then this process looks at the files as the next start would, and the next child goes
on: what was whole must be whole, and nobody has to help.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import struct
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn, Protocol

from crossspec_lab.compare.harness import table, tell
from crossspec_ros.drafting.memory_file import MemoryFile
from crossspec_ros.drafting.proposer import Context, PassResult
from crossspec_ros.drafting.proposers.memory import CaptionMemory
from crossspec_ros.engine.tree import DraftTree
from crossspec_ros.paths import share_dir
from crossspec_ros.recordings.bag import write_bag
from crossspec_ros.recordings.convert import convert
from crossspec_ros.recordings.recording import open_recording
from crossspec_ros.regress.golden import Golden, Record, Setup, read_golden, write_golden
from crossspec_ros.windows.grid import SECOND

_VOCABULARY, _IDS = "words", 32_000
_CAPTION = 40
"""Tokens of a caption, as in real ones."""
_WINDOWS = 60
"""Windows of a golden, as in real ones."""
_MOST_WRITES = 5
"""Writes of a child, before it is killed in the next."""
_LATEST = 1.2
"""Latest moment at which it is killed, as a share of the time that a write takes."""
_SAID = struct.Struct("<?q")
"""Whether a write has ended, and its number."""


class State(Protocol):
    """Something that is written again and again, numbered from 1."""

    def start(self) -> None:
        """As a process does that is to write it."""

    def write(self, number: int) -> None:
        """Write it whole, with its number."""

    def newest(self) -> int:
        """The number of what is there now, 0 for nothing; raises where any of it is not whole."""


class MemoryState:
    """A caption memory; the number is in its latest caption."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "memory.json"
        self._memory = CaptionMemory()

    def start(self) -> None:
        self._memory = CaptionMemory()
        # Kept, for it holds the lock.
        self._file = MemoryFile(self._memory, self._path, _VOCABULARY, _IDS)

    def write(self, number: int) -> None:
        said = (number % _IDS, number // _IDS, *range(_CAPTION - 2))
        self._memory.observe(PassResult(Context("?"), DraftTree(), (), said, True))
        self._memory.save(self._path, _VOCABULARY)

    def newest(self) -> int:
        memory = CaptionMemory()
        MemoryFile(memory, self._path, _VOCABULARY, _IDS).close()
        if self._path.with_name(f"{self._path.name}.damaged").exists():
            raise ValueError("the memory was damaged")
        if not memory.known:
            return 0
        low, high, *_ = json.loads(self._path.read_text())["questions"]["?"]["captions"][-1]
        return int(low + high * _IDS)


class GoldenState:
    """A golden file; the number is among its counts."""

    def __init__(self, folder: Path, setup: Setup) -> None:
        self._path, self._setup = folder / "windows.json", setup
        stamps, images = [*range(8)], 8 * ["0" * 96]
        self._windows = [
            Record(i * SECOND, stamps, stamps[:5], images, images[:5], 1, 0, [], "target", "a red van")
            for i in range(_WINDOWS)
        ]

    def start(self) -> None:
        self.newest()

    def write(self, number: int) -> None:
        write_golden(self._path, self._setup, Golden(self._windows, {"written": number}, 0))

    def newest(self) -> int:
        if not self._path.exists():
            return 0
        golden = read_golden(self._path, self._setup)
        if golden.windows != self._windows:
            raise ValueError("the golden has other windows")
        return golden.counts["written"]


class BagState:
    """Copies of a bag; the number is in the name. Of those that were found whole, one is kept."""

    def __init__(self, folder: Path, source: Path) -> None:
        self._folder, self._source = folder, source
        self._digest = _digest(source)

    def start(self) -> None:
        pass

    def write(self, number: int) -> None:
        convert(self._source, self._folder / f"bag{number}")

    def newest(self) -> int:
        bags = sorted(self._folder.glob("bag*"), key=lambda bag: int(bag.name[3:]))
        for bag in bags:
            if _digest(bag) != self._digest:
                raise ValueError(f"'{bag}' lacks messages")
        for bag in bags[:-1]:
            for file in bag.iterdir():
                file.unlink()
            bag.rmdir()
        return int(bags[-1].name[3:]) if bags else 0


def run(args: argparse.Namespace) -> int:
    """The command; exit code 1 where anything was lost or damaged."""
    with TemporaryDirectory() as folder, closing(Setup(share_dir() / "rosbags" / "synthetic_drive")) as setup:
        figures = {"seed": args.seed, **killed(states(Path(folder), setup), args.kills, args.seed)}
    print(table("killed while writing", figures["states"]))
    print("nothing was damaged or lost" if figures["holds"] else "it does not hold")
    tell(args, figures)
    return int(not figures["holds"])


def states(folder: Path, setup: Setup) -> dict[str, State]:
    """States to write, in folders of their own below `folder`; the bags are the first second of `setup`'s."""
    folders = {name: folder / name for name in ("memory", "golden", "bag")}
    for each in folders.values():
        each.mkdir()
    with write_bag(folder / "source") as write:
        for message in setup.recording.messages():
            if message.stamp_ns > setup.recording.start_ns + SECOND:
                break
            write("/events" if message.kind == "events" else "/image", message)
    return {
        "memory": MemoryState(folders["memory"]),
        "golden": GoldenState(folders["golden"], setup),
        "bag": BagState(folders["bag"], folder / "source"),
    }


def killed(states: Mapping[str, State], kills: int, seed: int) -> dict[str, Any]:
    """Kill so many children, which take turns at the states; what was seen, ready for JSON.

    Of each state: `kills`, those `in_a_write`, writes `told` to be over, and after how many kills anything
    was `damaged` or one that was told `lost`, with the first `reason`.
    """
    chance = random.Random(seed)
    rows: dict[str, dict[str, Any]] = {
        name: {"kills": 0, "in_a_write": 0, "told": 0, "damaged": 0, "lost": 0} for name in states
    }
    took_s = dict.fromkeys(states, 0.0)
    # No progress is drawn, which takes threads: a child must not inherit what they hold.
    for name in islice(cycle(states), kills):
        state, row = states[name], rows[name]
        row["kills"] += 1
        try:
            before = state.newest()
            said, took_s[name] = _life(state, before, chance, took_s[name])
            ended = [number for is_over, number in said if is_over]
            row["told"] += len(ended)
            row["in_a_write"] += bool(said) and not said[-1][0]
            row["lost"] += state.newest() < max([before, *ended])
        except Exception as error:  # whatever it is, the next start needs help
            row["damaged"] += 1
            row.setdefault("reason", f"{type(error).__name__}: {error}"[:500])
    holds = not any(row["damaged"] or row["lost"] for row in rows.values())
    return {"kills": kills, "states": rows, "holds": holds}


def _life(
    state: State, before: int, chance: random.Random, took_s: float
) -> tuple[list[tuple[bool, int]], float]:
    """Let a child write and kill it; what it said, and how long its latest whole write took."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _write_on(state, before, writer)
    os.close(writer)
    said, began_s = list[tuple[bool, int]](), 0.0
    last, share = chance.randint(1, _MOST_WRITES), chance.uniform(0.0, _LATEST)
    with open(reader, "rb") as pipe:
        # Of a write that has not been seen whole yet, nobody knows how long it takes.
        while sum(not is_over for is_over, _ in said) < last or (not took_s and len(said) < 2):
            message = pipe.read(_SAID.size)
            if not message:
                break  # it has ended by itself
            said.append(_SAID.unpack(message))
            if said[-1][0]:
                took_s = time.monotonic() - began_s
            began_s = time.monotonic()
        time.sleep(share * took_s)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            raise RuntimeError("the child could not write")
        rest = pipe.read()
    return said + list(_SAID.iter_unpack(rest)), took_s


def _write_on(state: State, before: int, writer: int) -> NoReturn:
    """Write until this process is killed, or nobody listens any more."""
    with suppress(BaseException):
        nothing = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nothing, stream)
        state.start()
        for number in range(before + 1, before + 10**6):
            os.write(writer, _SAID.pack(False, number))
            state.write(number)
            os.write(writer, _SAID.pack(True, number))
    os._exit(1)


def _digest(bag: Path) -> str:
    digest = hashlib.sha256()
    with closing(open_recording(bag)) as recording:
        for message in recording.messages():
            digest.update(message.kind.encode() + message.data)
        if recording.losses:
            raise ValueError(f"'{bag}' is damaged: {recording.losses}")
    return digest.hexdigest()
