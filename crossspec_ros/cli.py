"""The command `crossspec`. Subcommands import their modules only when they run, so that `--help` is fast."""

from __future__ import annotations

import argparse
import errno
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NoReturn

from crossspec_ros.errors import InputError, one_line, plain_text
from crossspec_ros.parameter import Param
from crossspec_ros.paths import found, share_dir
from crossspec_ros.recordings.recording import FORMATS
from crossspec_ros.settings import NODES, ServeSettings

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


class _Parser(argparse.ArgumentParser):
    """Parser that requires the full names of options: --mode must not mean --models."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown arguments with the name of the subcommand."""
        parsed, unknown = super().parse_known_args(args, namespace)
        is_flag = any(name.startswith("-") for name in unknown)
        # A shell expands a pattern to all matching files. The value of a misspelt flag may exist, too.
        if not is_flag and (more := [name for name in unknown if Path(name).exists()]):
            self.error(
                f"'{more[0]}' is a second recording: run the command once per recording, or merge bags with "
                f"`ros2 bag convert -i A -i B -o OPTIONS.yaml`"
            )
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Exit with one sentence, because the usage of some commands fills a screen."""
        self.exit(2, f"{self.prog}: error: {message}; {self.prog} --help lists the arguments\n")


LABORATORY = {
    "bench": "measure",
    "fuzz": "publish invalid messages, read damaged files",
    "synth": "write a drive through the synthetic world",
    "train": "train models",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code, 2 for bad input or too little memory."""
    try:
        args = make_parser().parse_args(arguments)
        return int(args.handler(args) or 0)
    except KeyboardInterrupt:
        return 130
    except (InputError, MemoryError, OSError) as error:
        if not (sentence := _sentence(error)):
            raise
        print(f"crossspec: error: {plain_text(sentence)}", file=sys.stderr)
        return 2


def _sentence(error: Exception) -> str:
    """Return the sentence about an error that has one, or an empty text."""
    if isinstance(error, MemoryError):
        return f"memory ran out ({one_line(error)}): end other programs, or choose smaller models or dtypes"
    if not isinstance(error, OSError):
        return str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full: free some space, and run the command again"
    if error.filename is None:
        return ""
    return (
        f"'{error.filename}' cannot be used ({error.strerror}): check that it exists, and that you have "
        f"permission"
    )


