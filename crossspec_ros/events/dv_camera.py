"""Sources of a camera node: dv streams that come and go, and recordings as fast as they were made."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from crossspec_ros.errors import InputError
from crossspec_ros.events.cdr import RecordedMessage
from crossspec_ros.events.dv import dv_message
from crossspec_ros.events.dv_settings import Settings
from crossspec_ros.events.dv_stream import (
    UnreachableError,
    Unusable,
    connect,
    name_of,
    parse_address,
    read,
    warm_up,
)
from crossspec_ros.events.packets import PacketCutter
from crossspec_ros.events.sandbox import LIVE, Sandbox, SandboxedRecording, SandboxError, checked
from crossspec_ros.events.sandbox_child import Sent, renew_time
from crossspec_ros.events.sandbox_frames import Word
from crossspec_ros.events.stamps import Break, parts

if TYPE_CHECKING:
    import dv_processing as dv

RETRY_S, LONGEST_RETRY_S = 0.5, 10.0
_LONGEST_PAUSE_S = 1.0
"""Between two connections, even if the first brought nothing."""
SILENCE_S = 5.0
"""A network stream that was heard before and says nothing for longer is connected anew: its cable may have
been pulled, of which nobody tells."""

SOURCES = "camera, camera:SERIAL_NUMBER, tcp://HOST:PORT or a FILE.aedat4"


class Link(NamedTuple):
    """Word of a source: it is connected, or why it is not."""

    is_up: bool
    why: str = ""

    def word(self) -> Word:
        """This as a child sends it."""
        return {"is_up": self.is_up, "why": self.why}

    @classmethod
    def of(cls, word: Word) -> Link | None:
        """Link that a child has sent, None where it is something else."""
        return cls(checked(word, "is_up", (bool,)), checked(word, "why", (str,))) if "is_up" in word else None


Item = RecordedMessage | Unusable | Link | None


class Source(Protocol):
    """Source of messages; its text is the name that a user gave."""

    is_live: bool
    kinds: tuple[str, ...]
    """Kinds of its messages, of "events" and "image"."""

    def items(self, stop: threading.Event) -> Iterator[Item]:
        """Messages and word of the connection until `stop` is set or a recording ends; None at times.

        Raises InputError when there is nothing to wait for.
        """


def open_sources(source: str, frames: str, roi: str, biases: str) -> list[Source]:
    """The sources that the parameters of a camera node name; `frames`, `roi` and `biases` may be empty.

    Raises InputError where a text is none of `SOURCES`, or an option does not fit it.
    """
    Settings.parse(roi, biases)
    attached = source == "camera" or source.startswith("camera:")
    if not attached and (roi or biases):
        raise InputError(
            f"roi and biases do not fit the source '{source}': leave them empty, and set them where the "
            f"camera is attached"
        )
    if frames and not source.startswith("tcp://"):
        raise InputError(
            f"frames is '{frames}', which does not fit the source '{source}': leave it empty, only a network "
            f"stream has its frames at another address"
        )
    if attached:
        return [_Live("camera", [source.partition(":")[2], roi, biases], ("events", "image"))]
    if source.startswith("tcp://"):
        streams: list[Source] = [_Live("stream", [*parse_address(source), "events"], ("events",))]
        if frames:
            streams.append(_Live("stream", [*parse_address(frames), "frames"], ("image",)))
        return streams
    if source.endswith(".aedat4"):
        if not Path(source).exists():
            raise InputError(f"the recording '{source}' does not exist: give {SOURCES}")
        return [_File(Path(source))]
    raise InputError(f"source is '{source}', which is nothing to read from: give {SOURCES}")


class _Opener(Protocol):
    """Address that the reading child connects to."""

    def read(self, cutter: PacketCutter) -> Iterator[RecordedMessage | Unusable | None]:
        """Connect before the first item; raises InputError where that fails, anything later."""


class _Live:
    """Read in a child, which is started again when it hangs or crashes."""

    is_live = True

    def __init__(self, kind: str, arguments: list[Any], kinds: tuple[str, ...]) -> None:
        """`kind` and `arguments` say which of `_OPENERS` is made."""
        self._opener = [kind, *arguments]
        self._name = str(_OPENERS[kind](*arguments))
        self.kinds = kinds

    def __str__(self) -> str:
        return self._name

    def items(self, stop: threading.Event) -> Generator[Item]:
        was_up, wait_s = False, RETRY_S
        while not stop.is_set():
            try:
                for item in self._connected(was_up, stop):
                    was_up |= isinstance(item, Link) and item.is_up
                    if isinstance(item, RecordedMessage):
                        wait_s = RETRY_S
                    yield item
            except SandboxError as error:
                yield Link(False, f"its reader {error}")
                # Each time costs a process, which a server that ends it must not have for nothing.
                stop.wait(wait_s)
                wait_s = min(2 * wait_s, LONGEST_RETRY_S)

    def _connected(self, was_up: bool, stop: threading.Event) -> Iterator[Item]:
        with closing(
            Sandbox("crossspec_ros.events.dv_camera:follow", [was_up, *self._opener], LIVE)
        ) as child:
            for item in child.items(stop):
                yield item if isinstance(item, RecordedMessage) else Link.of(item) or Unusable.of(item)


class _File:
    """Played as fast as it was recorded, without its gaps."""

    is_live = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._recording = SandboxedRecording(path, "crossspec_ros.events.dv:open_aedat", [str(path)])
        self.kinds: tuple[str, ...] = ("events", "image") if self._recording.image_topic else ("events",)

    def __str__(self) -> str:
        return str(self._path)

    def items(self, stop: threading.Event) -> Generator[Item]:
        shift_s: float | None = None
        yield Link(True)
        for message in parts(self._recording.messages(), self._recording.end_ns):
            if isinstance(message, Break):
                shift_s = None
                continue
            if not message.stray:
                now_s, stamp_s = time.monotonic(), message.stamp_ns / 1e9
                shift_s = now_s - stamp_s if shift_s is None else shift_s
                if stop.wait(max(0.0, stamp_s + shift_s - now_s)):
                    return
            yield message


@dataclass(frozen=True)
class _Stream:
    host: str
    port: int
    what: str

    def __str__(self) -> str:
        return name_of((self.host, self.port))

    def read(self, cutter: PacketCutter) -> Iterator[RecordedMessage | Unusable | None]:
        reader = connect((self.host, self.port), self.what)
        yield None
        is_events = self.what == "events"
        yield from read(reader if is_events else None, None if is_events else reader, cutter, SILENCE_S)


@dataclass(frozen=True)
class _Camera:
    serial: str
    roi: str
    biases: str

    def __str__(self) -> str:
        return f"camera {self.serial}" if self.serial else "the camera"

    def read(self, cutter: PacketCutter) -> Iterator[RecordedMessage | Unusable | None]:
        camera = self._open()
        Settings.parse(self.roi, self.biases).apply(camera)
        yield None
        yield from read(camera, camera if camera.isFrameStreamAvailable() else None, cutter)

    def _open(self) -> dv.io.camera.CameraInputBase:
        import dv_processing as dv

        try:
            return dv.io.camera.open(self.serial) if self.serial else dv.io.camera.open()
        # IndexError where none is attached.
        except (IndexError, OSError, RuntimeError) as error:
            found = [descriptor.serialNumber for descriptor in dv.io.camera.discover()]
            raise InputError(
                f"no iniVation camera{f' {self.serial}' if self.serial else ''} can be opened (attached: "
                f"{', '.join(found) or 'none'}; {dv_message(error)}): plug it in, end other programs that "
                f"have it, and install iniVation's udev rules"
            ) from error


_OPENERS: dict[str, Callable[..., _Opener]] = {"camera": _Camera, "stream": _Stream}


def follow(was_up: bool, kind: str, *arguments: Any) -> Iterator[Sent]:
    """Messages and word of a source, sent by a child to `_Live.items`."""
    for item in _follow(_OPENERS[kind](*arguments), was_up):
        renew_time()
        yield {} if item is None else item if isinstance(item, RecordedMessage) else item.word()


def _follow(opener: _Opener, was_up: bool) -> Iterator[Item]:
    """Connect again and again; what fails before the first time and will not pass by waiting is raised."""
    yield None
    warm_up()
    cutter = PacketCutter(opener)
    pause_s = RETRY_S
    while True:
        is_up = False
        try:
            for item in opener.read(cutter):
                if not is_up:
                    is_up = was_up = True
                    yield Link(True)
                if isinstance(item, RecordedMessage):
                    pause_s = RETRY_S
                yield item
            why = "it has gone"
        # Only a new process gives memory back.
        except MemoryError:
            raise
        except Exception as error:
            stays = isinstance(error, (InputError, ImportError)) and not isinstance(error, UnreachableError)
            if stays and not was_up:
                raise
            why = str(error) if isinstance(error, InputError) else dv_message(error)
        yield Link(False, why)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
