"""Write the generated blocks of docs/reference/ from the code: `python scripts/reference_pages.py`.

A page is text with blocks in it, `<!-- begin NAME -->` to `<!-- end NAME -->`. The text is written by hand.
Each block is what the function NAME of `BLOCKS` returns; test/test_reference.py fails where they differ.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import re
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from crossspec_ros.cli import LABORATORY, make_parser
from crossspec_ros.parameter import Param
from crossspec_ros.recordings.recording import _FOREIGN, _FORMATS
from crossspec_ros.settings import NODES

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "reference"
ARGUMENTS = ("argument", "meaning")

Row = tuple[str, str]
"""An argument and its meaning."""
Command = tuple[str, str, list[Row]]
"""Title, purpose and arguments of a command."""


def main() -> None:
    """Write every page anew and name those that have changed."""
    for page in sorted(PAGES.glob("*.md")):
        old = page.read_text()
        new = regenerate(old)
        if new != old:
            page.write_text(new)
            print(page.relative_to(ROOT))


def regenerate(text: str) -> str:
    """The page with every block as the code has it now; raises KeyError for a block that nothing writes."""
    return with_blocks(text, BLOCKS)


def with_blocks(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """The page with every block as its function in `blocks` returns it; raises KeyError as `regenerate`."""
    return _BLOCK.sub(lambda found: _block(found["name"], blocks[found["name"]]()), text)


_BLOCK = re.compile(r"<!-- begin (?P<name>\w+) -->\n.*?<!-- end (?P=name) -->", re.DOTALL)


def _block(name: str, text: str) -> str:
    return f"<!-- begin {name} -->\n{text.strip()}\n<!-- end {name} -->"


def parameters() -> str:
    """A table for each node."""
    sections = []
    for node, kind in NODES.items():
        rows = [
            (f"`{param.name}`", f"`{param.default_text}`" if param.default_text else '`""`', _meaning(param))
            for param in kind.params()
        ]
        sections.append(f"## {node}\n\n{table(('parameter', 'default', 'meaning'), rows)}")
    return "\n\n".join(sections)


def _meaning(param: Param) -> str:
    return param.meaning + (" [live]" if param.live else "")


def commands() -> str:
    """A section for each command of the robot, shared arguments once; then the laboratory's commands."""
    groups = {name: list(_commands(child, text)) for name, child, text in _children(make_parser())}
    robot = [command for name in groups if name not in LABORATORY for command in groups[name]]
    laboratory = [(f"`{title}`", purpose) for name in LABORATORY for title, purpose, _ in groups[name]]
    common = _shared(robot)
    sections = [_section(command, common) for command in robot]
    last = f"## The laboratory's commands\n\n{table(('command', 'purpose'), laboratory)}"
    return "\n\n".join([f"## Common arguments\n\n{table(ARGUMENTS, common)}", *sections, last])


def _section(command: Command, common: list[Row]) -> str:
    """A command, with the names of its common arguments and a table of the others."""
    title, purpose, arguments = command
    shared = [shown.strip("`").split()[0] for shown, text in arguments if (shown, text) in common]
    text = f"{purpose} Common: {', '.join(f'`{name}`' for name in shared)}." if shared else purpose
    rows = [row for row in arguments if row not in common]
    return f"## {title}\n\n{text}" + (f"\n\n{table(ARGUMENTS, rows)}" if rows else "")


def _shared(group: Iterable[Command]) -> list[Row]:
    """Arguments that three or more commands have with the same name and meaning."""
    counts = Counter(row for _, _, rows in group for row in rows)
    return [row for row, count in counts.items() if count >= 3]


def _commands(parser: argparse.ArgumentParser, help_text: str) -> Iterator[Command]:
    children = _children(parser)
    for _, child, text in children:
        yield from _commands(child, text)
    if not children:
        actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
        named = [_shown(action) for action in actions if not action.option_strings or action.required]
        purpose = sentence(help_text)
        more = sentence(parser.description or "").removeprefix(purpose).strip()
        rows = [(f"`{_shown(action)}`", action.help or "") for action in actions]
        yield " ".join([parser.prog, *named]), f"{purpose} {more}".rstrip(), rows