def make_parser() -> argparse.ArgumentParser:
    """Return the command line's parser, which sets `handler` to the function that runs the command."""
    parser: argparse.ArgumentParser = _Parser(
        prog="crossspec",
        description="Captions from event and RGB cameras over ROS 2, with every latency visible.",
    )
    version = re.search("<version>(.+)</version>", (share_dir() / "package.xml").read_text())
    assert version is not None
    parser.add_argument("--version", action="version", version=f"crossspec {version[1]}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _robot(subparsers)
    _laboratory(subparsers)
    return parser


def add_flags(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add a flag for each setting of these groups, or of these names.

    An omitted flag is None, and its setting keeps the value of the configuration.
    """
    params = {param.argument: param for kind in NODES.values() for param in kind.params() if param.group}
    for argument, param in params.items():
        if argument in names or param.group in names:
            _add_flag(parser, param)


def _add_flag(parser: argparse.ArgumentParser, param: Param) -> None:
    options: dict[str, Any] = {"type": type(param.default)}
    if isinstance(param.default, bool):
        options = {"action": argparse.BooleanOptionalAction}
    elif isinstance(param.default, tuple):
        options = {"action": "append"}
    default = f" Default: {param.default_text}." if param.default not in ("", ()) else ""
    flag = f"--{param.argument.replace('_', '-')}"
    parser.add_argument(flag, **options, default=None, help=f"{param.meaning}{default}")


def _laboratory(subparsers: Subparsers) -> None:
    """Add the laboratory's commands. If it is not installed, each of them prints how to install it."""
    with suppress(InputError):
        _load_laboratory("the laboratory")(subparsers)
        return
    for name, purpose in LABORATORY.items():
        parser = subparsers.add_parser(name, help=f"{purpose} (in the laboratory, not installed)")
        parser.add_argument("arguments", nargs=argparse.REMAINDER)
        parser.set_defaults(handler=lambda args: _load_laboratory(f"crossspec {args.command}"))


def _load_laboratory(feature: str) -> Any:
    """Return the function that adds the laboratory's commands, an entry point of its package.

    Raises InputError, which names the `feature`, if the laboratory is not installed.
    """
    for point in entry_points(group="crossspec_ros", name="commands"):
        try:
            return point.load()
        except ModuleNotFoundError as error:
            raise InputError(
                f"{feature} cannot be loaded ({error}): install the laboratory again, with "
                f"`pip install ./lab` in the repository of crossspec_ros"
            ) from error
    raise InputError(
        f"{feature} is in the laboratory, which is not installed: run `pip install ./lab` in the repository "
        f"of crossspec_ros"
    )


def _robot(subparsers: Subparsers) -> None:
    """Add the commands of this package."""

    def add(
        name: str, handler: str, description: str, *groups: str, path: str = "path"
    ) -> argparse.ArgumentParser:
        first = description.partition(". ")[0]
        parser = subparsers.add_parser(name, help=first[0].lower() + first[1:], description=description)
        if path:
            parser.add_argument(path, type=found, help=FORMATS)
        add_flags(parser, *groups)
        if "captions" in groups:
            config = "YAML file of the nodes' parameters. Default: config/replay.yaml."
            parser.add_argument("--config", type=found, help=config)
        parser.set_defaults(handler=checked(lazily(f"crossspec_ros.{handler}:run")))
        return parser

    captions = "recording", "models", "captions"
    replay = add(
        "replay",
        "ros.replay",
        "Caption a recording through the ROS 2 nodes. A player publishes it, and each second gets a caption.",
        *captions,
        "replay",
    )
    isolated = "Use this host only, and a ROS domain that no other run uses."
    replay.add_argument("--isolated", action="store_true", help=isolated)
    caption = add(
        "caption",
        "captioning.caption_command",
        "Caption a recording without ROS, as fast as possible. The captions equal those of replay.",
        *captions,
    )
    bag = "Folder of a new bag with the captions, on the node's topics and the recording's clock."
    caption.add_argument("--write-bag", type=Path, metavar="OUT", help=bag)
    inputs = "Write the recording's events and images to OUT as well. Default: the captions only."
    caption.add_argument("--with-inputs", action="store_true", help=inputs)
    doctor = add(
        "doctor",
        "captioning.doctor",
        "Show which dtype of the models fits on this machine. The report has the machine, the memory that "
        "each dtype and device needs, and faults of the models. For models on the hub, it downloads the "
        "configs only, and shows download size and licence.",
        "models",
        path="",
    )
    regress = add(
        "regress",
        "regress.regression",
        "Compare a recording's captions with goldens. The recording is replayed without ROS, and captions, "
        "stamps, windows and counts are compared. The exit code is 1 for any difference. If the golden is a "
        "bag of `caption --write-bag`, PATH is such a bag, too, and nothing is replayed.",
        *captions,
    )
    golden = "Folder of the goldens, or a bag of captions. Default: PATH.golden."
    regress.add_argument("--golden", type=Path, help=golden)
    regress.add_argument("--update", action="store_true", help="Write the goldens.")
    regress.add_argument("--junit", type=Path, help="Output file of the result as JUnit XML.")
    regress.add_argument("--html", type=Path, help="Output file of the result as a page with images.")
    info = add(
        "info",
        "recordings.info",
        "Show the contents and faults of a recording. The report has length, windows, rates, topics, "
        "encodings, gaps, damage, and a fingerprint of the events.",
        "recording",
    )
    info.add_argument("--verbose", action="store_true", help="Show zeros and raw times as well.")
    for parser in (caption, doctor, info):
        parser.add_argument("--json", type=Path, help="Output file of the results as JSON.")
    text = "Convert a recording to a rosbag2 (mcap). Ctrl-C leaves no bag."
    convert = add("convert", "recordings.convert", text, "recording", path="source")
    convert.add_argument("destination", type=Path, help="Folder of the new bag.")
    serve = add(
        "serve",
        "serving.serve_command",
        "Serve the target to captioners on other machines. A single target verifies the captions of many "
        "robots, whose parameter target is grpc://HOST:PORT of this machine. Needs Ray Serve, which the "
        "extra [serve] installs.",
        path="",
    )
    for param in ServeSettings.params():
        _add_flag(serve, param)
    port = "Port to listen at, on all addresses. TLS uses the next port as well. Default: 9000."
    serve.add_argument("--port", type=int, default=9000, help=port)
    serve.add_argument("--tls-cert", type=Path, metavar="PEM", help="Certificate file, for TLS (grpcs).")
    serve.add_argument("--tls-key", type=Path, metavar="PEM", help="Key file of the certificate.")
    serve.add_argument("--verbose", action="store_true", help="Show the logs of Ray Serve and the replica.")


def checked(measure: Callable[..., object]) -> Callable[[argparse.Namespace], object]:
    """Return a handler that checks that its output files can be written before it calls `measure`."""

    def call(args: argparse.Namespace) -> object:
        outputs = {name: path for name in _OUTPUTS if (path := getattr(args, name, None)) is not None}
        if len({path.resolve() for path in outputs.values()}) < len(outputs):
            raise InputError("two outputs have the same file: name a file for each")
        for name, path in outputs.items():
            suffixes = _PICTURES.get(name, ())
            if suffixes and path.suffix not in suffixes:
                raise InputError(f"'{path}' is not the name of a picture: end it in {', '.join(suffixes)}")
            is_new = not path.exists()
            try:
                path.open("ab").close()
            except OSError as error:
                raise InputError(
                    f"'{path}' cannot be written ({error.strerror}): name a file in an existing folder that "
                    f"you may write to"
                ) from None
            if is_new:
                # A link existed before; only its target was created.
                path.resolve().unlink()
        return measure(args)

    return call


_OUTPUTS = ("json", "junit", "html", "plot", "out", "timeline")
_PICTURES = {"plot": (".png", ".svg", ".pdf"), "out": (".png", ".svg", ".pdf", ".gif")}


def lazily(function: str) -> Callable[..., object]:
    """Return a function that imports `module:function` when it is called."""
    return lambda *args: resolve_name(function)(*args)


if __name__ == "__main__":
    sys.exit(main())
