"""Memory, goldens and bags after SIGKILL at random moments of their writing.

A child writes one of them in a loop, and is killed a random time after a write has begun. The parent then
opens the files as a restarted process would. Complete files must be intact, without manual repair.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import random
import signal
import time
from collections.abc import Callable
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from crossspec_lab.bench.harness import tell
from crossspec_lab.bench.tables import table
from crossspec_ros.drafting.memory_file import MemoryFile, save
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
_CAPTION_TOKENS, _GOLDEN_WINDOWS = 40, 60
_MAX_WRITES = 5
"""Complete writes of a child before it is killed."""


class State(NamedTuple):
    """Something that is written again and again, with the number of the write.

    `newest` returns the number of the complete write on the disk, 0 for none. It raises for a damaged one.
    """

    write: Callable[[int], object]
    newest: Callable[[], int]


def memory_state(folder: Path) -> State:
    """Return a growing caption memory with the number in its latest caption."""
    path, memory = folder / "memory.json", CaptionMemory()

    def write(number: int) -> None:
        caption = (number % _IDS, number // _IDS, *range(_CAPTION_TOKENS - 2))
        memory.observe(PassResult(Context("?"), DraftTree(), (), caption, True))
        save(memory, path, _VOCABULARY)

    def newest() -> int:
        found = CaptionMemory()
        MemoryFile(found, path, _VOCABULARY, _IDS).close()
        if path.with_name(f"{path.name}.damaged").exists():
            raise ValueError("the memory was damaged")
        if not found.state():
            return 0
        low, high, *_ = json.loads(path.read_text())["captions"]["?"][-1]
        return int(low + high * _IDS)

    return State(write, newest)


def golden_state(folder: Path, setup: Setup) -> State:
    """Return a golden file with the number among its counts."""
    path, stamps, images = folder / "windows.json", [*range(8)], 8 * ["0" * 96]
    windows = [
        Record(i * SECOND, stamps, stamps[:5], images, images[:5], 1, 0, [], "target", "a red van")
        for i in range(_GOLDEN_WINDOWS)
    ]

    def newest() -> int:
        if not path.exists():
            return 0
        golden = read_golden(path, setup)
        if golden.windows != windows:
            raise ValueError("the golden has other windows")
        return golden.counts["written"]

    return State(lambda number: write_golden(path, setup, Golden(windows, {"written": number}, 0)), newest)


def bag_state(folder: Path, setup: Setup) -> State:
    """Return copies of the first second of the recording, with the number in their names."""
    source = folder / "source"
    with write_bag(source) as write:
        end_ns = setup.recording.start_ns + SECOND
        for message in takewhile(lambda one: one.stamp_ns <= end_ns, setup.recording.messages()):
            write("/events" if message.kind == "events" else "/image", message)
    digest = _digest(source)

    def newest() -> int:
        numbers = [int(bag.name[3:]) for bag in folder.glob("bag*")]
        for number in numbers:
            if _digest(folder / f"bag{number}") != digest:
                raise ValueError(f"bag {number} lacks messages")
        return max(numbers, default=0)

    return State(lambda number: convert(source, folder / f"bag{number}"), newest)


def run(args: argparse.Namespace) -> int:
    """Run the command; the exit code is 1 where anything was lost or damaged."""
    rows: dict[str, dict[str, Any]] = {}
    with closing(Setup(share_dir() / "rosbags" / "synthetic_drive")) as setup, TemporaryDirectory() as folder:
        for name, state in states(Path(folder), setup).items():
            rows[name] = kill_writers(state, args.kills // 3 or 1, args.seed)
    print(table("killed while writing", rows))
    holds = not any(row["damaged"] or row["lost"] for row in rows.values())
    tell(args, {"seed": args.seed, "kills": args.kills, "states": rows, "holds": holds})
    return int(not holds)


def states(folder: Path, setup: Setup) -> dict[str, State]:
    """Return all states."""
    return {
        "memory": memory_state(folder),
        "golden": golden_state(folder, setup),
        "bag": bag_state(folder, setup),
    }


def kill_writers(state: State, kills: int, seed: int) -> dict[str, Any]:
    """Kill writers of a state; count kills, damaged states, lost writes, and kills within a write."""
    chance = random.Random(seed)
    row: dict[str, Any] = {"kills": kills, "in_a_write": 0, "damaged": 0, "lost": 0}
    for _ in range(kills):
        try:
            begun, ended = _kill_writer(state, state.newest(), chance)
            row["in_a_write"] += begun > ended
            row["lost"] += state.newest() < ended
        except Exception as error:
            row["damaged"] += 1
            row.setdefault("reason", f"{type(error).__name__}: {error}"[:500])
    return row


def _kill_writer(state: State, number: int, chance: random.Random) -> tuple[int, int]:
    """Let a child write after `number` and kill it; return its last begun and last complete write."""
    context = multiprocessing.get_context("fork")
    begun, ended = context.RawValue("q", number), context.RawValue("q", number)
    child = context.Process(target=_write_on, args=(state, begun, ended))
    child.start()
    started_s, last = time.monotonic(), number + chance.randint(1, _MAX_WRITES)
    while ended.value < last and child.is_alive():
        time.sleep(0.001)
    write_s = (time.monotonic() - started_s) / max(1, ended.value - number)
    time.sleep(chance.uniform(0.0, 1.2) * write_s)
    child.kill()
    child.join()
    if child.exitcode != -signal.SIGKILL:
        raise RuntimeError("the child could not write")
    return begun.value, ended.value


def _write_on(state: State, begun: Any, ended: Any) -> None:
    """Write until this process is killed."""
    while True:
        begun.value += 1
        state.write(begun.value)
        ended.value = begun.value


def _digest(bag: Path) -> str:
    digest = hashlib.sha256()
    with closing(open_recording(bag)) as recording:
        for message in recording.messages():
            digest.update(message.kind.encode() + message.data)
        if recording.losses:
            raise ValueError(f"'{bag}' is damaged: {recording.losses}")
    return digest.hexdigest()
