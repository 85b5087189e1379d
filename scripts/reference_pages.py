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
from collections import defaultdict
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

Row = tuple[str, str]
"""An argument and its meaning."""
Command = tuple[str, str, list[Row]]
"""Title, purpose and arguments of a command."""


def main() -> None:
    """Write every page anew and print the names of changed ones."""
    for page in sorted(PAGES.glob("*.md")):
        old = page.read_text()
        new = regenerate(old)
        if new != old:
            page.write_text(new)
            print(page.relative_to(ROOT))


def regenerate(text: str) -> str:
    """Return the page with every block written anew; raises KeyError for an unknown block."""
    return with_blocks(text, BLOCKS)


def with_blocks(text: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """Return the page with every block by its function in `blocks`; raises KeyError for an unknown one."""
    return _BLOCK.sub(lambda found: _block(found["name"], blocks[found["name"]]()), text)


_BLOCK = re.compile(r"<!-- begin (?P<name>\w+) -->\n.*?<!-- end (?P=name) -->", re.DOTALL)


def _block(name: str, text: str) -> str:
    return f"<!-- begin {name} -->\n{text.strip()}\n<!-- end {name} -->"


def parameters() -> str:
    """Return a row for each parameter, with the nodes that have it; those of several nodes come first."""
    nodes: dict[Param, list[str]] = {}
    for node, kind in NODES.items():
        for param in kind.params():
            nodes.setdefault(param, []).append(node)
    rows = []
    for param, names in sorted(nodes.items(), key=lambda item: len(item[1]) == 1):
        flags = [f"`{flag}`" for flag in (_flag(param), f"{param.argument}:=" if param.group else "") if flag]
        default = f"`{param.default_text}`" if param.default_text else '`""`'
        meaning = param.meaning + (" [live]" if param.live else "")
        rows.append((f"`{param.name}`", ", ".join(names), " ".join(flags), default, meaning))
    return table(("parameter", "nodes", "flag, launch argument", "default", "meaning"), rows)


def _flag(param: Param) -> str:
    """Return the command-line flag that sets a parameter; empty if there is none."""
    return f"--{param.argument.replace('_', '-')}" if param.group not in ("", "launch") else ""


def commands() -> str:
    """Return a table of the commands with their parameters, and one of the other arguments."""
    flags = {_flag(param) for kind in NODES.values() for param in kind.params()} - {""}
    groups = {name: list(_commands(child, text)) for name, child, text in _children(make_parser())}
    rows, arguments = [], defaultdict[Row, list[str]](list)
    for name in (name for name in groups if name not in LABORATORY):
        for title, purpose, own in groups[name]:
            rows.append(
                (f"`{title}`", purpose, " ".join(f"`{_name(row)}`" for row in own if _name(row) in flags))
            )
            for row in own:
                arguments[row].append(name)
    rows += [(f"`crossspec {name}`", _parts(name, groups[name]), "") for name in LABORATORY]
    others = [
        (row[0], ", ".join(names), row[1]) for row, names in arguments.items() if _name(row) not in flags
    ]
    heads = ("argument", "commands", "meaning")
    return f"{table(('command', 'purpose', 'parameters'), rows)}\n\n## Arguments\n\n{table(heads, others)}"


def _parts(name: str, commands: list[Command]) -> str:
    """Return the purpose of a group of commands, and the names of its commands."""
    names = [title.removeprefix(f"crossspec {name}").strip().split(" ")[0] for title, _, _ in commands]
    parts = ", ".join(f"`{part}`" for part in names if part.islower())
    return sentence(LABORATORY[name]) + (f" {parts}." if parts else "")


def _name(row: Row) -> str:
    """Return the argument's name."""
    return row[0].strip("`").split()[0]


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
    """Return a row for each launch argument that sets no parameter."""
    parameters = {param.argument for kind in NODES.values() for param in kind.params() if param.group}
    files = defaultdict[tuple[str, str, str], list[str]](list)
    for file in sorted((ROOT / "launch").glob("*.launch.py")):
        for name, (default, text) in arguments_of(file).items():
            if name not in parameters:
                files[f"`{name}`", _launch_default(default), text].append(file.name)
    rows = [(name, ", ".join(names), default, text) for (name, default, text), names in files.items()]
    return table(("argument", "launch file", "default", "meaning"), rows)


def _launch_default(default: str | None) -> str:
    if default is None:
        return "required"
    return f"`{default.removeprefix(f'{ROOT}/')}`" if default else ""


def arguments_of(file: Path) -> Mapping[str, tuple[str | None, str]]:
    """Return the arguments of a launch file with defaults and descriptions; launch may be missing."""
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
    """Return a table of the formats of recordings, their names or contents, and their purpose."""
    rows = []
    for format in _FORMATS:
        signs = [f"`{suffix}`" for suffix in format.suffixes]
        if format.contents:
            signs.append(f"a folder with `{'` or `'.join(format.contents)}`")
        module = ROOT / (format.opener.partition(":")[0].replace(".", "/") + ".py")
        purpose = ast.get_docstring(ast.parse(module.read_text())) or ""
        name = format.name.partition(" ")[2] or f"`{format.suffixes[0]}`"
        rows.append((name, ", ".join(signs), " ".join(purpose.split("\n\n")[0].split())))
    return table(("format", "recognised by", "contents"), rows)


def foreign_formats() -> str:
    """Remedies for files that are not read."""
    remedies = dict.fromkeys(_FOREIGN.values())
    rows = [
        (", ".join(f"`{suffix}`" for suffix, text in _FOREIGN.items() if text == remedy), remedy)
        for remedy in remedies
    ]
    return table(("file", "what to do"), rows)


def sentence(text: str) -> str:
    """Return the text as a sentence: a capital first, a full stop last."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; a bar within a cell is escaped."""
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
