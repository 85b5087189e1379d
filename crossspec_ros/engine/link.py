"""gRPC stream between a robot and its target's server, with reconnection."""

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

# gRPC logs 37 lines for a failed handshake, and its error contains the reason too.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc

from crossspec_ros.errors import InputError, plain_text
from crossspec_ros.files import read_small
from crossspec_ros.telemetry.pulse import Pulse
from crossspec_ros.wire import MAX_SMALL, METHOD, VERSION
from crossspec_ros.wire import captions_pb2 as wire

_LOG = logging.getLogger(__name__)

MAX_UNSENT = 32
"""Longest queue of messages: the frames of four windows."""
MIN_WAIT_S, MAX_WAIT_S = 0.25, 10.0
"""Pause before the next connection; it doubles after each failure."""
WELCOME_S = 10.0
"""Longest wait for the server's welcome."""
_PERIOD_NS = 1_000_000_000
_OPTIONS = [
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.max_receive_message_length", MAX_SMALL),
    # gRPC's longer back-off would hide the link's.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


@dataclass(frozen=True)
class Address:
    """Address of a server, `grpcs://HOST:PORT` (with TLS) or `grpc://HOST:PORT`, and the robot's identity.

    The `token` authenticates the robot. The file `ca` contains the trusted certificates, if not the system's.
    The robot's windows end `phase_ns` after each full second.
    """

    url: str
    robot: str
    token: str = ""
    ca: str = ""
    phase_ns: int = 0

    def channel(self) -> grpc.Channel:
        """Return an unconnected channel; raises InputError for an invalid address or certificate file."""
        parts = urlsplit(self.url)
        try:
            is_address = bool(parts.hostname and parts.port) and not parts.path.strip("/")
        except ValueError:
            is_address = False
        if not is_address or parts.scheme not in ("grpc", "grpcs"):
            raise InputError(
                f"'{self.url}' is not a server address: use grpcs://HOST:PORT, or grpc:// without TLS"
            )
        if parts.scheme == "grpc":
            return grpc.insecure_channel(parts.netloc, _OPTIONS)
        try:
            trusted = read_small(Path(self.ca)) if self.ca else None
        except OSError as error:
            raise InputError(
                f"the certificates '{self.ca}' cannot be read ({error}): set link.ca_file to a PEM file"
            ) from None
        return grpc.secure_channel(parts.netloc, grpc.ssl_channel_credentials(trusted), _OPTIONS)


class Link:
    """Keeps the stream open in a thread. Any thread may call `send`, which never blocks.

    The thread calls `on_message` for each message, and `on_lost` with the reason after a stream breaks.
    `up` is set while the stream is open. Otherwise `trouble` contains the reason. `epoch` counts opened
    streams; `sent` and `received` count bytes.
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
        """Queue a message; return False if no stream is open or the queue is full."""
        with suppress(queue.Full):
            if self.up.is_set():
                self._queue.put_nowait(message)
                self.sent += message.ByteSize()
                return True
        return False

    def check(self) -> None:
        """Cancel a stream whose welcome is overdue, so that the link reconnects; the watchdog calls this."""
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
                _LOG.warning("%s; reconnecting", self.trouble)
                self._on_lost(self.trouble)
            wait_s = MIN_WAIT_S if self.epoch > before else min(2 * wait_s, MAX_WAIT_S)
            # Robots that lost the same server must not reconnect at the same time.
            self._ending.wait(wait_s * random.uniform(0.5, 1.0))

    def _stream(self) -> str:
        """Run one stream until it ends, and return the reason."""
        mine, call = self._address, None
        hello = wire.Hello(version=VERSION, robot=mine.robot, period_ns=_PERIOD_NS, phase_ns=mine.phase_ns)
        outgoing: queue.Queue[wire.Up | None] = queue.Queue(MAX_UNSENT)
        outgoing.put(wire.Up(hello=hello))
        self._queue = outgoing
        self._begun_s = time.monotonic()
        # Ray Serve routes requests by this key.
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
            reason = "the server ended the stream"
        except grpc.RpcError as error:
            late = f"it has not welcomed this robot within {WELCOME_S:g} s" if self._is_late() else ""
            reason = late or _reason(error)
        except Exception as error:  # the thread must survive
            reason = str(error) if isinstance(error, InputError) else repr(error)
        finally:
            self._call = None
            if call is not None:
                call.cancel()
            # gRPC's thread does not wait for an item of a full queue.
            with suppress(queue.Full):
                outgoing.put_nowait(None)
        return f"cannot be reached: {reason}"

    def _begin(self, welcome: wire.Welcome) -> None:
        # The sizes of the robot's windows come from the first welcome and cannot change.
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
        return "its certificate is not trusted: set link.ca_file to the trusted certificates"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return f"no connection ({details}): start crossspec serve there, or correct the address"
    return f"{error.code().name.lower()}: {details}"