def _children(parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser, str]]:
    """Name, parser and help text of each subcommand."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    helps = {choice.dest: choice.help or "" for group in groups for choice in group._choices_actions}
    return [(name, child, helps.get(name, "")) for group in groups for name, child in group.choices.items()]


def _shown(action: argparse.Action) -> str:
    value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    assert isinstance(value, str)
    shapes = {"*": f"[{value} ...]", "+": f"{value} [{value} ...]", "?": f"[{value}]"}
    value = shapes.get(str(action.nargs), value)
    return " ".join([*action.option_strings[:1], value]).strip()


def launch_arguments() -> str:
    """A section for each launch file, and one for the arguments that both have."""
    files = {}
    for file in sorted((ROOT / "launch").glob("*.launch.py")):
        rows = arguments_of(file).items()
        files[file.name] = [(f"`{name}`", _launch_default(default), text) for name, (default, text) in rows]
    counts = Counter(row for rows in files.values() for row in rows)
    common = [row for row, count in counts.items() if count > 1]
    own = {name: [row for row in rows if row not in common] for name, rows in files.items()}
    sections = (own | {"Both launch files": common}).items()
    heads = ("argument", "default", "meaning")
    return "\n\n".join(f"## {name}\n\n{table(heads, rows)}" for name, rows in sections)


def _launch_default(default: str | None) -> str:
    if default is None:
        return "must be given"
    return f"`{default.removeprefix(f'{ROOT}/')}`" if default else ""


def arguments_of(file: Path) -> Mapping[str, tuple[str | None, str]]:
    """The arguments of a launch file with defaults and descriptions, also where launch is not installed."""
    with _without_launch():
        arguments: Mapping[str, tuple[str | None, str]] = runpy.run_path(str(file))["ARGUMENTS"]
    return arguments


class _Anything:
    """Stands for any class of ROS's launch."""

    def __init__(self, *args: object, **options: object) -> None:
        pass


class _LaunchModule(ModuleType):
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything


class _Launch(MetaPathFinder, Loader):
    """Finds modules of ROS's launch, which PyPI does not have, so that launch files can be read."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        is_launch = fullname.partition(".")[0] in ("launch", "launch_ros")
        return ModuleSpec(fullname, self, is_package=True) if is_launch else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LaunchModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def _without_launch() -> Iterator[None]:
    """Launch files can be read even where ROS's launch is not installed; nothing of that stays."""
    spec = importlib.util.find_spec("launch")
    # Of our own folder launch/ Python makes a package without an origin.
    if spec is not None and spec.origin is not None:
        yield
        return
    before, finder = set(sys.modules), _Launch()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            module = sys.modules[name]
            if isinstance(module, _LaunchModule) or _Anything in vars(module).values():
                del sys.modules[name]


def formats() -> str:
    """Formats of recordings: how each is recognised, and what its reader says of it."""
    rows = []
    for format in _FORMATS:
        signs = [f"`{suffix}`" for suffix in format.suffixes]
        if format.contents:
            signs.append(f"a folder with `{'` or `'.join(format.contents)}`")
        module = ROOT / (format.opener.partition(":")[0].replace(".", "/") + ".py")
        purpose = ast.get_docstring(ast.parse(module.read_text())) or ""
        name = format.name.partition(" ")[2] or f"`{format.suffixes[0]}`"
        rows.append((name, ", ".join(signs), " ".join(purpose.split("\n\n")[0].split())))
    return table(("format", "recognised by", "what is read"), rows)


def foreign_formats() -> str:
    """What to do with files that are not read."""
    remedies = dict.fromkeys(_FOREIGN.values())
    rows = [
        (", ".join(f"`{suffix}`" for suffix, text in _FOREIGN.items() if text == remedy), remedy)
        for remedy in remedies
    ]
    return table(("file", "what to do"), rows)


def sentence(text: str) -> str:
    """The text as a sentence: a capital first, a full stop last."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a bar within a cell is escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


BLOCKS = {
    function.__name__: function
    for function in (
        parameters,
        commands,
        launch_arguments,
        formats,
        foreign_formats,
    )
}

if __name__ == "__main__":
    main()
