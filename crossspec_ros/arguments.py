"""Arguments that several commands have: groups, types, and checks before the work."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from crossspec_ros.errors import InputError
from crossspec_ros.paths import found
from crossspec_ros.recordings.recording import FORMATS
from crossspec_ros.settings import UNITS

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def captioned(parser: argparse.ArgumentParser) -> None:
    """Add what is captioned and with what."""
    parser.add_argument("path", type=found, help=FORMATS)
    recorded(parser)
    parser.add_argument(
        "--models", type=found, help="folder of the target and draft checkpoints [models/tiny]"
    )
    named_models(parser)
    parser.add_argument("--dtype", help="float32, bf16, int8 or nf4, the numbers of both models [float32]")
    parser.add_argument("--engine", help="torch or llama.cpp, what runs the target's language model [torch]")
    parser.add_argument("--device", help="where the models run: auto, cpu, cuda or cuda:N [auto]")
    parser.add_argument("--draft-device", help="where the draft runs [where the target does]")
    parser.add_argument("--question", help="what is asked about every window")
    parser.add_argument("--schema", help="JSON schema that captions follow, a file or its text")
    parser.add_argument(
        "--questions",
        action="append",
        help="standing question about each caption's second, as in 'Is it dark? [yes, no]'; may be repeated",
    )
    parser.add_argument(
        "--when",
        help="windows that are captioned: always, changed (those that show something else than the one "
        "captioned last) or, in a replay, asked [always]",
    )
    parser.add_argument(
        "--rerun",
        nargs="?",
        const="viewer",
        metavar="FILE",
        help="show images, captions, stages and figures in Rerun's viewer, or write them to FILE for it, or "
        "send them to a viewer at rerun+http://HOST:9876/proxy",
    )
    parser.add_argument("--config", type=found, help="parameters of the nodes [config/replay.yaml]")


def recorded(parser: argparse.ArgumentParser) -> None:
    """Add what may have to be said of a recording (`recordings.options.ReadOptions`)."""
    parser.add_argument(
        "--images",
        type=Path,
        metavar="FOLDER",
        help="PNG or JPEG files to take as its images, with their times in a timestamps.txt there",
    )
    parser.add_argument("--events-topic", default="", metavar="TOPIC", help="events of a bag [see info]")
    parser.add_argument("--image-topic", default="", metavar="TOPIC", help="images of a bag [see info]")
    parser.add_argument(
        "--columns",
        default="",
        metavar="NAMES",
        help="names of a table's columns in file order, such as t,x,y,p [those of its header or layout]",
    )
    parser.add_argument(
        "--time-unit",
        default="",
        choices=UNITS,
        help="unit of the times in text, arrays and HDF5 [that of the header or layout]",
    )


def named_models(parser: argparse.ArgumentParser) -> None:
    """Add models that are elsewhere than the other."""
    parser.add_argument(
        "--target",
        help="folder, GGUF or hub id, ORG/NAME or ORG/NAME@REVISION, of the target alone [that in --models]",
    )
    parser.add_argument(
        "--draft", help="folder or hub id of the draft alone, or none for no draft [that in --models]"
    )


def checked(measure: Callable[..., object]) -> Callable[[argparse.Namespace], object]:
    """Refuse an output that cannot be written before the work, not after it."""

    def call(args: argparse.Namespace) -> object:
        named = [path.resolve() for name in _OUTPUTS if (path := getattr(args, name, None)) is not None]
        if len(set(named)) < len(named):
            raise InputError("two results cannot go into one file: name a file for each")
        for name in _OUTPUTS:
            path = getattr(args, name, None)
            if path is None:
                continue
            suffixes = {"plot": _PICTURES, "out": (*_PICTURES, ".gif")}.get(name)
            if suffixes and path.suffix not in suffixes:
                raise InputError(f"'{path}' is no picture's name: end it in one of {', '.join(suffixes)}")
            is_new = not path.exists()
            try:
                path.open("ab").close()
            except OSError as error:
                raise InputError(
                    f"'{path}' cannot be written ({error.strerror}): name a file in a folder that exists and "
                    f"can be written to"
                ) from None
            if is_new:
                # Of a link only what it leads to was made.
                path.resolve().unlink()
        return measure(args)

    return call


_OUTPUTS = ("json", "junit", "html", "plot", "out", "timeline")
_PICTURES = (".png", ".svg", ".pdf")


def at_least(least: int) -> Callable[[str], int]:
    """The type of an argument that is a whole number from `least` on."""

    def whole(text: str) -> int:
        if not text.lstrip("-").isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"'{text}' is no whole number from {least} on")
        return int(text)

    return whole


def seconds(text: str) -> float:
    """The type of an argument that is a time in seconds."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is no number of seconds above 0")
    return number


def lazily(function: str) -> Callable[..., object]:
    """A function named as `module:function`, imported when it is called."""

    def call(*args: object) -> object:
        module, _, name = function.partition(":")
        return getattr(importlib.import_module(module), name)(*args)

    return call
