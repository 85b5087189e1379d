"""The stream between a robot and the server of its target: it begins anew whenever it breaks."""

from __future__ import annotations

import logging
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

# Its log of a failed handshake has 37 lines; what it says is in the error as well.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc

from crossspec_ros.errors import InputError
from crossspec_ros.files import read_small
from crossspec_ros.plain_text import plain_text
from crossspec_ros.telemetry.process_memory import give_back
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.wire import METHOD, VERSION
from crossspec_ros.wire import captions_pb2 as wire
from crossspec_ros.wire.bounded import read_down

_LOG = logging.getLogger(__name__)

MOST_UNSENT = 16 << 20
"""Bytes that may wait for the link; frames beyond them are not sent, and their window is cut."""
_FIRST_WAIT_S = 0.25
"""Pause before a second stream; it doubles with each that fails."""
_LONGEST_WAIT_S = 10.0
_WELCOME_S = 180.0
"""Within which a stream must have begun: a tokenizer has up to 20 MB, and links are slow."""
_MOST_MESSAGE = 24 << 20
"""Bytes from the server; large tokenizers have 20 MB, and all else is far less (`wire.bounded`)."""
_MOST_REASON = 1000
"""Characters of why the link has ended, which logs and diagnostics repeat."""
_KEEP_ALIVE = [
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.max_receive_message_length", _MOST_MESSAGE),
    # Its own back-off would hide ours.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]
SCHEMES = ("grpc", "grpcs")
OnMessage = Callable[[wire.Down], None]
OnLost = Callable[[str], None]


@dataclass(frozen=True)
class Address:
    """Address of the server: `grpcs://HOST:PORT` with TLS, `grpc://HOST:PORT` without; `ca` is a file of
    certificates to trust in place of the system's; `token` the robot's own, whose windows of `period_ns` end
    `phase_ns` after the multiples of that."""

    url: str
    robot: str
    token: str = ""
    ca: str = ""
    application: str = "crossspec"
    period_ns: int = 1_000_000_000
    phase_ns: int = 0

    def channel(self) -> grpc.Channel:
        """Not connected yet; raises InputError for what is no address or no certificate."""
        scheme, netloc = split_url(self.url)
        if scheme == "grpc":
            return grpc.insecure_channel(netloc, _KEEP_ALIVE)
        trusted = None
        if self.ca:
            try:
                trusted = read_small(Path(self.ca))
            except OSError as error:
                raise InputError(
                    f"the certificates '{self.ca}' cannot be read ({error}): name a PEM file"
                ) from None
        return grpc.secure_channel(netloc, grpc.ssl_channel_credentials(trusted), _KEEP_ALIVE)

    def metadata(self) -> list[tuple[str, str]]:
        """Name that Ray Serve routes by, and the token."""
        token = [("authorization", f"Bearer {self.token}")] if self.token else []
        return [("application", self.application), *token]


def split_url(url: str) -> tuple[str, str]:
    """Scheme and HOST:PORT; raises InputError for what is no such address."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in SCHEMES or not parts.hostname or not port or parts.path.strip("/"):
        raise InputError(
            f"'{url}' is no address of a server: write grpcs://HOST:PORT, or grpc:// without TLS"
        )
    return parts.scheme, parts.netloc


class Link:
    """One thread that keeps the stream; `send` may be called from any thread and never waits.

    `on_message` and `on_lost` are called in the link's thread: the latter once for each stream that had
    begun, with the reason. `epoch` counts the streams that have begun.
    """

    def __init__(self, address: Address, on_message: OnMessage, on_lost: OnLost) -> None:
        self._address, self._on_message, self._on_lost = address, on_message, on_lost
        self._channel = address.channel()
        self._queue: queue.SimpleQueue[wire.Up | None] = queue.SimpleQueue()
        self._unsent = 0
        self._lock = threading.Lock()
        self._call: grpc.Call | None = None
        self._begun_s = 0.0
        self._ending = threading.Event()
        self._changed = threading.Condition()
        self.welcome: wire.Welcome | None = None
        """Welcome of the first stream, with the phase of the latest."""
        self.is_up = False
        self.epoch = 0
        self.trouble = f"the target at {address.url} has not answered yet"
        """Why there is no stream, in a sentence; empty while there is one."""
        self.is_refused = False
        """Whether it was the server that said so."""
        self.sent = self.received = 0
        """Bytes."""
        self.pulse = Pulse("link")
        self._thread = self.pulse.start(self._keep, "link")

    def send(self, message: wire.Up) -> bool:
        """Whether it will be sent: not without a stream, nor where too much waits."""
        size = message.ByteSize()
        with self._lock:
            if not self.is_up or self._unsent + size > MOST_UNSENT:
                return False
            self._unsent += size
            self.sent += size
            self._queue.put(message)
        return True

    def wait(self, timeout_s: float) -> bool:
        """Whether there is a stream, or comes one within this time."""
        with self._changed:
            return (
                self._changed.wait_for(lambda: self.is_up or self._ending.is_set(), timeout_s) and self.is_up
            )

    def give_up(self) -> None:
        """End a stream without a welcome, so that another one begins: a server may take one and never answer;
        for the thread that watches."""
        call = self._call
        if call is not None and self._is_late:
            call.cancel()

    def close(self) -> None:
        """End the stream and the thread."""
        self.pulse.end()
        self._ending.set()
        call = self._call
        if call is not None:
            call.cancel()
        self._thread.join(5.0)
        self._channel.close()

    @property
    def _is_late(self) -> bool:
        return not self.is_up and time.monotonic() > self._begun_s + _WELCOME_S

    def _keep(self) -> None:
        wait_s = _FIRST_WAIT_S
        while not self._ending.is_set():
            began = self.epoch
            self._stream()
            # Each welcome may leave its megabytes free in the heap of another thread.
            give_back()
            wait_s = _FIRST_WAIT_S if self.epoch > began else min(2 * wait_s, _LONGEST_WAIT_S)
            # Robots that lost the same server must not come back all at once.
            self._ending.wait(wait_s * random.uniform(0.5, 1.0))

    def _stream(self) -> None:
        outgoing: queue.SimpleQueue[wire.Up | None] = queue.SimpleQueue()
        mine = self._address
        hello = wire.Hello(
            version=VERSION, robot=mine.robot, period_ns=mine.period_ns, phase_ns=mine.phase_ns
        )
        outgoing.put(wire.Up(hello=hello))
        with self._lock:
            self._queue, self._unsent = outgoing, 0
        self._begun_s = time.monotonic()
        reason, is_refused, call = "the server has ended the stream", False, None
        # As they came: gRPC would end the stream without a word about what cannot be read.
        stream = self._channel.stream_stream(METHOD, request_serializer=wire.Up.SerializeToString)
        try:
            self._call = call = stream(self._outgoing(outgoing), metadata=self._address.metadata())
            for message in map(read_down, call):
                self.pulse.beat()
                self.received += message.ByteSize()
                kind = message.WhichOneof("what")
                if kind == "welcome" and not self.is_up:
                    if self.welcome is None:
                        self.welcome = message.welcome
                    elif not _is_same(message.welcome, self.welcome):
                        reason = "it serves another target than before: restart this node"
                        break
                    self._began()
                elif kind == "refused" and not message.session:
                    reason, is_refused = message.refused.sentence[:_MOST_REASON], True
                elif self.is_up:
                    with self.pulse.busy():
                        self._on_message(message)
        except grpc.RpcError as error:
            late = f"it has not welcomed this robot within {_WELCOME_S:g} s" if self._is_late else ""
            reason = late or _reason(error) or reason
        except InputError as error:
            reason = str(error)
        except Exception as error:  # a link that dies would be up never again
            reason = f"{type(error).__name__}: {error}"[:_MOST_REASON]
        finally:
            if call is not None:
                call.cancel()
            outgoing.put(None)
            self._call = None
            self._ended(reason, is_refused)

    def _outgoing(self, messages: queue.SimpleQueue[wire.Up | None]) -> Iterator[wire.Up]:
        while (message := messages.get()) is not None:
            with self._lock:
                self._unsent = max(0, self._unsent - message.ByteSize())
            yield message

    def _began(self) -> None:
        with self._changed:
            self.trouble = ""
            self.epoch += 1
            self.is_up = True
            self._changed.notify_all()
        _LOG.info("connected to the target at %s", self._address.url)

    def _ended(self, reason: str, is_refused: bool) -> None:
        was_up = self.is_up
        with self._changed:
            self.is_up = False
            self.is_refused = is_refused
            what = "refuses this robot" if is_refused else "cannot be reached"
            self.trouble = plain_text(f"the target at {self._address.url} {what}: {reason}")
            self._changed.notify_all()
        if self._ending.is_set():
            return
        if was_up:
            _LOG.warning("%s; it is tried again", self.trouble)
            self._on_lost(self.trouble)


def _is_same(latest: wire.Welcome, first: wire.Welcome) -> bool:
    """Whether both are of the same target: what a robot knows of it was in the first.

    What changes from stream to stream is told as the latest has it.
    """
    first.phase_ns, first.remembered = latest.phase_ns, latest.remembered
    # Field by field, each tokenizer would become a text of up to four times its bytes.
    return latest == first


def _reason(error: grpc.RpcError) -> str:
    """gRPC's own words, in one line."""
    if not isinstance(error, grpc.Call):
        return ""
    details = " ".join((error.details() or "").split())[:300]
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return "its certificate is not trusted: name the file of those to trust in link.ca_file"
    return {
        grpc.StatusCode.UNAUTHENTICATED: f"it does not know this robot's token ({details})",
        grpc.StatusCode.UNAVAILABLE: f"no connection ({details})",
        grpc.StatusCode.NOT_FOUND: f"it serves no such application ({details})",
    }.get(error.code(), f"{error.code().name.lower()}: {details}")
