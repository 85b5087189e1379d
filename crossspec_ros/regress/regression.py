"""`crossspec regress`: compare a recording's captions with goldens."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from crossspec_ros.errors import InputError
from crossspec_ros.files import write_report
from crossspec_ros.recordings.bag import storage_files
from crossspec_ros.regress.bag_golden import read_bag
from crossspec_ros.regress.checks import Check, Difference, junit, verdict
from crossspec_ros.regress.golden import (
    Golden,
    Record,
    Setup,
    compare,
    compare_window,
    golden_folder,
    read_golden,
    record,
    write_golden,
)
from crossspec_ros.regress.page import Page

if TYPE_CHECKING:
    from crossspec_ros.captioning.code_replay import Captioned

WINDOWS = "windows.json"
"""File of the goldens in their folder."""
_OF_BAGS = ("command", "handler", "path", "golden", "junit", "html")
"""Arguments that apply to a comparison of two bags."""
Tick = Callable[[str], None]
"""Called with the name of the work in progress."""


def run(args: argparse.Namespace) -> int:
    """Compare with goldens, or write them with `args.update`. Return 1 for differences."""
    folder = args.golden or golden_folder(args.path)
    if not args.update and args.golden and not (storage_files(folder) or (folder / WINDOWS).is_file()):
        raise InputError(
            f"'{folder}' has no goldens and is no bag: check --golden, or write goldens with --update"
        )
    if _is_bag(folder, args.path):
        return _report(args, _bag_checks(args.path, folder, vars(args)), Page(), [])
    setup = Setup(args.path, args.config, vars(args))
    bar = Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with closing(setup), bar as progress:
        task = progress.add_task("", total=None)

        def tick(what: str) -> None:
            progress.update(task, description=what)

        return _update(setup, folder, args, tick) if args.update else _compare(setup, folder, args, tick)


def regress(
    bag: Path | str,
    golden: Path | str | None = None,
    models: Path | str | None = None,
    question: str | None = None,
    config: Path | str | None = None,
) -> list[Difference]:
    """Return the differences from the goldens in the folder `golden`, by default next to the bag.

    Two bags of captions are compared as they are. Raises InputError if the goldens are missing or belong to
    another replay.
    """
    folder = golden_folder(Path(bag)) if golden is None else Path(golden)
    flags = {"models": None if models is None else str(models), "question": question}
    if _is_bag(folder, Path(bag)):
        checks = _bag_checks(Path(bag), folder, flags | {"config": config})
    else:
        with closing(Setup(Path(bag), None if config is None else Path(config), flags)) as setup:
            checks = compared(setup, folder)
    return [difference for check in checks for difference in check.differences]


def compared(
    setup: Setup, folder: Path, page: Page | None = None, tick: Tick = lambda what: None
) -> list[Check]:
    """Replay in code, add the windows to `page`, and return the checks."""
    # Opens the recording, so that a missing one is reported before missing goldens.
    assert setup.recording
    golden = read_golden(folder / WINDOWS, setup)
    expected = {record.end_ns: record for record in golden.windows}

    def look(captioned: Captioned, new: Record) -> None:
        if page:
            name, old = golden.window_name(new.end_ns), expected.get(new.end_ns)
            page.add(name, captioned, old, passed=not compare_window(name, old, new).differences)

    return compare(golden, windows_in_code(setup, look, tick))


def windows_in_code(
    setup: Setup,
    look: Callable[[Captioned, Record], None] = lambda captioned, record: None,
    tick: Tick = lambda what: None,
) -> Golden:
    """Replay a recording in code. `look` gets each window and its record.

    Raises InputError for a damaged recording, or one without windows.
    """
    from crossspec_ros.captioning.code_replay import captions
    from crossspec_ros.captioning.load_decoder import load_decoder

    tick("loading the models")
    windows, counts = [], Counter[str]()

    def tick_s(seconds: float) -> None:
        tick(f"replaying in code, {seconds:.1f} s")

    for captioned in captions(setup, load_decoder, tick_s, counts):
        windows.append(record(captioned))
        look(captioned, windows[-1])
    if not windows:
        raise InputError(f"'{setup.path}' has no window to compare: use a recording with events or images")
    return Golden(windows, dict(counts), setup.origin_ns)


def _compare(setup: Setup, folder: Path, args: argparse.Namespace, tick: Tick) -> int:
    page = Page()
    checks = compared(setup, folder, page if args.html else None, tick)
    settings = ", ".join(f"{key} {value}" for key, value in setup.identity["settings"].items())
    identity = [f"{key}: {value}" for key, value in (setup.identity | {"settings": settings}).items()]
    return _report(args, checks, page, identity)


def _report(args: argparse.Namespace, checks: list[Check], page: Page, identity: list[str]) -> int:
    name = args.path.resolve().name
    if args.junit:
        write_report(args.junit, junit(name, checks).decode())
    if args.html:
        write_report(args.html, page.html(f"crossspec regress {name}", identity, checks))
    _print(checks)
    return int(any(check.differences for check in checks))


def _is_bag(golden: Path, path: Path) -> bool:
    """Test for a bag of captions. The goldens of the bag `path` may lie in its own folder."""
    return bool(storage_files(golden)) and golden.resolve() != path.resolve()


def _bag_checks(bag: Path, golden: Path, options: Mapping[str, Any]) -> list[Check]:
    """Compare two bags of captions; raises InputError for an option that applies to replays only."""
    for name, value in options.items():
        if name not in _OF_BAGS and value not in (None, False):
            flag = f"--{name.replace('_', '-')}"
            raise InputError(f"{flag} does not apply, because the golden '{golden}' is a bag: omit {flag}")
    return compare(read_bag(golden), read_bag(bag))


def _update(setup: Setup, folder: Path, args: argparse.Namespace, tick: Tick) -> int:
    if args.junit or args.html:
        raise InputError("--update does not compare: omit --junit and --html, or omit --update")
    golden = windows_in_code(setup, tick=tick)
    write_golden(folder / WINDOWS, setup, golden)
    print(f"{folder / WINDOWS}: {len(golden.windows)} windows")
    return 0


def _print(checks: Sequence[Check]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for check in checks:
        for difference in check.differences:
            line = Text(str(difference))
            # Without nested brackets, because the search would be quadratic in the length.
            line.highlight_regex(r"\[-[^\[\]]*-\]", "red")
            line.highlight_regex(r"\{\+[^{}]*\+\}", "green")
            console.print(line)
    colour = "red" if any(check.differences for check in checks) else "green"
    console.print(verdict(checks), style=f"bold {colour}")
