"""A served target and robots that come and go, each a thread whose captions are compared with the target's.

The robots' streams go through a proxy whose connections can be cut.
"""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil

from crossspec_lab.compare.held_out import WINDOWS_PER_DRIVE, held_out_windows
from crossspec_lab.world.phrases import QUESTION
from crossspec_ros.captioning.assembly import autoregressive_decoder
from crossspec_ros.captioning.decoder import PrefillHiddenDecoder
from crossspec_ros.drafting.policy import Policy
from crossspec_ros.drafting.proposers.event_draft import EventDraftProposer
from crossspec_ros.engine.link import Address
from crossspec_ros.engine.remote import RemoteEngine
from crossspec_ros.engine.remote_target import RemoteTarget
from crossspec_ros.errors import InputError, LinkError
from crossspec_ros.models.pair import ModelPair
from crossspec_ros.serving.serve_command import free_port
from crossspec_ros.telemetry.trace import Trace
from crossspec_ros.windows.window import Window

CUT_S, PATIENCE_S = 10.0, 10.0
STRANGERS = 3
"""Names that the robots of the faults have, beside those that caption on, and room for them."""
RIGHT, WRONG, FAILED = "right", "wrong", "failed"
Case = tuple[Window, tuple[int, ...]]
_CONNECT_S = 5.0
_DRIVES = 8
_TOKEN = "the-token-of-"


class Server:
    """`crossspec serve` in a process of its own, with a token for each robot."""

    def __init__(self, folder: Path, robots: int, threads: int) -> None:
        self.port, self.robots = free_port(), robots + STRANGERS
        names = [f"robot{i}" for i in range(robots)] + [f"stranger{i}" for i in range(self.robots + 1)]
        (folder / "tokens").write_text("".join(f"{name} {_TOKEN}{name}\n" for name in names))
        options: dict[str, object] = {
            "port": self.port,
            "robots": self.robots,
            "threads": threads,
            "idle-s": 300,
        }
        options = {**options, "tokens": folder / "tokens", "memories": folder}
        given = [f"--{name}={value}" for name, value in options.items()]
        self._command = [sys.executable, "-m", "crossspec_ros.cli", "serve", *given]
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> str:
        """Returns what it says once it is ready; raises RuntimeError where it does not start."""
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        said = ""
        assert self._process.stdout is not None
        while "ready" not in said:
            line = self._process.stdout.readline()
            if not line:
                raise RuntimeError(f"the server did not start: {said}")
            said += line
        return said

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def restart(self) -> str:
        self.stop()
        self.start()
        return ""

    def replica(self) -> psutil.Process:
        """The process that has the target."""
        assert self._process is not None
        children = psutil.Process(self._process.pid).children(recursive=True)
        return next(one for one in children if "ServeReplica" in " ".join(one.cmdline()))

    def kill(self) -> str:
        self.replica().kill()
        return ""

    def address(self, name: str, port: int = 0) -> Address:
        return Address(f"grpc://127.0.0.1:{port or self.port}", name, _TOKEN + name)


class Proxy:
    """Carries bytes to the server's port, until it is cut."""

    def __init__(self, target: int) -> None:
        self._target, self._open = target, list[socket.socket]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> str:
        self._is_cut = True
        self._drop()
        time.sleep(CUT_S)
        self._is_cut = False
        return ""

    def close(self) -> None:
        self._is_cut = True
        self._listener.close()
        self._drop()

    def _drop(self) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._open.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    near.close()
                    continue
                if self._is_cut:
                    near.close()
                    far.close()
                    continue
                self._open += [near, far]
                if self._is_cut:
                    self._drop()
                    continue
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=_carry, args=(one, other), daemon=True).start()


def _carry(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    for each in (one, other):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


class Life(threading.Thread):
    """A robot that captions one window after the other, and leaves now and then."""

    def __init__(self, number: int, port: int, cases: Sequence[Case]) -> None:
        super().__init__(daemon=True)
        self._name, self._cases = f"robot{number}", cases
        self._address = Address(f"grpc://127.0.0.1:{port}", self._name, _TOKEN + self._name)
        self._random = random.Random(number)
        self._ending = threading.Event()
        self.counts: Counter[str] = Counter()
        self.right_s = 0.0
        """Time of its last right caption."""
        self.start()

    def run(self) -> None:
        while not self._ending.is_set():
            try:
                decoder = _decoder(self._address)
            except InputError:
                self._ending.wait(0.2)  # away
                continue
            try:
                for _ in range(self._random.randrange(5, 25)):
                    self._caption(decoder)
                    # So that windows of robots come in any order.
                    self._ending.wait(self._random.expovariate(20.0))
                    if self._ending.is_set():
                        return
            finally:
                decoder.close()

    def end(self) -> None:
        self._ending.set()
        self.join(60)

    def _caption(self, decoder: PrefillHiddenDecoder) -> None:
        window, wanted = self._random.choice(self._cases)
        try:
            for i, frame in enumerate(window.frames):
                is_last = i + 1 == len(window.frames)
                decoder.stream_frame(window.index, frame, window.frame_stamps_ns[i], is_last)
            said = decoder.caption(window, QUESTION, Trace()).token_ids
        except LinkError:
            self.counts[FAILED] += 1
            self._ending.wait(0.2)
            return
        self.counts[RIGHT if said == wanted else WRONG] += 1
        self.right_s = time.monotonic()


def _decoder(address: Address) -> PrefillHiddenDecoder:
    engine = RemoteEngine(address, PATIENCE_S, _CONNECT_S)
    pair = ModelPair(RemoteTarget(address.url, engine.welcome), None, None, 0)  # type: ignore[arg-type]
    return PrefillHiddenDecoder(pair, Policy((EventDraftProposer(),), None), engine=engine, owns_engine=True)


def cases_of(pair: ModelPair) -> list[Case]:
    decoder = autoregressive_decoder(pair)
    windows = [window for window, _ in held_out_windows(pair, _DRIVES * WINDOWS_PER_DRIVE)]
    try:
        return [(window, decoder.caption(window, QUESTION, Trace()).token_ids) for window in windows]
    finally:
        decoder.close()
