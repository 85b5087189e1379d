"""Stream between a robot and the server of its target; the link opens it again whenever it breaks."""

from __future__ import annotations

import logging
import os
import queue
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

# gRPC's own log of a failed handshake has 37 lines, and the error contains the reason as well.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc

from crossspec_ros.errors import InputError, plain_text
from crossspec_ros.files import read_small
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.wire import MAX_SMALL, METHOD, VERSION
from crossspec_ros.wire import captions_pb2 as wire

_LOG = logging.getLogger(__name__)

MAX_UNSENT = 32
"""Messages that may wait for the link: the frames of four windows."""
MIN_WAIT_S, MAX_WAIT_S = 0.25, 10.0
"""Pause before the next stream; it doubles with each stream that fails."""
WELCOME_S = 10.0
"""Time in which a server must welcome the robot."""
_PERIOD_NS = 1_000_000_000
_OPTIONS = [
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.max_receive_message_length", MAX_SMALL),
    # gRPC's own back-off would hide the link's.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


@dataclass(frozen=True)
class Address:
    """Address `grpcs://HOST:PORT` (with TLS) or `grpc://HOST:PORT` of a server, and the robot that connects.

    The `token` is the robot's own. The file `ca` has the certificates to trust instead of the system's. The
    robot's windows end `phase_ns` after each full second.
    """

    url: str
    robot: str
    token: str = ""
    ca: str = ""
    phase_ns: int = 0

    def channel(self) -> grpc.Channel:
        """Return a channel that is not connected yet; InputError for a bad address or certificate file."""
        parts = urlsplit(self.url)
        try:
            is_address = bool(parts.hostname and parts.port) and not parts.path.strip("/")
        except ValueError:
            is_address = False
        if not is_address or parts.scheme not in ("grpc", "grpcs"):
            raise InputError(
                f"'{self.url}' is no address of a server: write grpcs://HOST:PORT, or grpc:// without TLS"
            )
        if parts.scheme == "grpc":
            return grpc.insecure_channel(parts.netloc, _OPTIONS)
        try:
            trusted = read_small(Path(self.ca)) if self.ca else None
        except OSError as error:
            raise InputError(
                f"the certificates '{self.ca}' cannot be read ({error}): name a PEM file"
            ) from None
        return grpc.secure_channel(parts.netloc, grpc.ssl_channel_credentials(trusted), _OPTIONS)


class Link:
    """One thread that keeps the stream open; any thread may call `send`, which never waits.

    The link's thread calls `on_message`, and `on_lost` with the reason once for each stream that had begun.
    `up` is set while there is a stream, and `trouble` is the reason why there is none. `epoch` counts the
    streams that have begun, `sent` and `received` bytes.
    """

    def __init__(
        self, address: Address, on_message: Callable[[wire.Down], None], on_lost: Callable[[str], None]
    ) -> None:
        self._address, self._on_message, self._on_lost = address, on_message, on_lost
        self._channel = address.channel()
        self._queue: queue.Queue[wire.Up | None] = queue.Queue(MAX_UNSENT)
        self._call: grpc.Call | None = None
        self._begun_s = 0.0
        self.up, self._ending = threading.Event(), threading.Event()
        self.welcome = wire.Welcome()
        self.epoch = self.sent = self.received = 0
        self.trouble = f"the target at {address.url} has not answered yet"
        self.pulse = Pulse("link")
        self._thread = self.pulse.start(self._keep, "link")

    def send(self, message: wire.Up) -> bool:
        """Queue a message; return False without a stream, or if too many messages wait."""
        with suppress(queue.Full):
            if self.up.is_set():
                self._queue.put_nowait(message)
                self.sent += message.ByteSize()
                return True
        return False

    def check(self) -> None:
        """Cancel a stream without a welcome, so that another one begins; for the thread that watches."""
        call = self._call
        if call is not None and self._is_late():
            call.cancel()

    def close(self) -> None:
        """End the stream and the thread."""
        self.pulse.end()
        self._ending.set()
        if (call := self._call) is not None:
            call.cancel()
        self._thread.join(5.0)
        self._channel.close()

    def _is_late(self) -> bool:
        return not self.up.is_set() and time.monotonic() > self._begun_s + WELCOME_S

    def _keep(self) -> None:
        wait_s = MIN_WAIT_S
        while not self._ending.is_set():
            before = self.epoch
            reason = self._stream()
            self.trouble = plain_text(f"the target at {self._address.url} {reason[:1000]}")
            self.up.clear()
            if self.epoch > before and not self._ending.is_set():
                _LOG.warning("%s; it is tried again", self.trouble)
                self._on_lost(self.trouble)
            wait_s = MIN_WAIT_S if self.epoch > before else min(2 * wait_s, MAX_WAIT_S)
            # Robots that lost the same server must not come back all at once.
            self._ending.wait(wait_s * random.uniform(0.5, 1.0))

    def _stream(self) -> str:
        """Keep one stream until it ends; return why it did."""
        mine, call = self._address, None
        hello = wire.Hello(version=VERSION, robot=mine.robot, period_ns=_PERIOD_NS, phase_ns=mine.phase_ns)
        outgoing: queue.Queue[wire.Up | None] = queue.Queue(MAX_UNSENT)
        outgoing.put(wire.Up(hello=hello))
        self._queue = outgoing
        self._begun_s = time.monotonic()
        # Ray Serve routes by the application.
        metadata = [("application", "crossspec"), ("authorization", f"Bearer {mine.token}")]
        begin = self._channel.stream_stream(METHOD, wire.Up.SerializeToString, wire.Down.FromString)
        try:
            self._call = call = begin(iter(outgoing.get, None), metadata=metadata)
            for message in call:
                self.pulse.beat()
                self.received += message.ByteSize()
                kind = message.WhichOneof("what")
                if kind == "welcome":
                    self._begin(message.welcome)
                elif kind == "refused" and not message.session:
                    return f"refuses this robot: {message.refused.sentence}"
                else:
                    with self.pulse.busy():
                        self._on_message(message)
            reason = "the server has ended the stream"
        except grpc.RpcError as error:
            late = f"it has not welcomed this robot within {WELCOME_S:g} s" if self._is_late() else ""
            reason = late or _reason(error)
        except Exception as error:  # the thread must live on
            reason = str(error) if isinstance(error, InputError) else repr(error)
        finally:
            self._call = None
            if call is not None:
                call.cancel()
            # If the queue is full, gRPC's thread does not wait for it.
            with suppress(queue.Full):
                outgoing.put_nowait(None)
        return f"cannot be reached: {reason}"

    def _begin(self, welcome: wire.Welcome) -> None:
        # The robot's windows have the sizes of the first welcome.
        before = self.welcome if self.epoch else welcome
        if (before.frames, before.image_size) != (welcome.frames, welcome.image_size):
            raise InputError("it serves another target than before: restart this node")
        self.welcome, self.trouble = welcome, ""
        self.epoch += 1
        self.up.set()
        _LOG.info("connected to the target at %s", self._address.url)


def _reason(error: grpc.RpcError) -> str:
    """Return gRPC's reason in one line."""
    if not isinstance(error, grpc.Call):
        return repr(error)
    details = " ".join((error.details() or "").split())[:300]
    if "CERTIFICATE_VERIFY_FAILED" in details:
        return "its certificate is not trusted: name the file of those to trust in link.ca_file"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return f"no connection ({details}): start one there with crossspec serve, or correct the address"
    return f"{error.code().name.lower()}: {details}"
