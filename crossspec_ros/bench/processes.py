"""What a bench needs of the processes that it starts: their ports, their figures, and their end."""

from __future__ import annotations

import signal
import socket
import subprocess

import psutil

_END_S = 5.0


def end(process: subprocess.Popen[str]) -> None:
    """Interrupt it, and kill it where that does not help."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads so far."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def free_ports(count: int) -> list[int]:
    """TCP ports of this host that nobody listened to a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports
